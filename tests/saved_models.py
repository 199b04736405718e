"""Models that releases have saved, and what they say of some rows: tests/models.

Before a release, once its version is set, ``python tests/saved_models.py`` writes those of
the installed version. Models of earlier releases stay as they are.
"""

import json
import shutil
from pathlib import Path
from unittest.mock import patch

import dask
import numpy as np
import pandas as pd

import lpe_dask
from indexes import right_lists
from lpe_dask.kernels import nn_descent
from lpe_dask.model.certificate import Certificate
from lpe_dask.search import Approximation

FOLDER = Path(__file__).parent / "models"

#: Rows that are nominal, and that are scored; the first of these are nominal, too.
N_NOMINAL, N_SCORED = 150, 12

#: Models of frames; others are of arrays.
OF_FRAMES = ("columns", "groups", "pool", "shared", "confidence")

#: Arguments of models that have all kinds of files and of keys together.
ARGUMENTS = {
    "columns": {
        "scale": "minmax+quantile", "metric_params": {"w": [1.0, 0.5, 2.0, 1.0, 3.0]},
        "categorical": ["kind", "is_old"], "missing": "drop", "aggregation": "mean",
        "calibration": "conformal",
    },
    "groups": {
        "by": ["kind", "is_old"], "scale": "minmax+quantile", "missing": "drop",
        "calibration": "loo",
    },
    "geodesic": {
        "metric": "geodesic", "metric_params": {"n_neighbors": 4, "graph": "union"},
        "calibration": "loo",
    },
    "indexed": {"algorithm": "nn_descent", "n_neighbors": 3, "scale": "standard"},
    "radius": {
        "metric": "mahalanobis", "graph": "radius", "radius": 1.0, "algorithm": "pruned",
        "calibration": "split",
    },
    "pool": {
        "by": ["kind"], "small_groups": "pool", "categorical": ["is_old"],
        "missing": "measure", "metric_params": {"w_missing": 2.0},
        "calibration": "conformal",
    },
    "confidence": {
        "by": ["kind"], "missing": "drop", "calibration": "conformal", "alpha": 0.2,
        "confidence": 0.9,
    },
    "shared": {
        "by": ["kind"], "own": ["scale"], "scale": "standard", "missing": "drop",
        "calibration": "split",
    },
    "many": {"scale": "standard", "calibration": "loo"},
}  # fmt: skip

#: Configuration of fits: blocks of few rows, and statistics in several files.
CONFIGURATION = {"scheduler": "sync", "lpe-dask.block-rows": 64}
OF_MANY = {"lpe-dask.statistics-in-memory": 50}


def table(name):
    """Return nominal rows of a model, with those that are scored after them."""
    rng = np.random.default_rng(0)
    n_rows = N_NOMINAL + N_SCORED
    frame = pd.DataFrame(rng.standard_normal((n_rows, 2)).round(3), columns=["x", "y"])
    if name not in OF_FRAMES:
        return frame.to_numpy()
    frame["time"] = 2**60 + rng.integers(0, 1000, n_rows)  # float64 loses its last digits
    frame["kind"] = rng.choice(["a", "b", "c"], n_rows)
    frame["is_old"] = rng.random(n_rows) < 0.3
    frame.loc[[10, n_rows - 3], "kind"] = "rare"
    frame.loc[[5, n_rows - 2], "x"] = np.nan
    frame.loc[n_rows - 1, "kind"] = "new"
    return frame


def outcome(model, rows):
    """Results of a model for rows, and for those that it was fitted on."""
    own = getattr(model, "p_values_", None)
    with (
        # Or so few rows are measured exactly.
        patch.object(Approximation, "AUDITED_ROWS", 5),
        patch.object(Certificate, "check"),
    ):
        numbers = {
            "p_values": model.score_samples(rows),
            "statistic": model.statistic(rows),
            "margins": model.decision_function(rows),
            "own_p_values": np.empty(0) if own is None else own,
        }
    return {name: np.asarray(values, np.float64) for name, values in numbers.items()}


def write_models(folder):
    """Write each model, and beside it some rows and what it says of them, bit for bit."""
    for name, arguments in ARGUMENTS.items():
        rows = table(name)
        model = lpe_dask.LPE(random_state=0, **arguments)
        with (
            dask.config.set(CONFIGURATION | (OF_MANY if name == "many" else {})),
            patch.object(nn_descent, "neighbor_lists", right_lists),
        ):
            model.fit(rows[:N_NOMINAL]).save(folder / name)
            scored = pd.DataFrame(rows[: N_SCORED // 2])
            scored = pd.concat([scored, pd.DataFrame(rows[N_NOMINAL:])], ignore_index=True)
            given = scored if name in OF_FRAMES else scored.to_numpy()
            numbers = outcome(lpe_dask.load(folder / name), given)
        content = {"rows": scored.to_dict("list")} | {
            key: values.tolist() for key, values in numbers.items()
        }
        text = json.dumps(content, indent=1).replace("NaN", "null")
        (folder / name / "expected.json").write_text(text + "\n")


def read_expected(folder):
    """Return the rows beside a model, and what it said of them."""
    content = json.loads((folder / "expected.json").read_text())
    scored = pd.DataFrame(content.pop("rows"))
    rows = scored if folder.name in OF_FRAMES else scored.to_numpy()
    return rows, {key: np.array(values, np.float64) for key, values in content.items()}


if __name__ == "__main__":
    target = FOLDER / lpe_dask.__version__
    shutil.rmtree(target, ignore_errors=True)
    write_models(target)
    print(f"written: {target}")
