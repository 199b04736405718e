from .estimate import is_job as is_job
from .estimate import make_forecast as make_forecast
from .estimate import plan as plan
from .forecast import duration_text as duration_text
from .remedies import check_in_time as check_in_time
from .remedies import time_option as time_option
from .sizes import Workload as Workload
