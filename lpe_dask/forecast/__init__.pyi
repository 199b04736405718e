from .estimate import is_job as is_job
from .estimate import make_forecast as make_forecast
from .estimate import plan as plan
from .sizes import Workload as Workload
