"""The arguments of a detector: what each is, what it may be, and how it is given.

`PARAMETERS` is the one table of them. The estimator has them in its signature, which a test
compares; the options of the command line, the keys of a job file and those of a saved model
are made of it. Checks here need no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any

from lpe_dask.model.calibration_split import INCLUDES_SELF

#: What each group of rows can have for itself.
OWN = ("scale", "neighbors", "calibration")

#: metric -> the parameters that it takes.
METRIC_PARAMS = {
    "euclidean": ("w", "w_missing"),
    "seuclidean": ("V",),
    "mahalanobis": ("VI",),
    "geodesic": ("n_neighbors", "graph"),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The forms that a scale gives each column: linear, by quantiles, or both.

    Attributes
    ----------
    linear : str, optional
        What a linear form is learned from: a key of `LINEAR_FORMS` of
        `model.learning.scaling`.
    has_quantiles : bool
        Whether there is a form by quantiles.
    """

    linear: str | None = None
    has_quantiles: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        """What is added to the name of a column in each form.

        All columns come in the first form, then all in the next.
        """
        return ("", " (quantile)") if self.linear and self.has_quantiles else ("",)

    @property
    def learned(self) -> tuple[str, ...]:
        """What is learned: keys of `ROWS_FOR_LOO` of `model.validity`."""
        linear = () if self.linear is None else (self.linear,)
        return (*linear, "quantiles") if self.has_quantiles else linear


#: scale -> its forms.
SCALES: dict[str | None, Scale] = {
    None: Scale(),
    "minmax": Scale("ranges"),
    "standard": Scale("variances"),
    "quantile": Scale(has_quantiles=True),
    "minmax+quantile": Scale("ranges", has_quantiles=True),
}

#: Edges from each row if not said otherwise, as in scikit-learn's Isomap.
DEFAULT_GRAPH_NEIGHBORS = 5

#: Names of the tables `ALGORITHMS`, `GRAPHS` and `AGGREGATIONS` of `kernels`, which are not
#: imported only to read their keys.
ALGORITHM_NAMES = ("brute", "pruned", "nn_descent")
_NEIGHBOR_GRAPHS = ("directed", "union")
AGGREGATION_NAMES = ("kth", "mean")


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
    is_valid : callable, optional
        Of a value, but for None where that is the default. None: the choices say it.
    must_be : str
        What it says of values that are not valid.
    choices : tuple, optional
        The values that there are, where they are few.
    type : {int, float, dict, list}, optional
        Of an option of the command line; None: that of the choices, or there is no option.
    metavar : str, optional
        What its value is called there.
    help : str
        The description there, which says what the default does where that is None.
    """

    default: Any = None
    is_valid: Callable[[Any], bool] | None = None
    must_be: str = ""
    choices: tuple[str | None, ...] | None = None
    type: type | None = None
    metavar: str | None = None
    help: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it can be written down: on a command line, in a job, in a manifest."""
        return self.type is not None or self.choices is not None

    def problem(self, name: str, value: Any) -> str | None:
        """Return the problem of a value; None if there is none."""
        if self.choices is not None:
            # Only plain values are compared: an array would compare element by element.
            is_plain = value is None or isinstance(value, str)
            listed = ", ".join(map(repr, self.choices))
            text = f"is not available; this version has {name} in {listed}"
            is_right = is_plain and value in self.choices
        else:
            is_left_out = value is None and self.default is None
            text = f"must be {self.must_be}"
            is_right = is_left_out or self.is_valid is None or self.is_valid(value)
        return None if is_right else f"{name}={value!r} {text}."


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise `ParameterError` if the arguments of `LPE`, by name, are out of range.

    Parameters
    ----------
    parameters : dict
        All arguments, as ``LPE.get_params()`` gives them.
    """
    for name, parameter in PARAMETERS.items():
        if (problem := parameter.problem(name, parameters[name])) is not None:
            raise ParameterError(problem, name)
    for is_wrong, problem, *names in _contradictions(SimpleNamespace(**parameters)):
        if is_wrong:
            raise ParameterError(problem, *names)


def check_confidence(
    parameters: Mapping[str, Any], confidence: float, calibration: str
) -> None:
    """Raise `ParameterError` if a model cannot promise anything with a confidence.

    Parameters
    ----------
    parameters : dict
        The arguments that it was fitted with.
    confidence : float
    calibration : {"loo", "split", "conformal"}
        In use.
    """
    now = {"confidence": confidence, "calibration": calibration}
    check_parameters({**parameters, **now})


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise `ParameterError` if the value of an argument is none of the choices."""
    if (problem := Parameter(choices=choices).problem(name, value)) is not None:
        raise ParameterError(problem, name)


