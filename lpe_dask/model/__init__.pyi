from .calibration_check import check_calibration
from .checkpoint import Checkpoint
from .detector import LPE, fitted_of, load, score
from .fitted import Fitted
from .fitting import fit_model, plan_fit
from .metrics import given_parameter
from .parameters import (
    METRIC_PARAMS,
    PARAMETERS,
    Parameter,
    ParameterError,
    check_names,
    check_parameters,
    learned_by,
    with_defaults,
)
from .saving import load_fitted, model_source, model_url, reserved_model, save_fitted
from .scaling import learn_preparation

__all__ = [
    "LPE",
    "METRIC_PARAMS",
    "PARAMETERS",
    "Checkpoint",
    "Fitted",
    "Parameter",
    "ParameterError",
    "check_calibration",
    "check_names",
    "check_parameters",
    "fit_model",
    "fitted_of",
    "given_parameter",
    "learn_preparation",
    "learned_by",
    "load",
    "load_fitted",
    "model_source",
    "model_url",
    "plan_fit",
    "reserved_model",
    "save_fitted",
    "score",
    "with_defaults",
]
