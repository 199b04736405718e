"""The manifest of a model on disk: what it is, and which files belong to it.

    MODEL/manifest.json             written last, and replaced as a whole
    MODEL/data-<hex>/*.parquet      the numbers, of which it holds the hashes

A manifest has a hash of its own, so that a change of it is noticed, too. What it says is
checked as if a stranger had written it: kernels trust their input.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from typing import Annotated, Any, Literal, LiteralString

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from lpe_dask.model.division import Division
from lpe_dask.model.metrics import given_parameter
from lpe_dask.model.parameters import (
    FORMS,
    LEAST_ERROR_SHARE,
    PARAMETERS,
    check_parameters,
)
from lpe_dask.search import WIDEST_BEAM, sample_neighbors
from lpe_dask.storage import Folder
from lpe_dask.tables import MOST_LEVELS, name_from_json, name_to_json, places_of

#: The version of the format that is written, and the latest that can be read.
FORMAT = 3

#: Name of the file, and of those beside the blocks' own.
MANIFEST_NAME = "manifest.json"
CALIBRATION_NAME, NOMINAL_NAME = "calibration.parquet", "nominal.parquet"
STARTS_NAME, EDGES_NAME = "graph-starts.parquet", "graph-edges.parquet"

#: What the folders of the other files are called.
DATA_PATTERN = "data-[0-9a-f]{12}"

#: Largest exponent of a power of 2 by which a basis moves rows; see `kernels.basis`.
_MOST_EXPONENT = 1000

#: The same of a step between codes, which float32 holds with every code.
_MOST_STEP_EXPONENT = 80

#: Parameters that a manifest need not name: those that came after format 1, as models were
#: fitted before there was a choice.
_LATER_PARAMETERS = {
    name: PARAMETERS[name].default
    for name in (
        "aggregation", "categorical", "allow_approximate", "max_p_error",
        "max_error_share", "recheck", "on_low_quality",
    )
}  # fmt: skip

#: The kind of the error about what no format says that is known here.
_LATER: LiteralString = "later_version"

_Vector = list[float]
# Of a categorical column: all of one type.
_Level = list[bool] | list[int] | list[str]
_Levels = Annotated[_Level, Field(min_length=1, max_length=MOST_LEVELS)]
_Weights = list[Annotated[float, Field(ge=0)]]
_Matrix = list[list[float]]
# As `column_names.name_to_json` writes them; format 1 has text only.
_PlainName = bool | int | float | str | dict[str, str] | None
_Name = _PlainName | dict[str, list[_PlainName]]


class NewerFormatError(ValueError):
    """A manifest that says what a later version has brought."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class FileEntry(_Section):
    """A file of the model: its size, and the hash of its content."""

    n_bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _later(text: LiteralString, **values: Any) -> PydanticCustomError:
    return PydanticCustomError(_LATER, text, values)


def _check_parameters(given: dict[str, Any]) -> dict[str, Any]:
    known = {name for name, parameter in PARAMETERS.items() if parameter.is_option}
    if unknown := sorted(set(given) - known):
        raise _later("LPE has no {names} in this version", names=unknown[:3])
    parameters = _LATER_PARAMETERS | given
    if missing := sorted(known - set(parameters)):
        raise ValueError(f"these arguments of LPE are missing: {missing[:3]}")
    categorical = columns_from_json(parameters["categorical"])
    check_parameters(parameters | {"categorical": categorical, "anomaly_log_density": None})
    return parameters


def columns_to_json(columns: Any) -> Any:
    """Return the names of columns in a list, or something else, in a form for JSON."""
    is_list = isinstance(columns, list | tuple)
    return list(map(name_to_json, columns)) if is_list else columns


def columns_from_json(content: Any) -> Any:
    """Return what `columns_to_json` has converted."""
    return list(map(name_from_json, content)) if isinstance(content, list) else content


class DivisionEntry(_Section):
    """Of `division.Division`."""

    kind: Literal["loo", "split", "conformal"]
    n_drawn: PositiveInt | None
    random_state: NonNegativeInt | None


