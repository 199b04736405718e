"""What is found when anomalies among nominal rows are confirmed, and left out.

    PYTHONPATH=tests python -m benchmarks.confirmed [--draws 5] [--top 200]

Tables of up to 2,000 rows, 5 % of them anomalies, are scored row by row against each other.
Of the most anomalous rows those that are anomalies are left out, as ``--without-rows`` does
with what a person has marked; and once more, by a list of the model without these. Beside
that all anomalies are left out, and the most anomalous 5 % without a look at them. New
rows, nominal ones and anomalies, are judged by each of these models.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import dask
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import table_path
from benchmarks.report import markdown
from lpe_dask import LPE

ALPHA, SHARE = 0.01, 0.05
N_ROWS, N_NEW = 2000, 10_000

Rows = NDArray[np.float64]

#: Nominal rows, anomalies in the table; the same that are new.
Draw = tuple[Rows, Rows, Rows, Rows]


def made(kind: str, rng: np.random.Generator) -> Draw:
    """Return rows of four normal columns, with anomalies that are scattered or a group."""
    n_odd = round(N_ROWS * SHARE)

    def anomalies(n: int) -> Rows:
        if kind == "scattered":
            directions = rng.standard_normal((n, 4))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            return directions * rng.uniform(4, 9, (n, 1))
        return 3 + 0.2 * rng.standard_normal((n, 4))

    nominal, new = (rng.standard_normal((n, 4)) for n in (N_ROWS - n_odd, N_NEW))
    return nominal, anomalies(n_odd), new, anomalies(1000)


def drawn(rows: Rows, is_anomaly: NDArray[np.bool_], rng: np.random.Generator) -> Draw:
    """Return rows of a public table; at most half of its rows are fitted."""
    normal, odd = (rng.permutation(rows[of]) for of in (~is_anomaly, is_anomaly))
    n = min(round(N_ROWS * (1 - SHARE)), len(normal) // 2)
    n_odd = min(round(n * SHARE / (1 - SHARE)), len(odd) // 2)
    return normal[:n], odd[:n_odd], normal[n : n + N_NEW], odd[n_odd : n_odd + N_NEW]


def problems() -> Iterator[tuple[str, Callable[[np.random.Generator], Draw]]]:
    """Yield the name of each problem, and what draws it."""
    for kind in ("scattered", "group"):
        yield f"made, {kind}", partial(made, kind)
    try:
        for path in sorted(table_path("adbench").glob("*.npz")):
            with np.load(path) as file:
                rows, is_anomaly = file["X"].astype(float), file["y"].astype(bool)
            yield re.sub(r"^\d+_", "", path.stem), partial(drawn, rows, is_anomaly)
    except FileNotFoundError as error:
        click.echo(error, err=True)


def measures(draw: Draw, top: int, **given: Any) -> dict[str, tuple[float, float, float]]:
    """Return what each way of leaving rows out finds.

    Returns
    -------
    found : dict
        By the name of the way: the share of anomalies that are left among the nominal rows,
        and the shares of new anomalies and of new nominal rows with p <= alpha.
    """
    nominal, odd, new, new_odd = draw
    rows = np.concatenate([nominal, odd])
    is_odd = np.arange(len(rows)) >= len(nominal)
    found = {}

    def fitted(way: str, is_kept: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Measure a way, and return the rows that it keeps, the most anomalous first."""
        model = LPE(**given).fit(rows[is_kept])
        shares = [(model.score_samples(some) <= ALPHA).mean() for some in (new_odd, new)]
        found[way] = (is_odd[is_kept].mean(), *map(float, shares))
        return np.flatnonzero(is_kept)[np.argsort(model.p_values_, kind="stable")]

    is_kept = np.ones(len(rows), bool)
    order = fitted("as it is", is_kept)
    is_trimmed = np.isin(np.arange(len(rows)), order[: round(SHARE * len(rows))])
    for way in ("confirmed", "twice"):
        is_kept[order[:top][is_odd[order[:top]]]] = False
        order = fitted(way, is_kept)
    fitted("all", ~is_odd)
    fitted("trimmed", ~is_trimmed)
    return found


@click.command()
@click.option("--draws", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--top", default=200, show_default=True, help="Rows of a list.")
@click.option("--neighbors", type=int, help="K.  [default: by the rule]")
def main(draws: int, top: int, neighbors: int | None) -> None:
    """Print the shares of rows that are flagged at alpha = 0.01, over the draws."""
    given = {
        "n_neighbors": neighbors, "scale": "standard", "aggregation": "mean",
        "calibration": "loo",
    }  # fmt: skip
    lines, ways = [], []
    for name, draw in problems():
        with dask.config.set(scheduler="sync"):
            of_draws = [
                measures(draw(np.random.default_rng(seed)), top, **given)
                for seed in range(draws)
            ]
        ways = list(of_draws[0])
        means = np.mean([list(of.values()) for of in of_draws], axis=0)
        left, found, false_alarms = np.round(means.T, 3)
        shares = [*found, *false_alarms, *left[: len(ways) - 2]]
        lines.append([name, *(f"{share:.3f}".lstrip("0") for share in shares)])
        click.echo(f"{name}: done", err=True)
    titles = ["found: " + way for way in ways] + ["false: " + way for way in ways]
    titles += ["left: " + way for way in ways[:-2]]
    click.echo(markdown(["", *titles], lines))


if __name__ == "__main__":
    logging.getLogger("lpe_dask").setLevel(logging.ERROR)  # it speaks of few rows
    main()
