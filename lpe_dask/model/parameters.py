"""The arguments of a detector: what each is, what it may be, and how it is given.

`PARAMETERS` is the one table of them. The estimator has them in its signature, which a test
compares; the options of the command line, the keys of a job file and those of a saved model
are made of it. Checks here need no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from numbers import Integral, Real
from typing import Any

from lpe_dask.pvalues import COUNTS_ITSELF, check_level, what_is_learned
from lpe_dask.tables import places_of

#: metric -> the parameters that it takes.
METRIC_PARAMS = {
    "euclidean": ("w",),
    "seuclidean": ("V",),
    "mahalanobis": ("VI",),
    "geodesic": ("n_neighbors", "graph"),
}

#: scale -> the forms that it gives each column, as what is added to its name. All columns
#: come in the first form, then all in the next.
FORMS: dict[str | None, tuple[str, ...]] = {
    None: ("",),
    "minmax": ("",),
    "standard": ("",),
    "quantile": ("",),
    "minmax+quantile": ("", " (quantile)"),
}

#: Edges from each row if not said otherwise, as in scikit-learn's Isomap.
DEFAULT_GRAPH_NEIGHBORS = 5

#: Names of `kernels.ALGORITHMS`, of `kernels.GRAPHS` and of `kernels.AGGREGATIONS`, which
#: are not imported only to read their keys.
ALGORITHM_NAMES = ("brute", "pruned", "nn_descent")
_NEIGHBOR_GRAPHS = ("directed", "union")
_AGGREGATIONS = ("kth", "mean")


class ParameterError(ValueError):
    """An argument is out of range, alone or beside others.

    Attributes
    ----------
    names : tuple of str
        The argument that is refused, and those that it does not go with.
    """

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of `LPE`.

    Attributes
    ----------
    default : object
    check : callable, optional
        Raises ValueError for a value that is out of range, from its name and the value.
        None: the choices say it.
    choices : tuple, optional
        The values that there are, where they are few.
    type : {int, float, dict, list}, optional
        Of an option of the command line; None: that of the choices, or there is no option.
    metavar : str, optional
        What its value is called there.
    help : str
        The description there, which tells what the default does where that is None.
    """

    default: Any = None
    check: Callable[[str, Any], None] | None = None
    choices: tuple[str | None, ...] | None = None
    type: type | None = None
    metavar: str | None = None
    help: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it can be written down: on a command line, in a job, in a manifest."""
        return self.type is not None or self.choices is not None


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise `ParameterError` if the arguments of `LPE`, by name, are out of range.

    Parameters
    ----------
    parameters : dict
        All arguments, as ``LPE.get_params()`` gives them.
    """
    for name, parameter in PARAMETERS.items():
        with _about(name):
            if parameter.choices is not None:
                _check_choice(name, parameters[name], parameter.choices)
            if parameter.check is not None:
                parameter.check(name, parameters[name])
    graph, radius, scale = (parameters[name] for name in ("graph", "radius", "scale"))
    with _about("metric_params", "metric"):
        _check_metric_params(parameters["metric"], parameters["metric_params"])
    with _about("n_neighbors", "graph"):
        _check_has_neighbors(parameters["n_neighbors"], graph)
    with _about("radius", "graph", "scale"):
        _check_has_radius(radius, graph, scale)
    with _about("anomaly_log_density", "scale"):
        _check_has_volumes(parameters["anomaly_log_density"], scale)
    with _about("aggregation", "graph"):
        _check_aggregates(parameters["aggregation"], graph)
    with _about("algorithm", "graph", "metric"):
        _check_approximate(parameters["algorithm"], graph, parameters["metric"])
    if has_categories(parameters):
        _check_goes_with_categories(parameters)


@contextmanager
def _about(*names: str) -> Iterator[None]:
    """Name the arguments that an error is about."""
    try:
        yield
    except ValueError as error:
        raise ParameterError(str(error), *names) from None


def _check_choice(name: str, value: Any, allowed: Collection[Any]) -> None:
    # Only plain values are compared: an array would compare element by element.
    if not (value is None or isinstance(value, str)) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(
            f"{name}={value!r} is not available; this version has {name} in {listed}."
        )