class FittedEntry(_Section):
    """What `fit` has found, and settled about p-values."""

    n_samples: PositiveInt
    n_dropped: NonNegativeInt
    division: DivisionEntry | None = None  # earlier versions did not tell
    n_features_in: PositiveInt
    feature_names_in: list[_Name] | None
    n_neighbors: PositiveInt | None
    radius: Annotated[float, Field(ge=0)] | None
    offset: Annotated[float, Field(gt=0, le=1)]
    graph: Literal["knn", "radius"]
    counts_itself: Literal[0, 1]
    aggregation: Literal["kth", "mean"] = "kth"
    has_anomaly_log_density: bool

    @model_validator(mode="after")
    def _fits_together(self) -> FittedEntry:
        is_given = (self.n_neighbors is not None, self.radius is not None)
        if is_given != (self.graph == "knn", self.graph == "radius"):
            raise ValueError("the graph needs n_neighbors or radius, and not both")
        if self.graph == "radius" and self.aggregation != "kth":
            raise ValueError("a mean is one of distances to n_neighbors rows")
        names = self.feature_names_in
        if names is not None:
            n_different = len(places_of(map(name_from_json, names)))
            if not n_different == len(names) == self.n_features_in:
                raise ValueError("the features have not as many different names")
        return self


class KnotsEntry(_Section):
    """Of `knots.Knots`."""

    values: list[Annotated[_Vector, Field(min_length=1)]]
    ranks: list[list[NonNegativeInt]]
    n_sampled: Annotated[int, Field(ge=1, lt=2**31)]

    @model_validator(mode="after")
    def _ascend(self) -> KnotsEntry:
        """Demand that heights ascend with the values, and that nothing is divided by 0."""
        if list(map(len, self.values)) != list(map(len, self.ranks)):
            raise ValueError("values and ranks differ in length")
        for values, ranks in zip(self.values, self.ranks, strict=True):
            if not (_is_ascending(values) and _is_ascending(ranks)):
                raise ValueError("the values or ranks of a column do not ascend")
            if ranks[-1] > 2 * self.n_sampled:
                raise ValueError("a rank is more than twice the sampled rows")
            width = values[-1] - values[0]
            if len(values) > 1 and not (width < math.inf and 1 / width < math.inf):
                raise ValueError("the range of a column is no usable float64")
        return self


class ScalingEntry(_Section):
    """Of `preparation.Scaling`."""

    shift: _Vector | None
    factor: _Vector | None
    divisor: _Vector | None
    knots: KnotsEntry | None = None

    @model_validator(mode="after")
    def _is_one_map(self) -> ScalingEntry:
        n_scales = (self.factor is not None) + (self.divisor is not None)
        if n_scales != (self.shift is not None):
            raise ValueError("it needs a shift with a factor or a divisor, or none at all")
        if self.divisor is not None and self.knots is not None:
            raise ValueError("knots go with a factor, or alone")
        _check_divisor(self.divisor)
        return self

    def n_scaled(self, n_features: int) -> int:
        """Return how many columns so many columns become."""
        has_both = self.knots is not None and self.shift is not None
        return 2 * n_features if has_both else n_features


class LinearMapEntry(_Section):
    """Of `preparation.LinearMap`."""

    factor: _Vector | None
    divisor: _Vector | None
    matrix: _Matrix | None

    @model_validator(mode="after")
    def _is_one_map(self) -> LinearMapEntry:
        if sum(v is not None for v in (self.factor, self.divisor, self.matrix)) > 1:
            raise ValueError("only one of factor, divisor and matrix may be set")
        _check_divisor(self.divisor)
        return self


class PreparationEntry(_Section):
    """Of `preparation.Preparation`."""

    scaling: ScalingEntry
    linear_map: LinearMapEntry
    categorical: list[NonNegativeInt] = []
    weights: _Weights = []

    @model_validator(mode="after")
    def _fits_together(self) -> PreparationEntry:
        if self.categorical != sorted(set(self.categorical)):
            raise ValueError("the categorical columns are not ascending")
        if len(self.categorical) != len(self.weights):
            raise ValueError("there are not as many weights as categorical columns")
        return self


