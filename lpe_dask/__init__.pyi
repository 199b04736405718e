from .batch import report as report
from .batch import run as run
from .batch import score_files as score_files
from .forecast import plan as plan
from .kernels import compile_kernels as compile_kernels
from .model import LPE as LPE
from .model import load as load
from .model import score as score
from .monitoring import drift as drift
from .plots import plot_calibration as plot_calibration
from .plots import plot_level_set as plot_level_set
from .plots import plot_pairs as plot_pairs
from .plots import plot_reasons as plot_reasons
from .plots import plot_roc as plot_roc
from .plots import plot_scores as plot_scores
from .plots import plot_timeline as plot_timeline
from .pvalues import false_discovery_control as false_discovery_control

__version__: str
