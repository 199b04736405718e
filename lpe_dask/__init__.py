"""Anomaly detection with calibrated p-values on tables of any size, on Dask.

`score` gives each row of a table a p-value, `LPE` is the same as a scikit-learn estimator;
`score_files` does so from files to files, and `run` what a job file says. `plan` forecasts
what that would need, `report` makes the page about a run, and `drift` tests whether a model
is still right; `false_discovery_control` flags rows by the p-values of all of them;
`plot_scores`, `plot_timeline`, `plot_reasons`, `plot_pairs`, `plot_level_set`, `plot_roc`
and `plot_calibration` draw what came out.
"""

import sys
from pathlib import Path

import dask
import lazy_loader
import yaml

from lpe_dask.forks import after_fork

__version__ = "0.1.0"

# Workers import this package for their tasks and need no estimator: scikit-learn and what
# it loads come with the first use of a public name.
__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted([*__all__, "__version__"])


def __dir__() -> list[str]:
    return __all__


# The defaults of every key, below what the user's configuration says. Nothing that takes
# long is imported before: another thread may import a part of this package meanwhile.
_defaults = yaml.safe_load((Path(__file__).parent / "lpe-dask.yaml").read_text("utf-8"))
dask.config.update_defaults(_defaults)


def _reset_dask() -> None:
    if "dask.threaded" in sys.modules:  # else there are neither threads nor clients
        from lpe_dask.tasks import reset_after_fork

        reset_after_fork()


# Also where the parent has used Dask by itself, and nothing of this package.
after_fork(_reset_dask)