class FrameEntry(_Section):
    """Of `kernels.Basis`."""

    center: Annotated[_Vector, Field(min_length=1)]
    exponent: Annotated[int, Field(ge=-_MOST_EXPONENT, le=_MOST_EXPONENT)]
    rotation: _Matrix | None
    weights: _Weights = []
    steps: list[Annotated[float, Field(gt=0)]] = []

    @model_validator(mode="after")
    def _is_usable(self) -> FrameEntry:
        """Demand that no point overflows, and that distances stay what they are."""
        largest = max(map(abs, self.center), default=0.0)
        if math.frexp(largest)[1] + self.exponent > _MOST_EXPONENT:
            raise ValueError("the center is too far out")
        if self.rotation is not None:
            _check_shape(self.rotation, len(self.center))
            if not _is_orthonormal(np.array(self.rotation)):
                raise ValueError("the rotation is not orthonormal")
        if len(self.steps) != len(self.weights) or any(map(_is_no_step, self.steps)):
            raise ValueError("the steps of codes are not a moderate power of 2 each")
        return self


class SplitEntry(_Section):
    """Of `locality.Split`."""

    axes: list[Annotated[int, Field(ge=-1)]]
    thresholds: _Vector
    children: list[NonNegativeInt]

    @model_validator(mode="after")
    def _is_tree(self) -> SplitEntry:
        """Demand that walks come to every node by one way, and end in a part."""
        n_nodes = len(self.axes)
        if not n_nodes == len(self.thresholds) == len(self.children) > 0:
            raise ValueError("axes, thresholds and children differ in length")
        nodes = list(enumerate(zip(self.axes, self.children, strict=True)))
        pairs = [(child, i) for i, (axis, child) in nodes if axis >= 0]
        parts = [child for _, (axis, child) in nodes if axis < 0]
        if sorted(child for child, _ in pairs) != list(range(1, n_nodes - 1, 2)):
            raise ValueError("the nodes are not the children of one node each")
        if any(child <= parent for child, parent in pairs):
            raise ValueError("a node comes before its parent")
        if sorted(parts) != list(range(len(parts))):
            raise ValueError("the parts are not numbered from 0 on")
        return self


class SpaceEntry(_Section):
    """Of `packing.Space`."""

    preparation: PreparationEntry
    frame: FrameEntry
    split: SplitEntry | None
    with_samples: bool
    levels: list[_Levels] | None = None

    @model_validator(mode="after")
    def _has_all_levels(self) -> SpaceEntry:
        """Demand the levels of each categorical column, as they are sorted for codes."""
        levels: list[list[Any]] = [list(of_column) for of_column in self.levels or []]
        if len(levels) != len(self.preparation.categorical):
            raise ValueError("there are not as many levels as categorical columns")
        if any(of_column != sorted(set(of_column)) for of_column in levels):
            raise ValueError("the levels of a column are not ascending")
        return self

    def check_features(self, n_features: int) -> None:
        """Raise ValueError if it is not for rows of so many features, as they come."""
        scaling, linear_map = self.preparation.scaling, self.preparation.linear_map
        categorical = self.preparation.categorical
        if categorical and categorical[-1] >= n_features:
            raise ValueError("a categorical column is not there")
        if self.preparation.weights != self.frame.weights:
            raise ValueError("the weights of categorical columns differ")
        n_numbers = n_features - len(categorical)
        n_scaled = scaling.n_scaled(n_numbers)
        for n, vectors in (
            (n_numbers, [scaling.shift, scaling.factor, scaling.divisor]),
            (n_scaled, [linear_map.factor, linear_map.divisor]),
            (max(1, n_scaled), [self.frame.center]),
        ):
            if any(v is not None and len(v) != n for v in vectors):
                raise ValueError("a vector has another length than n_features_in")
        if scaling.knots is not None and len(scaling.knots.values) != n_numbers:
            raise ValueError("the knots are of other columns than n_features_in")
        if linear_map.matrix is not None:
            _check_shape(linear_map.matrix, n_scaled)
        n_prepared = len(self.frame.center) + len(categorical)
        if self.split is not None and max(self.split.axes) >= n_prepared:
            raise ValueError("the split names a column that is not there")


