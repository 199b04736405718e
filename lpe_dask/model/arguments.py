"""The types of the arguments of a detector, for those who check types.

What they may be in truth is in the table `PARAMETERS`, which tests compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

#: Rows of shape (n_rows, n_features), in the units of the user -> log f1 of each.
LogDensity = Callable[[NDArray[np.float64]], NDArray[np.float64]]

GraphChoice = Literal["knn", "radius"]
AggregationChoice = Literal["kth", "mean"]
MetricChoice = Literal["euclidean", "seuclidean", "mahalanobis", "geodesic"]
ScaleChoice = Literal["minmax", "standard", "quantile", "minmax+quantile"] | None
AlgorithmChoice = Literal["auto", "brute", "pruned", "nn_descent"]
CalibrationChoice = Literal["auto", "loo", "split", "conformal"]
MissingChoice = Literal["error", "drop", "measure"]
OwnPart = Literal["scale", "neighbors", "calibration"]
SmallGroupsChoice = Literal["nan", "pool", "error"]
OutputChoice = Literal["p_values", "frame"]

#: A text would be a sequence, too: of columns of one letter.
Categorical = Literal["auto"] | list[Any] | tuple[Any, ...] | None

#: Names of columns: neither may these be a single text.
Names = list[Any] | tuple[Any, ...]

#: Places of rows.
Rows = Sequence[int] | NDArray[np.integer[Any]]

#: How CSV files are read. A dict of its own kind would refuse those that have a name.
Csv = Mapping[str, Any] | None


class FitArguments(TypedDict, total=False):
    """Those of `LPE` that a fit goes by: all but alpha and confidence."""

    n_neighbors: int | np.integer[Any] | None
    graph: GraphChoice
    radius: float | None
    aggregation: AggregationChoice
    metric: MetricChoice
    metric_params: Mapping[str, Any] | None
    scale: ScaleChoice
    categorical: Categorical
    algorithm: AlgorithmChoice
    max_p_error: float
    recheck: float | None
    calibration: CalibrationChoice
    calibration_size: int | None
    anomaly_log_density: LogDensity | None
    missing: MissingChoice
    by: Names | None
    own: Sequence[OwnPart]
    small_groups: SmallGroupsChoice
    random_state: int | None


class Arguments(FitArguments, total=False):
    """All of `LPE`."""

    alpha: float
    confidence: float | None


class ScoreArguments(Arguments, total=False):
    """Those that `score` takes by name.

    But for ``csv`` and ``storage_options``, which only paths go with, and ``output``, which
    says what it returns.
    """

    columns: Any
    exclude: Names | None
