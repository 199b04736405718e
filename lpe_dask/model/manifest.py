"""The manifest of a model on disk: what it is, and which files belong to it.

    MODEL/manifest.json             written last, and replaced as a whole
    MODEL/data-<hex>/*.parquet      the numbers, of which it holds the hashes

A manifest has a hash of its own, so that a change of it is noticed, too. What it says is
checked as if a stranger had written it: kernels trust their input. The names in it are
those of the fields of dataclasses: another name there is another format.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Annotated, Any, Literal, LiteralString, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    Field,
    GetPydanticSchema,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from lpe_dask.kernels import AGGREGATIONS, ALGORITHMS, Basis
from lpe_dask.model.certificate import Certificate, Quality
from lpe_dask.model.dataclass_json import Section, checked_type, to_json
from lpe_dask.model.division import Division
from lpe_dask.model.parameters import (
    PARAMETERS,
    check_parameters,
)
from lpe_dask.pvalues import COUNTS_ITSELF
from lpe_dask.search import (
    Knots,
    NeighborGraphParams,
    Preparation,
    Scaling,
    Space,
    Statistic,
    sample_neighbors,
)
from lpe_dask.storage import Folder
from lpe_dask.tables import (
    MOST_LEVELS,
    NO_MINIMA,
    Categories,
    Minima,
    Ranges,
    name_from_json,
    name_to_json,
    places_of,
)

#: The version of the format that is written and read.
FORMAT = 7

#: Name of the file, and of those beside the blocks' own.
MANIFEST_NAME = "manifest.json"
CALIBRATION_NAME, NOMINAL_NAME = "calibration.parquet", "nominal.parquet"
STARTS_NAME, EDGES_NAME = "graph-starts.parquet", "graph-edges.parquet"

#: Most bytes of a manifest. It has 40 KiB for each column with scale="quantile", a few
#: hundred bytes for each block, and else less.
MOST_BYTES = 2**26

#: What the folders of the other files are called.
DATA_PATTERN = "data-[0-9a-f]{12}"

#: Largest exponent of a power of 2 by which a basis moves rows; see `kernels.basis`.
_MOST_EXPONENT = 1000

#: The same of a step between codes, which float32 holds with every code.
_MOST_STEP_EXPONENT = 80

#: The kind of the error about what another version has written.
_OTHER: LiteralString = "other_version"


class OtherVersionError(ValueError):
    """A manifest that another version of the package has written."""


def _check_parameters(given: dict[str, Any]) -> dict[str, Any]:
    known = {name for name, parameter in PARAMETERS.items() if parameter.is_option}
    if unknown := sorted(set(given) - known):
        text: LiteralString = "LPE has no {names} in this version"
        raise PydanticCustomError(_OTHER, text, {"names": unknown[:3]})
    if missing := sorted(known - set(given)):
        raise ValueError(f"these arguments of LPE are missing: {missing[:3]}")
    categorical = columns_from_json(given["categorical"])
    check_parameters(given | {"categorical": categorical, "anomaly_log_density": None})
    return given


def columns_to_json(columns: Any) -> Any:
    """Return the names of columns in a list, or something else, in a form for JSON."""
    is_list = isinstance(columns, list | tuple)
    return list(map(name_to_json, columns)) if is_list else columns


def columns_from_json(content: Any) -> Any:
    """Return what `columns_to_json` has converted."""
    return list(map(name_from_json, content)) if isinstance(content, list) else content


# Checks of dataclasses: what their annotations do not say


def _check_division(division: Division) -> None:
    n_rows, n_drawn, seed = division.n_rows, division.n_drawn, division.random_state
    if division.kind not in COUNTS_ITSELF:
        raise ValueError(f"there is no calibration {division.kind!r}")
    if n_drawn is None and division.kind != "loo":
        raise ValueError("a division needs the rows that are drawn")
    if not 1 <= (1 if n_drawn is None else n_drawn) <= n_rows:
        raise ValueError("it draws no rows, or more than there are")
    if seed is not None and seed < 0:
        raise ValueError("random_state is less than 0")


def _check_statistic(statistic: Statistic) -> None:
    n_neighbors, radius = statistic.n_neighbors, statistic.radius
    if (n_neighbors is None) == (radius is None):
        raise ValueError("it needs n_neighbors or radius, and not both")
    if (1 if n_neighbors is None else n_neighbors) < 1 or (radius or 0.0) < 0:
        raise ValueError("n_neighbors is less than 1, or radius less than 0")
    if statistic.aggregation not in AGGREGATIONS:
        raise ValueError(f"there is no aggregation {statistic.aggregation!r}")
    if radius is not None and statistic.aggregation != "kth":
        raise ValueError("a mean is one of distances to n_neighbors rows")
    if (statistic.enough, statistic.bound) != (None, None):
        raise ValueError("it is not the statistic itself that is asked for")


def _check_categories(categories: Categories) -> None:
    """Demand the levels of each column, as they are sorted for codes."""
    if len(categories.levels) != len(categories.places):
        raise ValueError("there are not as many levels as categorical columns")
    for levels in categories.levels:
        if not 1 <= len(levels) <= MOST_LEVELS:
            raise ValueError(f"a column has no levels, or more than {MOST_LEVELS}")
        if len(set(map(type, levels))) > 1:
            raise ValueError("the levels of a column are of more than one type")
        _check_ascending(levels, "levels of a column")


def _check_minima(minima: Minima) -> None:
    _check_ascending(minima.places, "columns with minima")
    if not len(minima.places) == len(minima.values) == len(minima.digits):
        raise ValueError("there are not as many minima as columns with such")
    if min((*minima.places, *minima.digits), default=0) < 0:
        raise ValueError("a column with a minimum is not there")


def _check_ranges(ranges: Ranges) -> None:
    if len(ranges.low) != len(ranges.high):
        raise ValueError("low and high differ in length")
    pairs = zip(ranges.low, ranges.high, strict=True)
    if any(math.isinf(low) or not low <= high < math.inf for low, high in pairs):
        raise ValueError("a largest value is less than the least one, or not finite")
    if min((n for of_column in ranges.rare for n in of_column), default=0) < 0:
        raise ValueError("less than no category occurs once or twice")


def _check_knots(knots: Knots) -> None:
    """Demand that heights ascend with the values, and that nothing is divided by 0."""
    if not 1 <= knots.n_sampled < 2**31:
        raise ValueError("n_sampled is out of range")
    if list(map(len, knots.values)) != list(map(len, knots.ranks)):
        raise ValueError("values and ranks differ in length")
    for values, ranks in zip(knots.values, knots.ranks, strict=True):
        if values.ndim > 1 or len(values) == 0:
            raise ValueError("a column has no knots")
        for ascending in (values, ranks):
            _check_ascending(ascending.tolist(), "values or ranks of a column")
        if ranks[0] < 0 or ranks[-1] > 2 * knots.n_sampled:
            raise ValueError("a rank is less than 0, or more than twice the sampled rows")
        width = float(values[-1]) - float(values[0])
        if len(values) > 1 and not (width < math.inf and 1 / width < math.inf):
            raise ValueError("the range of a column is no usable float64")


def _check_scaling(scaling: Scaling) -> None:
    n_scales = (scaling.factor is not None) + (scaling.divisor is not None)
    if n_scales != (scaling.shift is not None):
        raise ValueError("it needs a shift with a factor or a divisor, or none at all")
    if scaling.divisor is not None:
        if scaling.knots is not None:
            raise ValueError("knots go with a factor, or alone")
        if (scaling.divisor == 0).any():
            raise ValueError("a divisor is 0")
    if scaling.has_both and scaling.knots is None:
        raise ValueError("both forms need knots")


def _check_preparation(preparation: Preparation) -> None:
    _check_ascending(preparation.categorical, "categorical columns")
    if min(preparation.categorical, default=0) < 0:
        raise ValueError("a categorical column is not there")
    shift, matrix = preparation.scaling.shift, preparation.matrix
    if shift is not None and matrix is None:
        raise ValueError("a shift goes with a matrix")
    factor, weights = preparation.factor, preparation.weights
    if matrix is not None and (factor is not None or weights is not None):
        raise ValueError("weights do not go with a matrix")
    if factor is not None and not all(map(_is_factor, factor)):
        raise ValueError("the factors are not a power of 2 or 0 each")
    _check_weights(weights, len(preparation.categorical))


def _check_basis(basis: Basis) -> None:
    """Demand that no point overflows, and that distances stay what they are."""
    if basis.center.ndim > 1 or len(basis.center) == 0:
        raise ValueError("the center is no vector")
    if abs(basis.exponent) > _MOST_EXPONENT:
        raise ValueError("the exponent is out of range")
    largest = float(np.abs(basis.center).max())
    if math.frexp(largest)[1] + basis.exponent > _MOST_EXPONENT:
        raise ValueError("the center is too far out")
    if basis.rotation is not None:
        _check_shape(basis.rotation, len(basis.center), len(basis.center))
        if not _is_orthonormal(basis.rotation):
            raise ValueError("the rotation is not orthonormal")
    _check_weights(basis.weights, len(basis.steps))
    if basis.steps.ndim > 1 or not all(map(_is_step, basis.steps)):
        raise ValueError("the steps of codes are not a moderate power of 2 each")


def _check_algorithm(space: Space) -> None:
    if space.algorithm not in ALGORITHMS:
        raise ValueError(f"there is no algorithm {space.algorithm!r}")


def _check_graph(params: NeighborGraphParams) -> None:
    if params.n_neighbors < 1 or params.graph not in ("directed", "union"):
        raise ValueError("it is no neighbor graph")


def _check_quality(quality: Quality) -> None:
    if not (0 < quality.max_p_error < 1 and 0 < quality.recheck < 1 and quality.seed >= 0):
        raise ValueError("no approximate search can have this quality")


def _check_certificate(certificate: Certificate) -> None:
    if not (0 <= certificate.bound <= 1 and certificate.audited >= 0):
        raise ValueError("the bound is no share, or less than no row was audited")


_CHECKS: dict[type, Callable[[Any], None]] = {
    Division: _check_division, Statistic: _check_statistic, Categories: _check_categories,
    Minima: _check_minima, Ranges: _check_ranges, Knots: _check_knots,
    Scaling: _check_scaling,
    Preparation: _check_preparation, Basis: _check_basis,
    Space: _check_algorithm, NeighborGraphParams: _check_graph,
    Quality: _check_quality, Certificate: _check_certificate,
}  # fmt: skip


def _check_ascending(values: Sequence[Any], what: str) -> None:
    if list(values) != sorted(set(values)):
        raise ValueError(f"the {what} are not ascending")


def _check_weights(weights: NDArray[np.float64] | None, n_codes: int) -> None:
    """Demand weights of numbers from 1 to 4, as filters rely on, and of codes."""
    if weights is None:
        return
    if weights.ndim > 1 or (weights < 0).any():
        raise ValueError("the weights are no vector, or some are less than 0")
    numbers = weights[: len(weights) - n_codes]
    if not ((numbers >= 1) & (numbers < 4)).all():
        raise ValueError("the weights of numbers are not from 1 to 4")


def _check_shape(array: NDArray[np.float64] | None, *shape: int) -> None:
    if array is not None and array.shape != shape:
        raise ValueError("an array has another shape than n_features_in asks for")


def _is_step(step: float) -> bool:
    mantissa, exponent = math.frexp(step)
    return mantissa == 0.5 and abs(exponent) <= _MOST_STEP_EXPONENT


def _is_factor(factor: float) -> bool:
    return factor == 0 or math.frexp(factor)[0] == 0.5


def _are_equal(left: NDArray[np.float64] | None, right: NDArray[np.float64] | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)


def _is_orthonormal(matrix: NDArray[np.float64]) -> bool:
    if np.abs(matrix).max() > 2:  # so that no product overflows
        return False
    off = np.abs(matrix.T @ matrix - np.eye(len(matrix))).max()
    return bool(off <= len(matrix) * 2.0**-44)  # a few hundred roundings


# What a manifest is made of

_Kind = TypeVar("_Kind")

#: A dataclass of the package in a manifest: as its annotations and its check allow it.
Stored = Annotated[
    _Kind,
    GetPydanticSchema(
        lambda kind, handler: handler.generate_schema(checked_type(kind, _CHECKS))
    ),
]


class FileEntry(Section):
    """A file of the model: its size, and the hash of its content."""

    n_bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Section):
    """All of a model but the numbers in its files.

    Attributes
    ----------
    format : int
        Version of the format.
    data : str
        Name of the folder with the files.
    source : str, optional
        Tells what it was fitted from, where a run has fitted it.
    parameters : dict
        Of `LPE`, but for ``anomaly_log_density``, which is a function. They may have been
        set after the fit.
    has_anomaly_log_density : bool
    n_dropped, n_features_in, feature_names_in, offset
        As in `Fitted`, and names in a form for JSON.
    division : Division
        Of the nominal rows that were not dropped.
    statistic : Statistic
    categories : Categories, optional
    ranges : Ranges
    minima : Minima
        Written only where there are some.
    space : Space
    neighbor_graph : NeighborGraphParams, optional
    block_rows : list of int
        Rows of each block of the reference; there is a file for each.
    quality : Quality, optional
    certificate : Certificate, optional
        Where neighbors may be missed. Each block then has a file with its index.
    files : dict of str to FileEntry
    versions : dict of str to str
        Of the packages that wrote it; for people.
    """

    format: Literal[7]
    data: Annotated[str, Field(pattern=f"^{DATA_PATTERN}$")]
    source: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    parameters: Annotated[dict[str, Any], AfterValidator(_check_parameters)]
    has_anomaly_log_density: bool
    n_dropped: NonNegativeInt
    n_features_in: PositiveInt
    feature_names_in: list[Any] | None
    offset: Annotated[float, Field(gt=0, le=1)]
    division: Stored[Division]
    statistic: Stored[Statistic]
    categories: Stored[Categories] | None
    ranges: Stored[Ranges]
    minima: Stored[Minima] = NO_MINIMA
    space: Stored[Space]
    neighbor_graph: Stored[NeighborGraphParams] | None
    block_rows: list[PositiveInt]
    quality: Stored[Quality] | None
    certificate: Stored[Certificate] | None
    files: dict[str, FileEntry]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _fits_together(self) -> Manifest:
        self._check_names()
        self._check_features()
        self._check_reference()
        self._check_approximate()
        return self

    def _check_names(self) -> None:
        names = self.feature_names_in
        if names is not None:
            n_different = len(places_of(map(name_from_json, names)))
            if not n_different == len(names) == self.n_features_in:
                raise ValueError("the features have not as many different names")

    def _check_features(self) -> None:
        """Demand a space for rows of so many features, as they come."""
        preparation, basis = self.space.preparation, self.space.basis
        scaling = preparation.scaling
        categorical = preparation.categorical
        if categorical != (() if self.categories is None else self.categories.places):
            raise ValueError("the categories are of other columns than the space")
        if categorical and categorical[-1] >= self.n_features_in:
            raise ValueError("a categorical column is not there")
        counted = self.minima.places
        if {*counted} & {*categorical} or max(counted, default=0) >= self.n_features_in:
            raise ValueError("a column with a minimum has no numbers, or is not there")
        if not _are_equal(preparation.weights, basis.weights):
            raise ValueError("the weights of the space and of its basis differ")
        n_numbers = self.n_features_in - len(categorical)
        n_scaled = scaling.n_scaled(n_numbers)
        for vector in (scaling.shift, scaling.factor, scaling.divisor):
            _check_shape(vector, n_numbers)
        _check_shape(preparation.factor, n_scaled)
        _check_shape(preparation.matrix, n_scaled, n_scaled)
        _check_shape(preparation.weights, preparation.n_prepared(self.n_features_in))
        _check_shape(basis.center, preparation.n_numbers(self.n_features_in))
        _check_shape(basis.steps, len(categorical))
        if scaling.knots is not None and len(scaling.knots.values) != n_numbers:
            raise ValueError("the knots are of other columns than n_features_in")
        if len(self.ranges.low) != self.n_features_in:
            raise ValueError("the ranges are of other columns than n_features_in")
        if len(self.ranges.rare) != len(categorical):
            raise ValueError("rare categories are of other columns than the categories")

    def _check_reference(self) -> None:
        n_reference, graph = sum(self.block_rows), self.neighbor_graph
        n_neighbors = self.statistic.n_neighbors
        if not 1 <= n_reference < 2**31:
            raise ValueError("the blocks hold no rows, or too many")
        if n_reference != self.division.n_reference:
            raise ValueError("the blocks hold other rows than the division leaves")
        if graph is not None and graph.n_neighbors > max(1, n_reference - 1):
            raise ValueError("the neighbor graph has more edges than there are other rows")
        if (n_neighbors or 1) > n_reference:
            raise ValueError("n_neighbors is more than the rows of the reference")
        listed = n_neighbors if graph is None else graph.n_neighbors
        if sample_neighbors(listed) is not None and not self.space.with_samples:
            raise ValueError("a search for so many neighbors needs samples of the rows")
        has_matrix = self.space.preparation.matrix is not None
        is_other = has_matrix or graph is not None or self.space.is_indexed
        if self.categories is not None and is_other:
            raise ValueError("categories are for exact searches by Euclidean distance")

    def _check_approximate(self) -> None:
        sections = (self.quality, self.certificate)
        if [section is not None for section in sections] != [self.space.is_indexed] * 2:
            raise ValueError("nn_descent, and nothing else, has quality and certificate")
        has_paths = self.statistic.n_neighbors is None or self.neighbor_graph is not None
        if self.space.is_indexed and has_paths:
            raise ValueError("nn_descent is for distances to K neighbors")


def model_url(path: str | PathLike[str]) -> str:
    """Return the URL of a model's folder, the same from wherever it is looked at."""
    return Folder(path).full_url()


