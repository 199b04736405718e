"""Beside isolation forest, by kinds of data: who orders rows better.

    PYTHONPATH=tests python -m benchmarks.forest [--draws 3] [--only made]

Made tables have anomalies of one known kind; public ones are those of `finding` and two
that scikit-learn has. Nominal rows are fitted, and others judged. "Start" is what an `LPE`
begins with, ``scale="standard", aggregation="mean", categorical="auto"``; "minmax" the
same with that scale. The forest has scikit-learn's defaults, and categories one-hot
encoded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from benchmarks.data import table_path
from benchmarks.finding import KDD, Problem, of_kdd, of_table
from benchmarks.mixed_tables import mixed_problems
from benchmarks.report import markdown
from lpe_dask import LPE

N_NOMINAL, N_NEW, N_ANOMALIES = 2000, 5000, 250
KDD_ROWS = 10_000

GROUPS = ("made", "mixed", "scikit-learn", "adbench", "kdd")

Rows = NDArray[np.float64]
Rng = np.random.Generator

#: Nominal rows, and anomalies, of a made table.
Draw = tuple[Rows, Rows]


def _far_out(n: int, rng: Rng) -> Draw:
    nominal, odd = rng.standard_normal((n, 10)), rng.standard_normal((N_ANOMALIES, 10))
    odd[np.arange(N_ANOMALIES), rng.integers(0, 10, N_ANOMALIES)] = 6
    return nominal, odd


def _shifted(n: int, rng: Rng) -> Draw:
    return rng.standard_normal((n, 20)), rng.normal(1, 1, (N_ANOMALIES, 20))


def _uninformative(n: int, rng: Rng) -> Draw:
    nominal, odd = rng.standard_normal((n, 100)), rng.standard_normal((N_ANOMALIES, 100))
    odd[:, 0] += 5
    return nominal, odd


def _clusters(n: int, rng: Rng) -> Draw:
    centers = rng.uniform(-10, 10, (20, 6))
    first, second = (centers[rng.integers(0, 20, N_ANOMALIES)] for _ in range(2))
    is_same = (first == second).all(axis=1)
    second[is_same] = -first[is_same]
    nominal = centers[rng.integers(0, 20, n)] + rng.standard_normal((n, 6))
    return nominal, (first + second) / 2 + rng.standard_normal((N_ANOMALIES, 6))


def _related(n: int, rng: Rng) -> Draw:
    factors = rng.standard_normal((n + N_ANOMALIES, 2)) @ rng.standard_normal((2, 8))
    rows = factors + 0.2 * rng.standard_normal(factors.shape)
    odd = rng.permuted(rows[n:], axis=0)  # each number is usual, and not beside the others
    return rows[:n], odd


def _hole(n: int, rng: Rng) -> Draw:
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(5, 0.3, n)
    ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return ring, rng.standard_normal((N_ANOMALIES, 2))


def _beside_heavy_tails(n: int, rng: Rng) -> Draw:
    nominal, odd = (
        np.column_stack([rng.standard_normal(m), rng.standard_t(1.5, (m, 7))])
        for m in (n, N_ANOMALIES)
    )
    odd[:, 0] += 5
    return nominal, odd


def _group(n: int, rng: Rng) -> Draw:
    return rng.standard_normal((n, 4)), 3 + 0.2 * rng.standard_normal((N_ANOMALIES, 4))


CLUSTERS, GROUP = "20 clusters, anomalies between them", "a group of similar anomalies"

#: Kind of data -> what draws rows and anomalies of it.
MADE: dict[str, Callable[[int, Rng], Draw]] = {
    "one of 10 numbers is far out": _far_out,
    "all of 20 numbers are somewhat high": _shifted,
    "one of 100 columns says it": _uninformative,
    CLUSTERS: _clusters,
    "related columns, anomalies break the relation": _related,
    "a ring, anomalies within": _hole,
    "a column says it, seven others have heavy tails": _beside_heavy_tails,
    GROUP: _group,
}


def of_made(kind: str, seed: int, n_nominal: int, n_mixed: int = 0) -> Problem:
    """Return a made table, some of whose nominal rows are anomalies."""
    rows, odd = MADE[kind](n_nominal + N_NEW, np.random.default_rng(seed))
    rows[:n_mixed], odd = odd[:n_mixed], odd[n_mixed:]
    judged = pd.DataFrame(np.concatenate([odd, rows[n_nominal:]]))
    is_anomaly = np.arange(len(judged)) < len(odd)
    counts = np.ones(len(judged), int)
    return Problem(kind, pd.DataFrame(rows[:n_nominal]), judged, is_anomaly, counts)


def of_scikit_learn(name: str, seed: int) -> Problem:
    """Return digits without nines, or benign tumors, half of which are fitted."""
    if name == "digits, nines":
        rows, labels = load_digits(return_X_y=True)
        is_anomaly = labels == 9
    else:
        rows, labels = load_breast_cancer(return_X_y=True)
        is_anomaly = labels == 0
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(~is_anomaly))
    n = len(normal) // 2
    judged = np.concatenate([normal[n:], np.flatnonzero(is_anomaly)])
    return Problem(
        name, pd.DataFrame(rows[normal[:n]]), pd.DataFrame(rows[judged]),
        is_anomaly[judged], np.ones(len(judged), int),
    )  # fmt: skip


def problems(group: str, seed: int) -> Iterator[tuple[str, Problem]]:
    """Yield kinds of data of a group, and a problem of each."""
    if group == "made":
        for kind in MADE:
            yield kind, of_made(kind, seed, N_NOMINAL)
        yield f"{CLUSTERS}, 100 nominal rows", of_made(CLUSTERS, seed, 100)
        mixed = of_made(GROUP, seed, N_NOMINAL, n_mixed=100)
        yield f"{GROUP}, 100 of the nominal rows", mixed
    elif group == "mixed":
        for cause, share, problem in mixed_problems(N_NOMINAL, seed):
            yield f"{cause}, {share:.1%} among the nominal rows", problem
    elif group == "scikit-learn":
        for name in ("digits, nines", "breast cancer"):
            yield name, of_scikit_learn(name, seed)
    elif group == "adbench":
        for path in sorted(table_path("adbench").glob("*.npz")):
            name = re.sub(r"^\d+_", "", path.stem)
            yield name, of_table(path, name, seed)
    else:
        yield KDD, of_kdd(KDD_ROWS, seed)


def _lpe(problem: Problem, scale: str) -> Rows:
    model = LPE(scale=scale, aggregation="mean", categorical="auto", calibration="loo")
    return np.asarray(model.fit(problem.nominal).statistic(problem.rows))


def _forest(problem: Problem) -> Rows:
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (encoder, problem.categorical), remainder="passthrough"
    )
    forest = make_pipeline(columns, IsolationForest(random_state=0))
    nominal, rows = (
        table.set_axis(table.columns.astype(str), axis=1)
        for table in (problem.nominal, problem.rows)
    )
    return -forest.fit(nominal).score_samples(rows)


CONTENDERS: dict[str, Callable[[Problem], Rows]] = {
    "start": lambda problem: _lpe(problem, "standard"),
    "minmax": lambda problem: _lpe(problem, "minmax"),
    "forest": _forest,
}


def measure(problem: Problem) -> dict[str, float]:
    """Return the area under the ROC curve and the average precision of everyone."""
    found = {}
    for name, scores_of in CONTENDERS.items():
        scores = scores_of(problem)
        found[f"area, {name}"] = problem.area(scores)
        precision = average_precision_score(
            problem.is_anomaly, scores, sample_weight=problem.counts
        )
        found[f"precision, {name}"] = float(precision)
    return found


def report(found: pd.DataFrame) -> str:
    """Format the means over draws as Markdown, with the largest area in bold."""
    means = found.groupby("kind", sort=False).mean()
    lines = []
    for kind, line in means.iterrows():
        areas = line[[f"area, {name}" for name in CONTENDERS]].round(3)
        cells = [_written(v, is_best=v == areas.max()) for v in areas]
        cells += [_written(line[f"precision, {name}"]) for name in CONTENDERS]
        lines.append([str(kind), *cells])
    head = ["kind of data"]
    head += [f"{what}, {name}" for what in ("area", "precision") for name in CONTENDERS]
    return markdown(head, lines)


def _written(value: float, *, is_best: bool = False) -> str:
    text = f"{value:.3f}".removeprefix("0")
    return f"**{text}**" if is_best else text


@click.command()
@click.option("--only", "names", type=click.Choice(GROUPS), multiple=True)
@click.option("--draws", default=3, show_default=True, type=click.IntRange(min=1))
def main(names: tuple[str, ...], draws: int) -> None:
    """Print how well rows are ordered, beside isolation forest."""
    logging.getLogger("lpe_dask").setLevel(logging.ERROR)  # areas need no calibration
    lines: list[dict[str, Any]] = []
    for group in names or GROUPS:
        try:
            for seed in range(draws):
                for kind, problem in problems(group, seed):
                    lines.append({"kind": kind} | measure(problem))
        except FileNotFoundError as error:
            click.echo(error, err=True)
    click.echo(report(pd.DataFrame(lines)))


if __name__ == "__main__":
    main()
