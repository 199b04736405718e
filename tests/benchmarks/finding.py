"""Which anomalies are found in public tables, beside other libraries.

Each table of ``adbench`` is divided into nominal rows that are fitted, and all other rows,
which are judged. KDD Cup 1999 is fitted on normal rows of its training file and judged on
its test file, whose attacks are partly of kinds that the training file does not have.

    make finding                        # some minutes
    make finding ARGS="--only cardio"   # one table; a table of your own in adbench, as well

All of ours has ``calibration="loo"``, so that everyone is fitted on the same rows. Scales
are learned from the fitted rows. What other libraries get is standardised by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from benchmarks.contract import installed_version
from benchmarks.data import table_path
from benchmarks.report import markdown
from lpe_dask import LPE

NOMINAL_ROWS = 2000
JUDGED_ROWS = 10_000
KDD_ROWS = 20_000
ALPHA = 0.01

KDD = "KDD-99"
CATEGORIES = ["protocol_type", "service", "flag"]

SCALES = ("standard", "minmax", "quantile", "minmax+quantile")
AGGREGATIONS = ("kth", "mean")
N_NEIGHBORS = (5, 10, 20, 40)

#: K of the table that compares libraries.
USUAL = 10


Scores = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Problem:
    """Nominal rows, and rows that are to be judged.

    Attributes
    ----------
    name : str
    nominal, rows : DataFrame
        Of the same columns.
    is_anomaly : ndarray of bool
        Of the judged rows.
    counts : ndarray
        How often each judged row occurs.
    categorical : list of str
        Columns that are not numbers.
    """

    name: str
    nominal: pd.DataFrame
    rows: pd.DataFrame
    is_anomaly: NDArray[np.bool_]
    counts: NDArray[np.integer]
    categorical: list[str] = field(default_factory=list)

    def numbers(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the nominal and the judged rows without categories."""
        return tuple(
            rows.drop(columns=self.categorical) for rows in (self.nominal, self.rows)
        )

    def standardised(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return their numbers on the scale of the nominal rows."""
        nominal, rows = (rows.to_numpy(float) for rows in self.numbers())
        deviation = nominal.std(axis=0)
        deviation[deviation == 0] = 1
        return tuple((part - nominal.mean(axis=0)) / deviation for part in (nominal, rows))

    def area(self, scores: Scores) -> float:
        """Return the area under the ROC curve of scores that grow with anomaly."""
        return float(roc_auc_score(self.is_anomaly, scores, sample_weight=self.counts))

    def measures(self, statistic: Scores, p_values: Scores) -> dict[str, float]:
        """Return the area, and the shares of rows with p-values up to alpha.

        They are those of the anomalies ("found") and of the normal rows ("false alarms").
        """
        is_low = p_values <= ALPHA
        found, false_alarms = (
            float(np.average(is_low[among], weights=self.counts[among]))
            for among in (self.is_anomaly, ~self.is_anomaly)
        )
        area = self.area(statistic)
        return {"area": area, "found": found, "false alarms": false_alarms}


#: Scores of judged rows, which grow with anomaly, from nominal and judged rows.
Judge = Callable[[Scores, Scores], Scores]


def _pyod(method: str) -> Judge:
    def scores(nominal: Scores, rows: Scores) -> Scores:
        from pyod.models.knn import KNN

        return KNN(n_neighbors=USUAL, method=method).fit(nominal).decision_function(rows)

    return scores


def _of_scikit_learn(make: Callable[[], Any]) -> Judge:
    return lambda nominal, rows: -make().fit(nominal).score_samples(rows)


#: Label -> package, and how it judges rows that are standardised.
PEERS: dict[str, tuple[str, Judge]] = {
    "PyOD KNN, largest": ("pyod", _pyod("largest")),
    "PyOD KNN, mean": ("pyod", _pyod("mean")),
    "LOF": ("scikit-learn", _of_scikit_learn(lambda: LocalOutlierFactor(novelty=True))),
    "isolation forest": (
        "scikit-learn",
        _of_scikit_learn(lambda: IsolationForest(random_state=0)),
    ),
    "one-class SVM": ("scikit-learn", _of_scikit_learn(OneClassSVM)),
}


def problems(names: tuple[str, ...], kdd_rows: int, seed: int) -> Iterator[Problem]:
    """Yield the problems of some names, or of all for none, and tell what is missing."""
    try:
        for path in sorted(table_path("adbench").glob("*.npz")):
            name = re.sub(r"^\d+_", "", path.stem)
            if not names or name in names:
                yield of_table(path, name, seed)
    except FileNotFoundError as error:
        click.echo(error, err=True)
    try:
        if not names or KDD in names:
            yield of_kdd(kdd_rows, seed)
    except FileNotFoundError as error:
        click.echo(error, err=True)


def of_table(path: Path, name: str, seed: int) -> Problem:
    """Return the problem of one table of ADBench."""
    rng = np.random.default_rng(seed)
    with np.load(path) as file:
        rows, is_anomaly = file["X"].astype(float), file["y"].astype(bool)
    normal = rng.permutation(np.flatnonzero(~is_anomaly))
    anomalies = rng.permutation(np.flatnonzero(is_anomaly))[:JUDGED_ROWS]
    n = min(NOMINAL_ROWS, len(normal) // 2)
    judged = np.concatenate([normal[n : n + JUDGED_ROWS], anomalies])
    return Problem(
        name,
        pd.DataFrame(rows[normal[:n]]),
        pd.DataFrame(rows[judged]),
        is_anomaly[judged],
        np.ones(len(judged), int),
    )


def of_kdd(n_rows: int, seed: int) -> Problem:
    """Return the problem of KDD Cup 1999; its test rows repeat, and are counted."""
    table = pd.read_parquet(table_path("kdd99.parquet"))
    is_normal, is_training = table["label"] == "normal", table["part"] == "train10pct"
    normal = table[is_training & is_normal].drop(columns=["label", "part"])
    order = np.random.default_rng(seed).permutation(len(normal))
    judged = table[~is_training].drop(columns=["label", "part"])
    judged = judged.astype(dict.fromkeys(CATEGORIES, str))
    judged = judged.assign(is_anomaly=~is_normal).value_counts(sort=False)
    judged = judged.rename("n").reset_index()
    return Problem(
        KDD,
        normal.iloc[order[:n_rows]].astype(dict.fromkeys(CATEGORIES, str)),
        judged.drop(columns=["is_anomaly", "n"]),
        judged["is_anomaly"].to_numpy(),
        judged["n"].to_numpy(),
        CATEGORIES,
    )


def measure(problem: Problem) -> pd.DataFrame:
    """Scores of every detector on a problem.

    Returns
    -------
    found : DataFrame
        A line for each contender and K: set, label, K, area, and the shares of the
        anomalies (found) and of the normal rows (false alarms) with p-values up to alpha;
        NaN for other libraries, which have none.
    """
    orders: list[int | None] = [k for k in N_NEIGHBORS if k < len(problem.nominal)]
    if problem.name == KDD:
        orders.append(None)
    ours = [*product(SCALES, AGGREGATIONS, orders, (False,))]
    if problem.categorical:
        ours += product(SCALES, AGGREGATIONS, (USUAL, None), (True,))
    lines: list[dict[str, Any]] = [_ours(problem, *arguments) for arguments in ours]
    nominal, rows = problem.standardised()
    lines += [
        {"label": label, "K": str(USUAL), "area": problem.area(scores(nominal, rows))}
        for label, (package, scores) in PEERS.items()
        if installed_version(package) is not None
    ]
    found = pd.DataFrame(lines)
    found.insert(0, "set", problem.name)
    return found


def _ours(
    problem: Problem, scale: str, aggregation: str, k: int | None, with_categories: bool
) -> dict[str, Any]:
    """Scores of an `LPE`; ``k`` None is its rule."""
    nominal, rows = problem.numbers()
    label = f"{scale}, {aggregation}"
    more: dict[str, Any] = {}
    if with_categories:
        nominal, rows = problem.nominal, problem.rows
        label += ", categories"
        more = {"categorical": problem.categorical}
    model = LPE(
        k, scale=scale, aggregation=aggregation, calibration="loo", **more
    ).fit(nominal)  # fmt: skip
    statistic, p_values = model.statistic(rows), model.score_samples(rows)
    measures = problem.measures(np.asarray(statistic), np.asarray(p_values))
    return {"label": label, "K": "rule" if k is None else str(k)} | measures


#: What means over sets are told of, and what of KDD Cup 1999 -> how that is called.
_MEANS = {
    "area": "Mean of the areas over the sets:",
    "found": f"Mean share of the anomalies with p <= {ALPHA}:",
    "false alarms": f"Mean share of the normal rows with p <= {ALPHA}:",
}
_OF_KDD = {
    "area": "area",
    "found": f"attacks with p <= {ALPHA}",
    "false alarms": f"normal rows with p <= {ALPHA}",
}


def report(found: pd.DataFrame) -> str:
    """Format the results as Markdown."""
    order = list(dict.fromkeys(found["label"]))
    of_sets, of_kdd = found[found["set"] != KDD], found[found["set"] == KDD]
    parts = []
    if len(of_sets):
        usual = of_sets[of_sets["K"] == str(USUAL)]
        areas = usual.pivot(index="label", columns="set", values="area")
        areas.insert(0, "mean", areas.mean(axis=1))
        parts += [f"Areas, K = {USUAL}:", _markdown(areas, order)]
        by_k = of_sets[~of_sets["label"].isin([*PEERS])]
        for value, title in _MEANS.items():
            means = by_k.pivot_table(index="label", columns="K", values=value)
            means = means[[str(k) for k in N_NEIGHBORS if str(k) in means]]
            parts += [title, _markdown(means.add_prefix("K = "), order)]
    if len(of_kdd):
        values = of_kdd.pivot(index="label", columns="K", values=[*_OF_KDD])
        wanted = list(product(_OF_KDD, (str(USUAL), "rule")))
        values = values[[some for some in wanted if some in values]]
        values.columns = [f"{_OF_KDD[what]}, K = {k}" for what, k in values]
        values.columns = [title.replace("K = rule", "K by rule") for title in values]
        parts += [f"{KDD}:", _markdown(values, order)]
    return "\n\n".join(parts)


def _markdown(values: pd.DataFrame, order: list[str]) -> str:
    values = values.loc[[label for label in order if label in values.index]]
    lines = [
        [label, *("" if np.isnan(v) else f"{v:.3f}".lstrip("0") for v in line)]
        for label, line in values.iterrows()
    ]
    return markdown(["", *values.columns], lines).rstrip()


@click.command()
@click.option("--only", "names", multiple=True, metavar="NAME", help=f"A table, or {KDD}.")
@click.option("--kdd-rows", default=KDD_ROWS, show_default=True, help="Fitted rows of it.")
@click.option("--seed", default=0, show_default=True, help="Draws the fitted rows.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file."
)
def main(names: tuple[str, ...], kdd_rows: int, seed: int, output: Path | None) -> None:
    """Print which anomalies are found in public tables."""
    parts = []
    for problem in problems(names, kdd_rows, seed):
        n_anomalies = problem.counts[problem.is_anomaly].sum()
        click.echo(
            f"{problem.name}: {len(problem.nominal):,} rows fitted, "
            f"{problem.counts.sum():,} judged, {n_anomalies:,} of them anomalies",
            err=True,
        )
        parts.append(measure(problem))
    if not parts:
        called = f" called {' or '.join(names)}" if names else ""
        raise click.UsageError(
            f"there is no table{called}; see CONTRIBUTING.md about data."
        )
    found = pd.concat(parts, ignore_index=True)
    if output is not None:
        found.to_csv(output, index=False)
    click.echo(report(found))


if __name__ == "__main__":
    main()