class NeighborGraphEntry(_Section):
    """Of `plan.NeighborGraphParams`."""

    n_neighbors: PositiveInt
    graph: Literal["directed", "union"]


class ReferenceEntry(_Section):
    """Of `reference.Reference`; the rows are in a file for each block."""

    n_rows: Annotated[int, Field(ge=1, lt=2**31)]
    algorithm: Literal["brute", "pruned", "nn_descent"]
    space: SpaceEntry
    neighbor_graph: NeighborGraphEntry | None
    block_rows: list[PositiveInt]

    @model_validator(mode="after")
    def _is_whole(self) -> ReferenceEntry:
        if sum(self.block_rows) != self.n_rows:
            raise ValueError("the blocks do not hold n_rows rows")
        graph = self.neighbor_graph
        if graph is not None and graph.n_neighbors > max(1, self.n_rows - 1):
            raise ValueError("the neighbor graph has more edges than there are other rows")
        return self

    def listed_neighbors(self, n_neighbors: int | None) -> int | None:
        """Return how many nearest rows a search for the K-th looks for; None for none."""
        graph = self.neighbor_graph
        return n_neighbors if graph is None else graph.n_neighbors


class GuideEntry(_Section):
    """Of `approximate.Guide`."""

    width: PositiveInt
    n_asked: PositiveInt
    exact_blocks: list[NonNegativeInt]
    suspects: list[NonNegativeInt]


class CertificateEntry(_Section):
    """Of `certificate.Certificate`."""

    max_p_error: Annotated[float, Field(gt=0, lt=1)]
    max_error_share: Annotated[float, Field(ge=LEAST_ERROR_SHARE, lt=1)]
    bound: Annotated[float, Field(ge=0, le=1)]
    risk: float
    audited: NonNegativeInt
    beyond: NonNegativeInt
    largest_error: float
    rounds: NonNegativeInt
    blocks: PositiveInt
    exact_blocks: NonNegativeInt


class ApproximateEntry(_Section):
    """Of `audit.Approximate`; the parameters may have been set after the fit.

    Each block then has a file with its index.
    """

    guide: GuideEntry
    certificate: CertificateEntry
    recheck: Annotated[float, Field(gt=0, lt=1)]
    on_low_quality: Literal["repair", "error"]
    seed: NonNegativeInt
    pynndescent: str