def _is_number(value: Any, kind: type = Real) -> bool:
    # To Python, True is a number; here it is a mistake.
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_whole(name: str, value: Any, least: int, otherwise: str) -> None:
    if value is not None and not (_is_number(value, Integral) and value >= least):
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least {least}, or None"
            f"{otherwise}."
        )


def _check_recheck(name: str, value: Any) -> None:
    if value is not None:
        check_level(name, value)


def _check_radius(name: str, radius: Any) -> None:
    if radius is not None and not (_is_number(radius) and 0 <= radius < math.inf):
        raise ValueError(
            f"{name}={radius!r} must be a finite number of at least 0, or None for the "
            f"rule."
        )


def _check_mapping(name: str, mapping: Any) -> None:
    if mapping is not None and not isinstance(mapping, Mapping):
        raise ValueError(
            f"{name}={mapping!r} must be a dict from names to values, or None."
        )


def _check_categorical(name: str, value: Any) -> None:
    is_list = isinstance(value, list | tuple)
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, Iterable) and not isinstance(value, list | tuple | str):
        raise ValueError(
            f"{name}={value!r} must be a list of column names, but it is of type "
            f"{type(value).__name__}. Make a list of it: {name}=list(...)."
        )
    is_known = is_list and all(isinstance(column, Hashable) for column in value)
    if not is_known or any(len(same) > 1 for same in places_of(value).values()):
        raise ValueError(
            f"{name}={value!r} must be a list of column names, none twice (for an array "
            f"positions; for a single column ['protocol']), 'auto' for all columns of "
            f"text, categories or booleans, or None."
        )


def _check_log_density(name: str, log_density: Any) -> None:
    if log_density is not None and not callable(log_density):
        raise ValueError(
            f"{name}={log_density!r} must be a function from rows, an array "
            f"of shape (n_rows, n_features), to the logarithm of the density at each, or "
            f"None."
        )


# Arguments together


def _check_has_neighbors(n_neighbors: Any, graph: str) -> None:
    if n_neighbors is not None and graph != "knn":
        raise ValueError(
            f"n_neighbors={n_neighbors} is for graph='knn'; graph={graph!r} takes radius."
        )


def _check_aggregates(aggregation: str, graph: str) -> None:
    if aggregation != "kth" and graph != "knn":
        raise ValueError(
            f"aggregation={aggregation!r} is for the distances of graph='knn'; "
            f"graph={graph!r} counts rows. Give graph='knn', or leave aggregation at 'kth'."
        )


def _check_has_radius(radius: Any, graph: str, scale: str | None) -> None:
    if radius is None and graph == "radius" and scale != "minmax":
        raise ValueError(
            f"the rule for the radius holds for rows that scale='minmax' brings to [0, 1], "
            f"but scale={scale!r}. Set scale='minmax', or give radius."
        )
    if radius is not None and graph != "radius":
        raise ValueError(f"radius={radius} is for graph='radius', but graph={graph!r}.")


def _check_has_volumes(log_density: Any, scale: str | None) -> None:
    if log_density is not None and scale is not None and "quantile" in scale:
        raise ValueError(
            f"anomaly_log_density is compared with how dense nominal rows are in the units "
            f"of the input, which distances tell where the scale is linear, but scale="
            f"{scale!r}. Set scale to None, 'minmax' or 'standard', or leave "
            f"anomaly_log_density out."
        )


def _check_metric_params(metric: str, metric_params: Mapping[str, Any] | None) -> None:
    params, names = dict(metric_params or {}), METRIC_PARAMS[metric]
    unknown = sorted(set(params) - set(names), key=str)
    if unknown:
        listed = " and ".join(map(repr, names))
        raise ValueError(
            f"metric_params has {unknown}, but metric={metric!r} takes {listed} only."
        )
    if metric == "geodesic":
        _check_graph_params(params)


def _check_graph_params(params: dict[str, Any]) -> None:
    n_neighbors = params.get("n_neighbors", DEFAULT_GRAPH_NEIGHBORS)
    if not _is_number(n_neighbors, Integral) or n_neighbors < 1:
        raise ValueError(
            f"metric_params['n_neighbors']={n_neighbors!r} must be a whole number of at "
            f"least 1: the nearest rows that each row is linked to."
        )
    graph = params.get("graph", "directed")
    if not isinstance(graph, str) or graph not in _NEIGHBOR_GRAPHS:
        listed = ", ".join(map(repr, _NEIGHBOR_GRAPHS))
        raise ValueError(
            f"metric_params['graph']={graph!r} is not available; there is {listed}."
        )


