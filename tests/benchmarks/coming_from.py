"""One public table with the libraries that users come from: what is found, and how long.

    pip install -e ".[bench]" nonconform "databricks-labs-dqx[anomaly]" pyspark
    PYTHONPATH=tests python -m benchmarks.coming_from [--table mammography] [--draws 5]

Half of the normal rows are fitted, and all other rows are judged. Everyone is asked to flag
5 % of normal rows, by what its documentation has for that, with all else at its defaults;
rows are standardised first where a library does not do that itself. Seconds are of fitting
and judging together, medians over the draws, in which all take part one after another;
what is imported, compiled and started before (`lpe_dask.compile_kernels`, a session of
Spark) is not counted.

Peers that are not installed are named and left out: nonconform needs Python 3.12. Of
``databricks-labs-dqx`` (with ``pyspark``, which needs Java) only the functions that train
and score run without a Databricks workspace: see docs/coming_from.md.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from benchmarks.contract import installed_version
from benchmarks.data import table_path
from benchmarks.report import markdown
from lpe_dask import LPE, compile_kernels

ALPHA = 0.05

Rows = NDArray[np.float64]


class Judged(NamedTuple):
    """What a library says of rows: scores that grow with anomaly, and which it flags."""

    scores: Rows
    is_flagged: NDArray[np.bool_]


#: Nominal rows, rows to judge -> what is said of these.
Judge = Callable[[Rows, Rows], Judged]


def _lpe(nominal: Rows, rows: Rows) -> Judged:
    model = LPE(scale="standard", aggregation="mean", alpha=ALPHA).fit(nominal)
    found = model.score_frame(rows)
    return Judged(found["statistic"].to_numpy(), found["is_anomaly"].to_numpy(bool))


def _scikit_learn(make: Callable[[], Any], nominal: Rows, rows: Rows) -> Judged:
    decisions = make_pipeline(StandardScaler(), make()).fit(nominal).decision_function(rows)
    return Judged(-decisions, decisions < 0)


def _pyod(name: str, nominal: Rows, rows: Rows) -> Judged:
    from pyod.models.ecod import ECOD
    from pyod.models.knn import KNN

    model = {"KNN": KNN, "ECOD": ECOD}[name](contamination=ALPHA)
    scaler = StandardScaler().fit(nominal)
    scores = model.fit(scaler.transform(nominal)).decision_function(scaler.transform(rows))
    return Judged(scores, scores > model.threshold_)


def _nonconform(make: Callable[[], Any], nominal: Rows, rows: Rows) -> Judged:
    from nonconform import ConformalDetector, Split

    scaler = StandardScaler().fit(nominal)
    model = ConformalDetector(make(), Split(n_calib=0.5), seed=0)
    p_values = model.fit(scaler.transform(nominal)).compute_p_values(scaler.transform(rows))
    return Judged(model.last_result.test_scores, p_values <= ALPHA)


def _pyod_knn() -> Any:
    from pyod.models.knn import KNN

    return KNN()


@cache
def _spark() -> Any:
    """Return a session of this process, which ends with it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for key in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(key, "127.0.0.1")
    return builder.getOrCreate()


def _dqx(nominal: Rows, rows: Rows) -> Judged:
    """Train and score as its engine does, without the registry of a workspace."""
    from databricks.labs.dqx.anomaly import core
    from databricks.labs.dqx.config import AnomalyParams, IsolationForestConfig

    columns = [f"c{i}" for i in range(nominal.shape[1])]
    known, new = (
        _spark().createDataFrame(pd.DataFrame(part, columns=columns))
        for part in (nominal, rows)
    )
    params = AnomalyParams()
    sample, _, _ = core.sample_df(known, columns, params)
    training, _ = core.train_validation_split(sample, params)
    features, made = core.prepare_training_features(training, columns, params)
    models = []
    for member in range(params.ensemble_size):
        seed = IsolationForestConfig.random_seed + member
        params.algorithm_config = IsolationForestConfig(0.02, random_seed=seed)
        models.append(core.fit_sklearn_model(features, params)[0])
    limits = core.compute_score_quantiles_ensemble(models, training, columns, made)
    scored = core.score_with_ensemble_models(models, new, columns, made)
    scores = scored.select("anomaly_score").toPandas()["anomaly_score"].to_numpy()
    return Judged(scores, scores >= limits["p95"])