class Manifest(_Section):
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
        Of `LPE`, but for ``anomaly_log_density``, which is a function.
    fitted : FittedEntry
    reference : ReferenceEntry
    approximate : ApproximateEntry, optional
        From format 3 on, where neighbors may be missed.
    files : dict of str to FileEntry
    versions : dict of str to str
        Of the packages that wrote it; for people.
    """

    format: Literal[1, 2, 3]
    data: Annotated[str, Field(pattern=f"^{DATA_PATTERN}$")]
    source: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    parameters: Annotated[dict[str, Any], AfterValidator(_check_parameters)]
    fitted: FittedEntry
    reference: ReferenceEntry
    approximate: ApproximateEntry | None = None
    files: dict[str, FileEntry]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _fits_together(self) -> Manifest:
        fitted, reference = self.fitted, self.reference
        reference.space.check_features(fitted.n_features_in)
        if reference.n_rows > fitted.n_samples:
            raise ValueError("the reference has more rows than n_samples")
        if fitted.division is not None:
            divided = Division(n_rows=fitted.n_samples, **dict(fitted.division))
            if (divided.kind == "conformal") != (fitted.counts_itself == 1):
                raise ValueError("the division is for other p-values")
            if divided.n_reference != reference.n_rows:
                raise ValueError("the division leaves another number of rows")
        if (fitted.n_neighbors or 1) > reference.n_rows:
            raise ValueError("n_neighbors is more than the rows of the reference")
        listed = reference.listed_neighbors(fitted.n_neighbors)
        metric, params = self.parameters["metric"], self.parameters["metric_params"]
        if metric != "geodesic":
            n_forms = len(FORMS[self.parameters["scale"]])
            given_parameter(metric, params, fitted.n_features_in, n_forms)
        if reference.space.levels is not None:
            _check_compares(reference)
        is_indexed = reference.algorithm == "nn_descent"
        if is_indexed != (self.approximate is not None):
            raise ValueError("nn_descent, and nothing else, needs a section approximate")
        if self.approximate is not None:
            guide, n_blocks = self.approximate.guide, len(reference.block_rows)
            if sorted(guide.exact_blocks + guide.suspects) != list(range(n_blocks)):
                raise ValueError("the guide is for other blocks")
            if guide.width > (fitted.n_neighbors or 0) + WIDEST_BEAM:
                raise ValueError("the guide has wider beams than any search")
            if fitted.graph != "knn" or reference.neighbor_graph is not None:
                raise ValueError("nn_descent is for distances to K neighbors")
        if sample_neighbors(listed) is not None and not reference.space.with_samples:
            raise ValueError("a search for so many neighbors needs samples of the rows")
        return self


def _check_compares(reference: ReferenceEntry) -> None:
    """Raise ValueError for a search that cannot compare categories."""
    linear_map = reference.space.preparation.linear_map
    is_other = linear_map.matrix is not None or linear_map.divisor is not None
    if is_other or reference.neighbor_graph or reference.algorithm == "nn_descent":
        raise ValueError("categories are for exact searches by Euclidean distance")


def model_url(path: str | PathLike[str]) -> str:
    """Return the URL of a model's folder, the same from wherever it is looked at."""
    return Folder(path).full_url()


def block_name(i: int) -> str:
    """Return the name of the file of a block."""
    return f"block-{i:05}.parquet"


def index_name(i: int) -> str:
    """Return the name of the file of the index of a block."""
    return f"index-{i:05}.parquet"


def write_manifest(manifest: Manifest, url: str) -> None:
    """Publish a model: write its manifest, in the place of an earlier one."""
    content = manifest.model_dump(mode="json")
    text = json.dumps({"sha256": _digest(content), **content}, indent=1, allow_nan=False)
    Folder(url).write(MANIFEST_NAME, text.encode() + b"\n")


def read_manifest(url: str) -> Manifest:
    """Return the manifest of the model at ``url``.

    Raises
    ------
    FileNotFoundError
        If there is no model.
    ValueError
        If it is cut short, altered, or of a newer format.
    """
    name = f"{url}/{MANIFEST_NAME}"
    text = Folder(url).read(MANIFEST_NAME)
    if text is None:
        raise FileNotFoundError(f"{name} is missing: there is no model")
    content = _parse(text, name)
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        later = [one for one in error.errors() if one["type"] == _LATER]
        if later:
            raise NewerFormatError(f"{name}: {_problem(later[0])}") from error
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
    if content["format"] > FORMAT:
        raise NewerFormatError(
            f"{name} is of format {content['format']}, and this version of lpe_dask reads "
            f"formats up to {FORMAT}"
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


def _is_ascending(values: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def _check_divisor(divisor: _Vector | None) -> None:
    if divisor is not None and 0.0 in divisor:
        raise ValueError("a divisor is 0")


def _check_shape(matrix: _Matrix, n_features: int) -> None:
    if {len(matrix), *map(len, matrix)} != {n_features}:
        raise ValueError("a matrix has another shape than n_features_in")


def _is_no_step(step: float) -> bool:
    mantissa, exponent = math.frexp(step)
    return mantissa != 0.5 or abs(exponent) > _MOST_STEP_EXPONENT


def _is_orthonormal(matrix: NDArray[np.float64]) -> bool:
    if np.abs(matrix).max() > 2:  # so that no product overflows
        return False
    off = np.abs(matrix.T @ matrix - np.eye(len(matrix))).max()
    return bool(off <= len(matrix) * 2.0**-44)  # a few hundred roundings
