from .estimate import check_no_others as check_no_others
from .estimate import forecast_job as forecast_job
from .estimate import forecast_score as forecast_score
from .estimate import forecast_with_model as forecast_with_model
from .estimate import is_job as is_job
from .estimate import plan as plan