def _check_approximate(algorithm: str, graph: str, metric: str) -> None:
    if algorithm == "nn_descent" and (graph != "knn" or metric == "geodesic"):
        raise ValueError(
            f"algorithm='nn_descent' is for distances to K neighbors that go straight, "
            f"but graph={graph!r} and metric={metric!r}. Give algorithm='auto', or "
            f"graph='knn' and another metric."
        )


def has_categories(parameters: Mapping[str, Any]) -> bool:
    """Return whether there are, or may be, categorical columns."""
    return bool(parameters["categorical"])


def _check_goes_with_categories(parameters: Mapping[str, Any]) -> None:
    """Raise `ParameterError` for what needs columns that are all numbers."""
    metric, radius = parameters["metric"], parameters["radius"]
    has_rule = parameters["graph"] == "radius" and radius is None
    for name, is_refused, remedy in (
        ("metric", metric != "euclidean", "metric='euclidean', with a scale"),
        ("radius", has_rule, "a radius: the rule is for rows of numbers"),
        (
            "algorithm",
            parameters["algorithm"] == "nn_descent",
            "an exact algorithm ('auto', 'brute' or 'pruned')",
        ),
        (
            "anomaly_log_density",
            parameters["anomaly_log_density"] is not None,
            "columns of numbers only",
        ),
    ):
        if is_refused:
            raise ParameterError(
                f"categorical={parameters['categorical']!r} does not go with "
                f"{name}={parameters[name]!r}. Give {remedy}, or leave out categorical.",
                "categorical",
                name,
            )


#: The arguments of `LPE`, in the order of its signature.
PARAMETERS = {
    "n_neighbors": Parameter(
        check=partial(_check_whole, least=1, otherwise=" for the rule round(n**0.4)"),
        type=int,
        metavar="K",
        help="Measure the distance to the K-th nearest nominal row, or to the K nearest.  "
        "[default: round(n^0.4) for n nominal rows]",
    ),
    "graph": Parameter(
        "knn",
        choices=("knn", "radius"),
        help="Measure the distance to K neighbors, or count those within a radius.",
    ),
    "radius": Parameter(
        check=_check_radius,
        type=float,
        metavar="R",
        help="Radius for --graph radius, in scaled units.  [default: a rule, with "
        "--scale minmax]",
    ),
    "aggregation": Parameter(
        "kth",
        choices=_AGGREGATIONS,
        help="Compare the distance to the K-th neighbor, or the mean of the distances to "
        "the K nearest.",
    ),
    "metric": Parameter(
        "euclidean",
        choices=tuple(METRIC_PARAMS),
        help="Distance between rows, after scaling; geodesic goes along a graph of nearest "
        "nominal rows.",
    ),
    "metric_params": Parameter(
        check=_check_mapping,
        type=dict,
        metavar="JSON",
        help="""Parameters of the metric, such as '{"n_neighbors": 8}' for geodesic or """
        """'{"w": [1, 0.5]}' for weights.  [default: learned from the nominal rows]""",
    ),
    "scale": Parameter(
        choices=tuple(FORMS),
        help="Bring the columns to one scale, learned from the nominal rows: start with "
        "standard, unless all have one unit; quantile: the share of nominal rows below.",
    ),
    "categorical": Parameter(
        check=_check_categorical,
        type=list,
        metavar="A,B|auto",
        help="Columns of text, categories, booleans or whole numbers that are compared as "
        "equal or different: each that differs adds 1 to the squared distance. auto: all "
        "columns of text, categories or booleans.  [default: all columns are numbers]",
    ),
    "alpha": Parameter(
        0.05,
        check=check_level,
        type=float,
        metavar="LEVEL",
        help="Flag rows with a p-value of at most this; nominal rows are flagged at about "
        "this rate.",
    ),
    "algorithm": Parameter(
        "auto",
        choices=("auto", *ALGORITHM_NAMES),
        help="How neighbors are searched. Results are the same, but for nn_descent, which "
        "misses neighbors: see --max-p-error.",
    ),
    "max_p_error": Parameter(
        0.01,
        check=check_level,
        type=float,
        metavar="ERROR",
        help="With nn_descent, certify that p-values are off by no more than this, but for "
        "1 % of the rows; stop where that cannot be certified.",
    ),
    "recheck": Parameter(
        check=_check_recheck,
        type=float,
        metavar="LEVEL",
        help="With nn_descent, measure rows with p-values up to this exactly.  [default: "
        "alpha]",
    ),
    "calibration": Parameter(
        "auto",
        choices=("auto", *COUNTS_ITSELF),
        help="Which nominal rows p-values compare with: all, each left out; half of them; "
        "or a part measured like new rows, which is valid for any number of rows. auto: "
        "loo where nothing is learned from the rows, or from many; else conformal.",
    ),
    "calibration_size": Parameter(
        check=partial(_check_whole, least=1, otherwise=""),
        type=int,
        metavar="M",
        help="Measure only so many nominal rows, drawn at random.  [default: all of them, "
        "or half; 20,000 at most with nn_descent]",
    ),
    "anomaly_log_density": Parameter(check=_check_log_density),  # a function: Python only
    "missing": Parameter(
        "error",
        choices=("error", "drop"),
        help="What to do about nominal rows with NaN or inf.",
    ),
    "random_state": Parameter(
        check=partial(_check_whole, least=0, otherwise=""),
        type=int,
        metavar="SEED",
        help="Seed for drawing nominal rows.  [default: a random one; with --calibration "
        "auto always 0]",
    ),
}


