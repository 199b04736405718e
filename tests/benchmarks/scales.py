"""Which scale finds the most in tables that nothing is known of.

    PYTHONPATH=tests python -m benchmarks.scales                  # a few minutes
    PYTHONPATH=tests python -m benchmarks.scales --only mixed     # or adbench, kdd

Each candidate brings the columns to one scale: those of `LPE`, and others that are applied
here, before it. All else is what those begin with who know nothing: the mean, all
categories, K by the rule; "loo", so that all are fitted on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import table_path
from benchmarks.finding import KDD, Problem, of_kdd, of_table
from benchmarks.mixed_tables import mixed_problems
from benchmarks.report import markdown
from lpe_dask import LPE

KDD_ROWS = 10_000

GROUPS = ("mixed", "adbench", "kdd")

Numbers = NDArray[np.float64]

#: Quantiles that a deviation is told from, of which the first that differ are taken, and
#: how many deviations of a normal law they are apart.
_SPREADS = ((0.25, 0.75, 1.349), (0.1, 0.9, 2.563), (0.01, 0.99, 4.653))


class Candidate(NamedTuple):
    """How the columns are brought to one scale.

    Attributes
    ----------
    scale : str, optional
        Of `LPE`.
    learn : callable, optional
        Returns a center and a deviation of the nominal values of a column.
    bend : callable
        What numbers of deviations become after that.
    weight : float, optional
        Of a category that differs. None: 1 where ``scale`` is given, and otherwise what
        makes the column contribute, on average, as much as a usual column of numbers.
    """

    scale: str | None = None
    learn: Callable[[Numbers], tuple[float, float]] | None = None
    bend: Callable[[Numbers], Numbers] = np.asarray
    weight: float | None = 1.0


def moments(values: Numbers) -> tuple[float, float]:
    """Return the mean and the standard deviation; 1 for that of a constant column."""
    return float(values.mean()), float(values.std()) or 1.0


def quantiles(values: Numbers) -> tuple[float, float]:
    """Return the median, and the deviation by quantiles if there are two that differ."""
    for low, high, deviations in _SPREADS:
        first, last = np.quantile(values, [low, high])
        if first < last:
            return float(np.median(values)), float(last - first) / deviations
    return float(np.median(values)), moments(values)[1]


CANDIDATES = {
    "no scale": Candidate(),
    "standard": Candidate("standard"),
    "minmax": Candidate("minmax"),
    "quantile": Candidate("quantile"),
    "minmax+quantile": Candidate("minmax+quantile"),
    "robust": Candidate(learn=quantiles),
    "asinh of robust": Candidate(learn=quantiles, bend=np.arcsinh),
    "asinh of standard": Candidate(learn=moments, bend=np.arcsinh),
    "standard, weighted": Candidate(learn=moments, weight=None),
    "asinh of robust, weighted": Candidate(learn=quantiles, bend=np.arcsinh, weight=None),
    "standard, categories 10": Candidate("standard", weight=10.0),
}


def applied(candidate: Candidate, problem: Problem) -> tuple[Any, Any, list[float]]:
    """Return nominal rows, rows to judge, and the weights of the columns."""
    nominal, rows = problem.nominal.copy(), problem.rows.copy()
    if candidate.learn is not None:
        for name in nominal.columns.drop(problem.categorical):
            center, deviation = candidate.learn(nominal[name].to_numpy(float))
            for table in (nominal, rows):
                values = (table[name].to_numpy(float) - center) / deviation
                table[name] = candidate.bend(values)
    weights = pd.Series(1.0, nominal.columns)
    if problem.categorical:
        weights[problem.categorical] = candidate.weight
        if candidate.weight is None:
            usual = 2 * nominal.drop(columns=problem.categorical).var().median()
            for name in problem.categorical:
                differ = 1 - (nominal[name].value_counts(normalize=True) ** 2).sum()
                weights[name] = usual / (differ or 1.0)
    return nominal, rows, weights.tolist()


def measure(problem: Problem) -> Iterator[dict[str, Any]]:
    """Yield what each candidate finds: area, found and false alarms."""
    for name, candidate in CANDIDATES.items():
        nominal, rows, weights = applied(candidate, problem)
        model = LPE(
            scale=candidate.scale, categorical=problem.categorical or None,
            aggregation="mean", metric_params={"w": weights}, calibration="loo",
        ).fit(nominal)  # fmt: skip
        statistic = np.asarray(model.statistic(rows))
        smaller = np.searchsorted(model.calibration_, statistic)
        p_values = 1 - smaller / len(model.calibration_)
        yield {"candidate": name} | problem.measures(statistic, p_values)


def problems(
    group: str, n_rows: int, n_seeds: int
) -> Iterator[tuple[str, str, str, Problem]]:
    """Yield problems of a group: set, what it is counted with, nominal rows, problem."""
    if group == "mixed":
        for seed in range(n_seeds):
            for cause, share, problem in mixed_problems(n_rows, seed):
                nominal = f"{share:.1%} anomalies" if share else "clean"
                yield f"{problem.name}, {seed}", cause, nominal, problem
    elif group == "adbench":
        for path in sorted(table_path("adbench").glob("*.npz")):
            name = path.stem.partition("_")[2]
            yield name, "adbench", "", of_table(path, name, 0)
    else:
        yield KDD, KDD, "", of_kdd(KDD_ROWS, 0)


def report(found: pd.DataFrame) -> str:
    """Format the results as Markdown."""
    parts = []
    for value in ("found", "area", "false alarms"):
        of_sets = found.pivot_table(value, "set", "candidate")[[*CANDIDATES]]
        means = [
            found.pivot_table(value, "candidate", by, sort=False).loc[[*CANDIDATES]]
            for by in ("counted with", "nominal rows")
        ]
        lines = pd.concat(means, axis=1).drop(columns="", errors="ignore")
        if value != "false alarms":
            lines["mean rank"] = of_sets.rank(axis=1, ascending=False).mean()
            lines["most lost"] = -of_sets.sub(of_sets.max(axis=1), axis=0).min()
        cells = lines.round(3).map("{:.3g}".format).reset_index().to_numpy()
        table = markdown(["", *lines.columns], cells).rstrip()
        parts += [f"{value.capitalize()}:", table]
    return "\n\n".join(parts)


@click.command()
@click.option("--only", "names", type=click.Choice(GROUPS), multiple=True)
@click.option("--rows", default=5000, show_default=True, help="Of a mixed table.")
@click.option("--seeds", default=3, show_default=True, help="Draws of each of these.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file."
)
def main(names: tuple[str, ...], rows: int, seeds: int, output: Path | None) -> None:
    """Print which scale finds the most."""
    lines = []
    for group in names or GROUPS:
        for name, column, nominal, problem in problems(group, rows, seeds):
            click.echo(name, err=True)
            known = {"set": name, "counted with": column, "nominal rows": nominal}
            lines += [known | line for line in measure(problem)]
    found = pd.DataFrame(lines)
    if output is not None:
        found.to_csv(output, index=False)
    click.echo(report(found))


if __name__ == "__main__":
    main()
