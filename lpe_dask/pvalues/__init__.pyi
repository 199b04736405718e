from .calibration import Calibration as Calibration
from .decisions import Adjustment as Adjustment
from .decisions import check_level as check_level
from .decisions import checked_p_values as checked_p_values
from .density import LikelihoodRatio as LikelihoodRatio
from .false_discovery import adjustment as adjustment
from .false_discovery import false_discovery_control as false_discovery_control
from .formulas import dkw_band as dkw_band