def with_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of `LPE`, those not given as their defaults say."""
    check_names("LPE", arguments)
    return {name: known.default for name, known in PARAMETERS.items()} | dict(arguments)


def learned_by(parameters: Mapping[str, Any]) -> str | None:
    """Return what a fit learns from the nominal rows; see `validity.what_is_learned`."""
    return what_is_learned(*(parameters[n] for n in ("scale", "metric", "metric_params")))


#: Parameters that decide about results only where neighbors may be missed.
ABOUT_SEARCH = ("algorithm", "max_p_error", "recheck")


def recheck_level(parameters: Mapping[str, Any]) -> float:
    """Return up to which p-value rows are measured exactly where neighbors are missed."""
    recheck = parameters["recheck"]
    return float(parameters["alpha"] if recheck is None else recheck)


def check_names(function: str, arguments: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments of a function that are none of `LPE`."""
    unknown = sorted(set(arguments) - set(PARAMETERS))
    if "contamination" in unknown:
        raise TypeError(
            f"{function}() got contamination={arguments['contamination']!r}, but the share "
            f"of anomalies need not be known: p-values decide by alpha, the share of "
            f"nominal rows that may be flagged. Give alpha=..., or none."
        )
    if unknown:
        raise TypeError(
            f"{function}() got unexpected arguments {unknown}; arguments of LPE are "
            f"{sorted(PARAMETERS)}."
        )


def neighbors_by_rule(n_reference: int) -> int:
    """Return K = round(n**0.4), kept in [1, n - 1].

    Examples
    --------
    >>> neighbors_by_rule(2), neighbors_by_rule(1000), neighbors_by_rule(1_000_000)
    (1, 16, 251)
    """
    rounded = round(_power(n_reference, 0.4))
    return max(1, min(n_reference - 1, rounded))


def radius_by_rule(n_reference: int, n_features: int) -> float:
    r"""Return the paper's radius for n nominal rows in the unit cube of d dimensions.

    .. math:: \epsilon = m^{-3/(5d)} \sqrt{\frac{d}{2 \pi e}}

    with m = n: the lemma's m is the number of points that neighbors are counted among.

    Examples
    --------
    >>> round(radius_by_rule(1000, 2), 4)
    0.0431
    """
    return float(
        _power(n_reference, -3 / (5 * n_features))
        * math.sqrt(n_features / (2 * math.pi * math.e))
    )


def _power(base: int, exponent: float) -> float:
    """Return a power rounded once: that of a C library may differ between processors."""
    return float(Context(prec=40).power(Decimal(base), Decimal(exponent)))