def block_name(i: int) -> str:
    """Return the name of the file of a block."""
    return f"block-{i:05}.parquet"


def index_name(i: int) -> str:
    """Return the name of the file of the index of a block."""
    return f"index-{i:05}.parquet"


def write_manifest(content: dict[str, Any], url: str) -> None:
    """Publish a model: write its manifest, in the place of an earlier one.

    Parameters
    ----------
    content : dict
        The fields of a `Manifest`, but for the format; dataclasses and arrays as they are.
    url : str

    Raises
    ------
    ValueError
        For what could not be read again.
    """
    content = to_json({"format": FORMAT, **content})
    Manifest.model_validate(content)
    text = json.dumps({"sha256": _digest(content), **content}, indent=1, allow_nan=False)
    encoded = text.encode() + b"\n"
    if len(encoded) > MOST_BYTES:
        raise ValueError(
            f"the manifest of this model has {len(encoded) / 2**20:.0f} MiB, and at most "
            f"{MOST_BYTES / 2**20:.0f} MiB are read: what is learned of "
            f"{content['n_features_in']} columns is too much. Measure fewer columns."
        )
    Folder(url).write(MANIFEST_NAME, encoded)


def read_manifest(url: str) -> Manifest:
    """Return the manifest of the model at ``url``.

    Raises
    ------
    FileNotFoundError
        If there is no model.
    ValueError
        If it is cut short, altered, or of another format.
    """
    name = f"{url}/{MANIFEST_NAME}"
    text = Folder(url).read(MANIFEST_NAME, MOST_BYTES)
    if text is None:
        raise FileNotFoundError(f"{name} is missing: there is no model")
    content = _parse(text, name)
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] == _OTHER:
                raise OtherVersionError(f"{name}: {_problem(problem)}") from error
        first = _problem(error.errors()[0])
        raise ValueError(f"{name} describes no model: {first}") from error


def _parse(text: bytes, name: str) -> dict[str, Any]:
    """Return what a manifest says, if it is of a format that is known, and unaltered."""
    try:
        content = json.loads(text)
        digest = content.pop("sha256", None) if isinstance(content, dict) else None
        is_as_written = digest == _digest(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} was cut short or altered: it is no JSON") from error
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise ValueError(f"{name} is not a model manifest: the format is missing")
    if content["format"] != FORMAT:
        raise OtherVersionError(
            f"{name} is of format {content['format']}, and this version of lpe_dask reads "
            f"format {FORMAT}"
        )
    if not is_as_written:
        raise ValueError(f"{name} was altered after it was written")
    return content


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _problem(error: ErrorDetails) -> str:
    place: Sequence[Any] = error["loc"] or ["the whole"]
    return f"{'.'.join(map(str, place))}: {error['msg']}"