def _is_number(value: Any, kind: type = Real) -> bool:
    # To Python, True is a number; here it is a mistake.
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_whole(value: Any, least: int = 1) -> bool:
    return _is_number(value, Integral) and bool(value >= least)


def _is_radius(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf


def _is_level(value: Any) -> bool:
    return _is_number(value) and 0 < value < 1


def _is_confidence(value: Any) -> bool:
    return _is_number(value) and 0.5 < value < 1


def _is_categorical(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return isinstance(value, str) and value == "auto"
    is_hashable = all(isinstance(column, Hashable) for column in value)
    return is_hashable and len({*value}) == len(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and _is_categorical(value)


def _is_own(value: Any) -> bool:
    return _are_names(value) and all(part in OWN for part in value)


#: Whether arguments contradict each other, the message about it, and their names.
_Contradiction = tuple[bool, str, *tuple[str, ...]]


def _contradictions(given: Any) -> Iterator[_Contradiction]:
    """Yield all that are checked; the message of the first that holds is raised."""
    yield from _metric_contradictions(given)
    yield from _graph_contradictions(given)
    yield from _gap_contradictions(given)
    yield from _category_contradictions(given)
    yield from _by_contradictions(given)
    yield from _confidence_contradictions(given)


def _metric_contradictions(given: Any) -> Iterator[_Contradiction]:
    metric = given.metric
    params, known = dict(given.metric_params or {}), METRIC_PARAMS[metric]
    unknown = sorted(set(params) - set(known), key=str)
    yield (
        bool(unknown),
        f"metric_params has {unknown}, but metric={metric!r} takes "
        f"{' and '.join(map(repr, known))} only.",
        "metric_params", "metric",
    )  # fmt: skip
    edges, kind = params.get("n_neighbors", 1), params.get("graph", "directed")
    yield (
        not _is_whole(edges),
        f"metric_params['n_neighbors']={edges!r} must be a whole number of at least 1: the "
        f"nearest rows that each row is linked to.",
        "metric_params", "metric",
    )  # fmt: skip
    yield (
        not (isinstance(kind, str) and kind in _NEIGHBOR_GRAPHS),
        f"metric_params['graph']={kind!r} is not available; there is "
        f"{', '.join(map(repr, _NEIGHBOR_GRAPHS))}.",
        "metric_params", "metric",
    )  # fmt: skip


def _graph_contradictions(given: Any) -> Iterator[_Contradiction]:
    graph, metric, scale, radius = given.graph, given.metric, given.scale, given.radius
    yield (
        given.n_neighbors is not None and graph != "knn",
        f"n_neighbors={given.n_neighbors} is for graph='knn'; graph={graph!r} takes "
        f"radius.",
        "n_neighbors", "graph",
    )  # fmt: skip
    yield (
        radius is None and graph == "radius" and scale != "minmax",
        f"the rule for the radius holds for rows that scale='minmax' brings to [0, 1], but "
        f"scale={scale!r}. Set scale='minmax', or give radius.",
        "radius", "graph", "scale",
    )  # fmt: skip
    yield (
        radius is not None and graph != "radius",
        f"radius={radius} is for graph='radius', but graph={graph!r}.",
        "radius", "graph", "scale",
    )  # fmt: skip
    yield (
        given.anomaly_log_density is not None and SCALES[scale].has_quantiles,
        f"anomaly_log_density is compared with how dense nominal rows are in the units of "
        f"the input, which distances give where the scale is linear, but scale={scale!r}. "
        f"Set scale to None, 'minmax' or 'standard', or leave anomaly_log_density out.",
        "anomaly_log_density", "scale",
    )  # fmt: skip
    yield (
        given.aggregation != "kth" and graph != "knn",
        f"aggregation={given.aggregation!r} is for the distances of graph='knn'; "
        f"graph={graph!r} counts rows. Give graph='knn', or leave aggregation at 'kth'.",
        "aggregation", "graph",
    )  # fmt: skip
    yield (
        given.algorithm == "nn_descent" and (graph != "knn" or metric == "geodesic"),
        f"algorithm='nn_descent' is for distances to K neighbors that go straight, but "
        f"graph={graph!r} and metric={metric!r}. Give algorithm='auto', or graph='knn' and "
        f"another metric.",
        "algorithm", "graph", "metric",
    )  # fmt: skip


def _gap_contradictions(given: Any) -> Iterator[_Contradiction]:
    params = dict(given.metric_params or {})
    weight: Any = params.get("w_missing")
    is_given = "w_missing" in params
    yield (
        is_given and not (_is_number(weight) and 0 <= weight < math.inf),
        f"metric_params['w_missing']={weight!r} must be a number of at least 0: what a "
        f"squared distance grows by where one of two values is missing.",
        "metric_params",
    )  # fmt: skip
    yield (
        is_given and given.missing != "measure",
        f"metric_params['w_missing']={weight!r} is for missing='measure', but "
        f"missing={given.missing!r}. Give missing='measure' (--missing measure), or leave "
        f"w_missing out.",
        "metric_params", "missing",
    )  # fmt: skip


def _category_contradictions(given: Any) -> Iterator[_Contradiction]:
    has_rule = given.graph == "radius" and given.radius is None
    has_density = given.anomaly_log_density is not None
    measures_gaps = given.missing == "measure"
    for name, is_refused, remedy in (
        ("metric", given.metric != "euclidean", "metric='euclidean', with a scale"),
        ("radius", has_rule, "a radius: the rule is for numbers"),
        ("algorithm", given.algorithm == "nn_descent", "an exact algorithm ('auto')"),
        ("anomaly_log_density", has_density, "no density: it is of numbers"),
    ):
        for other, is_given in (
            ("categorical", given.categorical),
            ("missing", measures_gaps),
        ):
            value = getattr(given, other)
            yield (
                bool(is_given) and is_refused,
                f"{other}={value!r} does not go with {name}={getattr(given, name)!r}. Give "
                f"{remedy}, or leave out {other}.",
                other, name,
            )  # fmt: skip


def _by_contradictions(given: Any) -> Iterator[_Contradiction]:
    by, given_by = given.by, f"by={given.by!r} (--by)"
    for name, refused, remedy in (
        ("algorithm", "nn_descent", "an exact algorithm ('auto')"),
        ("metric", "geodesic", "another metric, such as 'euclidean'"),
    ):
        yield (
            by is not None and getattr(given, name) == refused,
            f"{given_by} does not go with {name}={refused!r}: groups are searched each by "
            f"itself, which that does not do. Give {remedy}, or leave out by.",
            "by", name,
        )  # fmt: skip
    categorical = given.categorical
    in_both = [] if isinstance(categorical, str) else [*(categorical or ())]
    in_both = [column for column in in_both if column in (by or ())]
    yield (
        bool(in_both),
        f"by={by!r} and categorical={categorical!r} both name {in_both}, but columns that "
        f"divide rows into groups are not measured. Leave them out of one of the two "
        f"(--by, --categorical).",
        "by", "categorical",
    )  # fmt: skip
    is_idle = given.scale is None and given.missing != "measure"
    yield (
        by is not None and {*given.own} == {"scale"} and is_idle,
        f"own={given.own!r}, with scale=None, leaves groups nothing of their own. Give a "
        f"scale (--scale), or more in own (--own).",
        "own", "scale",
    )  # fmt: skip
    for name, is_default in (
        ("own", {*given.own} == {*OWN}),
        ("small_groups", given.small_groups == "nan"),
    ):
        yield (
            by is None and not is_default,
            f"{name}={getattr(given, name)!r} is about groups, but by=None. Name the "
            f"columns that divide rows into groups (by=, --by), or leave out {name}.",
            name, "by",
        )  # fmt: skip


def _confidence_contradictions(given: Any) -> Iterator[_Contradiction]:
    text = f"confidence={given.confidence!r} (--confidence)"
    is_given = given.confidence is not None
    for name, is_refused, why, remedy in (
        (
            "calibration", given.calibration in ("loo", "split"),
            "of which nothing is known for one nominal set: its statistics depend on each "
            "other", "calibration='conformal', or 'auto', which then is that, to the fit",
        ),
        (
            "own", "calibration" not in given.own,
            "with which nothing is promised for a group",
            "groups their own calibration (own=, --own)",
        ),
        (
            "small_groups", given.small_groups == "pool",
            "with which nothing is promised for rows of small groups",
            "small_groups='nan' or 'error' (--small-groups)",
        ),
    ):  # fmt: skip
        yield (
            is_given and is_refused,
            f"{text} does not go with {name}={getattr(given, name)!r}, {why}. Give "
            f"{remedy}, or leave out confidence.",
            "confidence", name,
        )  # fmt: skip


_LEVEL = "a number between 0 and 1, both excluded"
_NATURAL = "a whole number of at least 1, or None"

#: The arguments of `LPE`, in the order of its signature.
PARAMETERS = {
    "n_neighbors": Parameter(
        is_valid=_is_whole,
        must_be=f"{_NATURAL} for the rule round(n**0.4)",
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
        is_valid=_is_radius,
        must_be="a finite number of at least 0, or None for the rule",
        type=float,
        metavar="R",
        help="Radius for --graph radius, in scaled units.  [default: a rule, with "
        "--scale minmax]",
    ),
    "aggregation": Parameter(
        "kth",
        choices=AGGREGATION_NAMES,
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
        is_valid=lambda value: isinstance(value, Mapping),
        must_be="a dict from names to values, or None",
        type=dict,
        metavar="JSON",
        help="""Parameters of the metric, such as '{"n_neighbors": 8}' for geodesic or """
        """'{"w": [1, 0.5]}' for weights.  [default: learned from the nominal rows]""",
    ),
    "scale": Parameter(
        choices=tuple(SCALES),
        help="Bring the columns to one scale, learned from the nominal rows: start with "
        "standard, unless all have one unit; quantile: the share of nominal rows below.",
    ),
    "categorical": Parameter(
        is_valid=_is_categorical,
        must_be="a list of column names, none twice (for an array positions, for one "
        "column ['protocol'], for an Index list(index)), 'auto' for all columns of text, "
        "categories or booleans, or None",
        type=list,
        metavar="A,B|auto",
        help="Columns of text, categories, booleans or whole numbers that are compared as "
        "equal or different: each that differs adds 1 to the squared distance. auto: all "
        "columns of text, categories or booleans.  [default: all columns are numbers]",
    ),
    "alpha": Parameter(
        0.05,
        is_valid=_is_level,
        must_be=_LEVEL,
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
        is_valid=_is_level,
        must_be=_LEVEL,
        type=float,
        metavar="ERROR",
        help="With nn_descent, certify that p-values are off by no more than this, but for "
        "1 % of the rows; stop where that cannot be certified.",
    ),
    "recheck": Parameter(
        is_valid=_is_level,
        must_be=_LEVEL,
        type=float,
        metavar="LEVEL",
        help="With nn_descent, measure rows with p-values up to this exactly.  [default: "
        "alpha]",
    ),
    "calibration": Parameter(
        "auto",
        choices=("auto", *INCLUDES_SELF),
        help="Which nominal rows p-values compare with: all, each left out; half of them; "
        "or a part measured like new rows, which is valid for any number of rows. auto: "
        "loo where nothing is learned from the rows, or from many; else conformal.",
    ),
    "calibration_size": Parameter(
        is_valid=_is_whole,
        must_be=_NATURAL,
        type=int,
        metavar="M",
        help="Measure only so many nominal rows, drawn at random.  [default: all of them, "
        "or half; 20,000 at most with nn_descent]",
    ),
    "anomaly_log_density": Parameter(  # Python only
        is_valid=callable,
        must_be="a function from rows, an array of shape (n_rows, n_features), to the "
        "logarithm of the density at each, or None",
    ),
    "missing": Parameter(
        "error",
        choices=("error", "drop", "measure"),
        help="What to do about nominal rows with NaN or inf; measure: a missing number "
        "counts as the median, and as missing, in new rows, too.",
    ),
    "by": Parameter(
        is_valid=_are_names,
        must_be="a list of at least one column, each once, or None",
        type=list,
        metavar="A,B",
        help="Columns whose values divide rows into groups, each with a normal of its own; "
        "they are not measured.",
    ),
    "own": Parameter(
        OWN,
        is_valid=_is_own,
        must_be=f"some of {', '.join(OWN)}, each once",
        type=list,
        metavar="A,B",
        help="What each group has for itself: scale, neighbors, calibration.  "
        "[default: all three]",
    ),
    "small_groups": Parameter(
        "nan",
        choices=("nan", "pool", "error"),
        help="What to do about rows of groups that are too small, or unknown: no p-value; "
        "compare them with all nominal rows; or an error.",
    ),
    "confidence": Parameter(
        is_valid=_is_confidence,
        must_be="a number between 0.5 and 1, both excluded, such as 0.95, or None",
        type=float,
        metavar="LEVEL",
        help="Keep alpha with this probability for these nominal rows, not on average over "
        "such sets; flags fewer rows, with calibration conformal.  [default: on average]",
    ),
    "random_state": Parameter(
        is_valid=partial(_is_whole, least=0),
        must_be="a whole number of at least 0, or None",
        type=int,
        metavar="SEED",
        help="Seed for drawing nominal rows.  [default: a random one; with --calibration "
        "auto always 0]",
    ),
}


def checked_parameters(
    arguments: Mapping[str, Any], function: str = "LPE"
) -> dict[str, Any]:
    """Return all arguments of `LPE`, those not given as their defaults say.

    Parameters
    ----------
    arguments : dict
        Those given, by name.
    function : str
        What they were given to.

    Raises
    ------
    TypeError
        For one that `LPE` does not have.
    ParameterError
        As `check_parameters`.
    """
    reject_unknown_arguments(function, arguments)
    arguments = as_lists(arguments)
    defaults = {name: known.default for name, known in PARAMETERS.items()}
    parameters = defaults | dict(arguments)
    check_parameters(parameters)
    return parameters


#: Parameters that decide about results only where neighbors may be missed.
SEARCH_PARAMETERS = ("algorithm", "max_p_error", "recheck")

#: Those that matter only where rows are divided into groups.
GROUP_PARAMETERS = ("by", "own", "small_groups")


def exact_level(parameters: Mapping[str, Any]) -> float:
    """Return up to which p-value rows are measured exactly where neighbors are missed."""
    recheck = parameters["recheck"]
    return float(parameters["alpha"] if recheck is None else recheck)


def as_lists(arguments: Mapping[str, Any]) -> Any:
    """Return arguments of `LPE` with a list where ``by`` is the name of one column."""
    by = arguments.get("by")
    return {**arguments, "by": [by]} if isinstance(by, str) else arguments


def reject_unknown_arguments(function: str, arguments: Mapping[str, Any]) -> None:
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
