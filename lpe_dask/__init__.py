"""Anomaly detection with calibrated p-values on tables of any size, on Dask.

`score` gives each row of a table a p-value, `LPE` is the same as a scikit-learn estimator;
`score_files` does so from files to files, and `run` what a job file says. `plan` tells what
that would need, and `false_discovery_control` flags rows by the p-values of all of them;
`plot_scores`, `plot_level_set`, `plot_roc` and `plot_calibration` draw what came out.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numba
import yaml

if TYPE_CHECKING:
    from lpe_dask.detector import LPE, load, score
    from lpe_dask.false_discovery import false_discovery_control
    from lpe_dask.forecasting import plan
    from lpe_dask.job_runs import run
    from lpe_dask.plots import plot_calibration, plot_level_set, plot_roc, plot_scores
    from lpe_dask.runs import score_files

__version__ = "0.1.0"
__all__ = [
    "LPE",
    "__version__",
    "false_discovery_control",
    "load",
    "plan",
    "plot_calibration",
    "plot_level_set",
    "plot_roc",
    "plot_scores",
    "run",
    "score",
    "score_files",
]

# The defaults of every key, below what the user's configuration says.
_defaults = yaml.safe_load((Path(__file__).parent / "lpe-dask.yaml").read_text("utf-8"))
dask.config.update_defaults(_defaults)

if (_cache_folder := dask.config.get("lpe-dask.cache-folder")) is not None:
    numba.config.CACHE_DIR = str(_cache_folder)  # read when kernels/ is imported

_HOMES = {
    "LPE": "lpe_dask.detector",
    "false_discovery_control": "lpe_dask.false_discovery",
    "load": "lpe_dask.detector",
    "plan": "lpe_dask.forecasting",
    "plot_calibration": "lpe_dask.plots",
    "plot_level_set": "lpe_dask.plots",
    "plot_roc": "lpe_dask.plots",
    "plot_scores": "lpe_dask.plots",
    "run": "lpe_dask.job_runs",
    "score": "lpe_dask.detector",
    "score_files": "lpe_dask.runs",
}


def __getattr__(name: str) -> Any:
    # Workers import this package for their tasks and need no estimator: scikit-learn and
    # what it loads come with the first use of a public name.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
