from .calibration import Calibration
from .decisions import (
    Adjustment,
    adjusted_p_values,
    check_level,
    discovery_cut_off,
    doubt_about_rate,
    labels,
    margin,
    threshold,
)
from .density import DensityWeight, LogDensity, log_densities, weigh
from .false_discovery import MERGED_HISTOGRAMS, adjustment, false_discovery_control
from .formulas import BAND_LEVEL, COUNTS_ITSELF, band_half_width
from .roc import Curve, area, detection_at, finer_rank, ranked_curve
from .validity import (
    GRAPH,
    choose_calibration,
    enough_rows,
    most_false_alarms,
    places_flagged,
    what_is_learned,
)

__all__ = [
    "BAND_LEVEL",
    "COUNTS_ITSELF",
    "GRAPH",
    "MERGED_HISTOGRAMS",
    "Adjustment",
    "Calibration",
    "Curve",
    "DensityWeight",
    "LogDensity",
    "adjusted_p_values",
    "adjustment",
    "area",
    "band_half_width",
    "check_level",
    "choose_calibration",
    "detection_at",
    "discovery_cut_off",
    "doubt_about_rate",
    "enough_rows",
    "false_discovery_control",
    "finer_rank",
    "labels",
    "log_densities",
    "margin",
    "most_false_alarms",
    "places_flagged",
    "ranked_curve",
    "threshold",
    "weigh",
    "what_is_learned",
]