#: Label -> the installed packages that it needs, and how it judges.
LIBRARIES: dict[str, tuple[tuple[str, ...], Judge]] = {
    "lpe_dask": ((), _lpe),
    "scikit-learn, isolation forest": (
        (),
        partial(
            _scikit_learn, partial(IsolationForest, contamination=ALPHA, random_state=0)
        ),
    ),
    "scikit-learn, local outlier factor": (
        (),
        partial(
            _scikit_learn, partial(LocalOutlierFactor, novelty=True, contamination=ALPHA)
        ),
    ),
    "scikit-learn, one-class SVM": (
        (),
        partial(_scikit_learn, partial(OneClassSVM, nu=ALPHA)),
    ),
    "PyOD, KNN": (("pyod",), partial(_pyod, "KNN")),
    "PyOD, ECOD": (("pyod",), partial(_pyod, "ECOD")),
    "nonconform, isolation forest": (
        ("nonconform",),
        partial(_nonconform, partial(IsolationForest, random_state=0)),
    ),
    "nonconform, PyOD's KNN": (("nonconform", "pyod"), partial(_nonconform, _pyod_knn)),
    "dqx": (("databricks-labs-dqx", "pyspark"), _dqx),
}


def installed() -> Iterator[str]:
    """Yield the libraries that are installed, and name the packages that are not."""
    for label, (packages, _) in LIBRARIES.items():
        missing = [name for name in packages if installed_version(name) is None]
        if missing:
            click.echo(f"{label}: left out, without {' and '.join(missing)}", err=True)
        else:
            yield label


def drawn(table: str, seed: int) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Return half of the normal rows, all other rows, and which of these are anomalies."""
    (path,) = table_path("adbench").glob(f"*_{table}.npz")
    with np.load(path) as file:
        rows, is_anomaly = file["X"].astype(float), file["y"].astype(bool)
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(~is_anomaly))
    judged = np.concatenate([normal[len(normal) // 2 :], np.flatnonzero(is_anomaly)])
    return rows[normal[: len(normal) // 2]], rows[judged], is_anomaly[judged]


def measure(label: str, table: str, seed: int) -> dict[str, float | str]:
    """Return what a library finds in a draw of a table, and the seconds it takes."""
    nominal, rows, is_anomaly = drawn(table, seed)
    began = time.perf_counter()
    scores, is_flagged = LIBRARIES[label][1](nominal, rows)
    passed = time.perf_counter() - began
    return {
        "library": label,
        "area": float(roc_auc_score(is_anomaly, scores)),
        "precision": float(average_precision_score(is_anomaly, scores)),
        "false alarms": float(is_flagged[~is_anomaly].mean()),
        "found": float(is_flagged[is_anomaly].mean()),
        "seconds": passed,
    }


def report(found: pd.DataFrame) -> str:
    """Format the results as Markdown."""
    by_library = found.groupby("library", sort=False)
    means, seconds = by_library.mean(), by_library["seconds"].median()
    least, most = by_library["false alarms"].min(), by_library["false alarms"].max()
    head = [
        "library", "area under ROC", "average precision", "nominal rows flagged",
        "in one draw", "anomalies flagged", "fit and score, s",
    ]  # fmt: skip
    lines = [
        [
            label, *(f"{means[value][label]:.3f}" for value in ("area", "precision")),
            f"{means['false alarms'][label]:.1%}",
            f"{least[label]:.1%} to {most[label]:.1%}", f"{means['found'][label]:.1%}",
            f"{seconds[label]:.2g}",
        ]
        for label in means.index
    ]  # fmt: skip
    return markdown(head, lines)


@click.command()
@click.option("--table", default="mammography", show_default=True, help="Of ADBench.")
@click.option("--draws", default=5, show_default=True, type=click.IntRange(min=1))
def main(table: str, draws: int) -> None:
    """Print what each library finds in a table, as Markdown."""
    labels = [*installed()]
    compile_kernels()
    for label in labels:
        measure(label, table, 0)
    found = [measure(label, table, seed) for seed in range(draws) for label in labels]
    click.echo(report(pd.DataFrame(found)))


if __name__ == "__main__":
    main()
