from .api import drift as drift
from .bins import PValueBins as PValueBins
from .intervals import clopper_pearson_interval as clopper_pearson_interval
from .monitor import DriftMonitor as DriftMonitor
from .new_values import NominalColumn as NominalColumn
from .result import Drift as Drift
