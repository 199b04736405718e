from .checkpoint import Checkpoint
from .detector import (
    LPE,
    calibration_of,
    fit_resumably,
    learnt_columns,
    load,
    load_with_source,
    measure_blocks,
    measure_of,
    reference_of,
    save_model,
    score,
    table_to_score,
)
from .division import Division, divide_in_size
from .metrics import given_parameter, graph_params
from .parameters import (
    METRIC_PARAMS,
    PARAMETERS,
    Parameter,
    ParameterError,
    check_names,
    check_parameters,
)
from .saving import model_source, model_url, reserved_model
from .scaling import check_determined, learn_preparation

__all__ = [
    "LPE",
    "METRIC_PARAMS",
    "PARAMETERS",
    "Checkpoint",
    "Division",
    "Parameter",
    "ParameterError",
    "calibration_of",
    "check_determined",
    "check_names",
    "check_parameters",
    "divide_in_size",
    "fit_resumably",
    "given_parameter",
    "graph_params",
    "learn_preparation",
    "learnt_columns",
    "load",
    "load_with_source",
    "measure_blocks",
    "measure_of",
    "model_source",
    "model_url",
    "reference_of",
    "reserved_model",
    "save_model",
    "score",
    "table_to_score",
]
