from .batch import run, score_files
from .forecast import plan
from .model import LPE, load, score
from .plots import plot_calibration, plot_level_set, plot_roc, plot_scores
from .pvalues import false_discovery_control

__version__: str
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
