from .calibration import plot_calibration as plot_calibration
from .level_set import plot_level_set as plot_level_set
from .pairs import plot_pairs as plot_pairs
from .reasons import plot_reasons as plot_reasons
from .roc import plot_roc as plot_roc
from .scores import plot_scores as plot_scores
from .timeline import plot_timeline as plot_timeline
