from .estimate import (
    check_no_others,
    forecast_job,
    forecast_score,
    forecast_with_model,
    is_job,
    plan,
)

__all__ = [
    "check_no_others",
    "forecast_job",
    "forecast_score",
    "forecast_with_model",
    "is_job",
    "plan",
]
