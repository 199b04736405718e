from .estimate import is_job as is_job
from .estimate import make_forecast as make_forecast
from .estimate import plan as plan
from .sizes import Sizes as Sizes
from .sizes import sizes_of_reasons as sizes_of_reasons
from .sizes import sizes_of_run as sizes_of_run
