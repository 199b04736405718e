"""The manifest of a model on disk: what it is, and which files belong to it.

    MODEL/manifest.json             written last, and replaced as a whole
    MODEL/data-<hex>/*.parquet      the numbers, of which it holds the hashes

A manifest has a hash of its own, so that a change of it is noticed, too. What it says is
checked as if a stranger had written it: kernels trust their input. The names in it are
those of the fields of dataclasses: another name there is another format. An addition, which
needs a default, is none: names that are not known are ignored, but for those of files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal

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

from lpe_dask.kernels import Basis
from lpe_dask.model.calibration_split import INCLUDES_SELF, CalibrationSplit, GroupedSize
from lpe_dask.model.certificate import ApproximationSettings, Certificate
from lpe_dask.model.lpe_parameters import (
    AGGREGATION_NAMES,
    ALGORITHM_NAMES,
    PARAMETERS,
    check_parameters,
)
from lpe_dask.model.persistence.stored_groups import StoredGroups
from lpe_dask.model.persistence.stored_vectors import StoredVectors
from lpe_dask.search import (
    NeighborGraphParams,
    QuantileKnots,
    Space,
    Statistic,
    StoredReference,
)
from lpe_dask.storage import Folder, to_jsonable
from lpe_dask.tables import (
    Categories,
    ColumnOffsets,
    ValueRanges,
)

#: Digits after the point that a decimal of nominal rows may have.
_MAX_DIGITS = 2000

#: The version of the format that is written and read.
FORMAT: Final = 1

#: Name of the file, and of those beside those of the reference.
MANIFEST_NAME = "manifest.json"
CALIBRATION_NAME, NOMINAL_NAME = "calibration.parquet", "nominal.parquet"

#: Name of the manifest of the model that was replaced last.
PREVIOUS_NAME = "_previous.json"

#: Name of the folder with the files of a model of all groups together.
POOL_NAME = "pool"

#: Keys that do not decide what a model says of rows.
_CIRCUMSTANCES = ("data", "source", "created", "run_date", "versions")

#: Most bytes of a manifest. It has 40 KiB for each column with scale="quantile", a few
#: hundred bytes for each block, and else less.
MAX_BYTES = 2**26

#: What the folders of the other files are called.
DATA_PATTERN = "data-[0-9a-f]{12}"

#: Largest exponent of a power of 2 by which a basis moves rows; see `kernels.basis`.
_MAX_EXPONENT = 1000

#: The largest coordinate of an axis of a rotation, whose length is 1 up to rounding.
_MAX_AXIS = 2.0

#: The largest step between codes: float32 holds it with every code.
_MAX_STEP = 2.0**80


def _check_parameters(given: dict[str, Any]) -> dict[str, Any]:
    given = {
        name: given.get(name, parameter.default)
        for name, parameter in PARAMETERS.items()
        if parameter.is_option
    }
    named = {name: columns_from_json(given[name]) for name in ("categorical", "by")}
    check_parameters(given | named | {"anomaly_log_density": None})
    return given


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time needs its zone")
    return text


def _check_day(text: str) -> str:
    date.fromisoformat(text)
    return text


def columns_from_json(content: Any) -> Any:
    """Return the names of columns in a list, checked, or something else as it is."""
    return list(map(_name_from_json, content)) if isinstance(content, list) else content


def _name_from_json(content: Any) -> Any:
    if not isinstance(content, str | int | np.integer) or isinstance(content, bool):
        raise ValueError(f"{str(content)[:80]} is not a column name")
    return content


def _has_shape(array: NDArray[np.float64] | None, *shape: int) -> bool:
    return array is None or array.shape == shape


def _is_moderate(basis: Basis) -> bool:
    """Return whether all points are finite: clipped ones are rotated."""
    largest = math.frexp(float(np.abs(basis.center).max()))[1]
    exponents = abs(basis.exponent), largest + basis.exponent
    of_axes = 0.0 if basis.rotation is None else np.abs(basis.rotation).max()
    is_near = max(exponents) <= _MAX_EXPONENT and of_axes <= _MAX_AXIS
    are_steps = (np.frexp(basis.steps)[0] == 0.5).all()  # powers of 2
    return bool(is_near and are_steps and basis.steps.max(initial=0.0) <= _MAX_STEP)


def _are_usable(knots: QuantileKnots) -> bool:
    """Return whether heights ascend with the values, and nothing is divided by 0."""
    for values, ranks in zip(knots.values, knots.ranks, strict=True):
        if not (_ascends(values.tolist()) and _ascends(ranks.tolist())):
            return False
        width = float(values[-1]) - float(values[0])
        if len(values) > 1 and not (width < math.inf and 1 / width < math.inf):
            return False
        if ranks[0] < 0 or ranks[-1] > 2 * knots.n_sampled:
            return False
    return 1 <= knots.n_sampled < 2**31


def _ascends(values: Sequence[Any]) -> bool:
    return len({*map(type, values)}) <= 1 and list(values) == sorted({*values})


class _Section(BaseModel):
    """A part of the manifest: fields of these types alone; others are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class FileEntry(_Section):
    """A file of the model: its size, and the hash of its content."""

    n_bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


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
        Of `LPE`, but for ``anomaly_log_density``, which is a function. They may have been
        set after the fit.
    has_anomaly_log_density : bool
    n_dropped, n_confirmed, confirmed_digest, n_features_in, feature_names_in, offset
    confidence, created, run_date
        As in `Fitted`, and names in a form for JSON.
    division : CalibrationSplit or GroupedSize
        Of the nominal rows that were not dropped.
    statistic : Statistic
    categories : Categories, optional
    ranges : ValueRanges
    minima : ColumnOffsets
    space : Space
    neighbor_graph : NeighborGraphParams, optional
    block_rows : list of int
        Rows of each block of the reference; there is a file for each.
    quality : ApproximationSettings, optional
    certificate : Certificate, optional
        Where neighbors may be missed. Each block then has a file with its index.
    groups : StoredGroups, optional
        Where rows are divided into groups.
    pool : Manifest, optional
        Of the model of all nominal rows that measures rows of small and unknown groups.
    vectors : StoredVectors
        Of the statistics of nominal rows, where these are in several files.
    files : dict of str to FileEntry
    versions : dict of str to str
        Of the packages that wrote it; for people.
    checksum : str
        As in `Fitted`, of a manifest that was read; in no file.
    """

    format: Literal[1] = FORMAT
    data: Annotated[str, Field(pattern=f"^{DATA_PATTERN}$")]
    source: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    parameters: Annotated[dict[str, Any], AfterValidator(_check_parameters)]
    has_anomaly_log_density: bool
    n_dropped: NonNegativeInt
    n_confirmed: NonNegativeInt = 0
    confirmed_digest: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None = None
    n_features_in: PositiveInt
    feature_names_in: list[Any] | None
    offset: Annotated[float, Field(gt=0, le=1)]
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    division: Annotated[GroupedSize | CalibrationSplit, Field(union_mode="left_to_right")]
    statistic: Statistic
    categories: Categories | None
    ranges: ValueRanges
    minima: ColumnOffsets
    space: Space
    neighbor_graph: NeighborGraphParams | None
    block_rows: list[PositiveInt]
    quality: ApproximationSettings | None
    certificate: Certificate | None
    groups: StoredGroups | None = None
    pool: Manifest | None = None
    vectors: StoredVectors = StoredVectors()
    files: dict[str, FileEntry]
    versions: dict[str, str]
    created: Annotated[str, AfterValidator(_check_time)] | None = None
    run_date: Annotated[str, AfterValidator(_check_day)] | None = None
    checksum: Annotated[str, Field(exclude=True)] = ""

    @property
    def reference(self) -> StoredReference:
        """Its sections about the reference."""
        return StoredReference(
            self.space, self.statistic, self.neighbor_graph, self.block_rows,
            self.n_columns,
        )  # fmt: skip

    @property
    def n_columns(self) -> int:
        """Columns of rows, with the numbers of their groups."""
        return self.n_features_in + (self.groups is not None)

    @property
    def _learns_groups(self) -> bool:
        """Whether scale or metric are those of each group."""
        return self.groups is not None and self.groups.learned is not None

    @model_validator(mode="after")
    def _is_safe(self) -> Manifest:
        """Demand what kernels and walks rely on, and annotations cannot say."""
        for problems in (
            self._problems, self._problems_of_groups, self._problems_of_columns,
        ):  # fmt: skip
            for is_wrong, problem in problems():
                if is_wrong:
                    raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[tuple[bool, str]]:
        """Yield whether something is wrong, and what; each relies on those before."""
        names, division, space = self.feature_names_in, self.division, self.space
        if names is not None:
            n_different = len({*columns_from_json(names)})
            is_named = n_different == len(names) == self.n_features_in
            yield not is_named, "the features have not as many different names"
        yield division.kind not in INCLUDES_SELF, "there is no such calibration"
        is_drawn = 1 <= division.n_calibration <= division.n_rows
        yield not is_drawn, "it draws no rows, or too many"
        is_other = self.confidence is not None and division.kind != "conformal"
        yield is_other, "confidence is for the conformal calibration"
        n_reference = sum(self.block_rows)
        yield not 1 <= n_reference < 2**31, "the blocks hold no rows, or too many"
        is_divided = n_reference == division.n_reference
        yield not is_divided, "the blocks hold other rows than the division leaves"

        k, radius = self.statistic.n_neighbors, self.statistic.radius
        yield (k is None) == (radius is None), "it needs n_neighbors or radius"
        yield not 1 <= (1 if k is None else k) <= n_reference, "n_neighbors is out of range"
        aggregation, graph = self.statistic.aggregation, self.neighbor_graph
        known = AGGREGATION_NAMES if radius is None else ("kth",)
        yield aggregation not in known, "there is no such aggregation"
        is_plain = self.statistic == Statistic(k, radius, aggregation=aggregation)
        yield not is_plain, "it is not the statistic itself that is asked for"
        edges = 1 if graph is None else graph.n_neighbors
        is_graph = 1 <= edges <= max(1, n_reference - 1)
        yield not is_graph, "the neighbor graph has no edges, or too many"

        yield space.algorithm not in ALGORITHM_NAMES, "there is no such algorithm"
        sections = {self.quality is not None, self.certificate is not None}
        is_right = sections == {space.is_indexed}
        yield not is_right, "nn_descent, and nothing else, has quality and certificate"
        is_other = k is None or graph is not None
        yield space.is_indexed and is_other, "nn_descent is for K straight distances"
        is_other = graph is not None or space.preparation.matrix is not None
        is_coded = bool(self.categories is not None and self.categories.places)
        is_coded &= is_other or space.is_indexed
        yield is_coded, "categories are for exact searches by Euclidean distance"
        levels = () if self.categories is None else self.categories.levels
        are_sorted = all(values and _ascends(values) for values in levels)
        yield not are_sorted, "the levels of a column are none, or not ascending"

    def _problems_of_groups(self) -> Iterator[tuple[bool, str]]:
        """Yield the same of groups."""
        groups, space = self.groups, self.space
        is_grouped = isinstance(self.division, GroupedSize)
        yield is_grouped != (groups is not None), "groups are divided, or there are none"
        is_other = groups is not None and bool(self.vectors.file_names())
        yield is_other, "statistics of groups are in one file"
        if groups is None:
            yield self.pool is not None, "there are no groups to pool"
            preparation = space.preparation
            separates = preparation.separates, space.basis.separates
            has_groups = any(separates) or preparation.drops_group
            yield has_groups, "there are no groups that a search could part"
            return
        is_other = self.neighbor_graph is not None or space.is_indexed
        yield is_other, "groups are for exact searches along straight lines"
        if self.pool is not None:
            names = self.pool.n_features_in, self.pool.feature_names_in
            is_other = names != (self.n_features_in, self.feature_names_in)
            yield is_other or self.pool.groups is not None, "the pool is of other columns"
        is_shared = self.confidence is not None and "calibration" not in groups.own
        yield is_shared, "confidence is for groups with their own calibration"
        yield from groups.problems(space)

    def _problems_of_columns(self) -> Iterator[tuple[bool, str]]:
        """Yield the same of the space, for rows of so many features."""
        n_features, ranges, n_columns = self.n_features_in, self.ranges, self.n_columns
        preparation, basis = self.space.preparation, self.space.basis
        scaling, places = preparation.scaling, preparation.categorical
        known = () if self.categories is None else self.categories.places
        is_there = all(0 <= place < n_features for place in known)
        of_groups = () if self.groups is None else (n_features,)
        is_there &= places == (*known, *of_groups) == tuple(sorted({*places}))
        is_there &= self.categories is None or len(self.categories.levels) == len(known)
        yield not is_there, "the categories are of other columns"
        minima = self.minima
        is_there = len(minima.places) == len(minima.values) == len(minima.digits)
        is_there &= _ascends(minima.places) and not {*minima.places} & {*places}
        is_there &= all(0 <= place < n_features for place in minima.places)
        yield not is_there, "the minima are of other columns"
        is_short = all(0 <= digits <= _MAX_DIGITS for digits in minima.digits)
        yield not is_short, "the digits of a minimum are too many"
        is_other = scaling.has_both and scaling.knots is None and not self._learns_groups
        yield is_other, "both forms need knots"
        n_codes, n_numbers = preparation.n_codes, n_columns - len(places)
        fill = preparation.fill
        is_filled = _has_shape(fill, n_numbers) and (
            fill is None or preparation.matrix is None
        )
        yield not is_filled, "gaps are filled in other columns, or before a matrix"
        is_right = (fill is not None) == (self.parameters["missing"] == "measure")
        yield not is_right, "gaps are filled if, and only if, they are measured"
        n_scaled = scaling.n_scaled(n_numbers)
        vectors = (scaling.shift, scaling.factor, scaling.divisor)
        is_scale = all(_has_shape(vector, n_numbers) for vector in vectors)
        yield not is_scale, "the scale is of other columns"
        is_zero = scaling.divisor is not None and not scaling.divisor.all()
        yield is_zero, "a divisor is 0"
        if scaling.knots is not None:
            knots = list(zip(scaling.knots.values, scaling.knots.ranks, strict=False))
            is_right = all(v.shape == r.shape == (v.size,) and v.size for v, r in knots)
            yield len(knots) != n_numbers or not is_right, "the knots are of other columns"
            is_wrong = not _are_usable(scaling.knots)
            yield is_wrong, "knots or ranks do not ascend, or are out of range"
        is_prepared = _has_shape(preparation.factor, n_scaled)
        is_prepared &= _has_shape(preparation.matrix, n_scaled, n_scaled)
        yield not is_prepared, "factor or matrix are of other columns"
        factor = () if preparation.factor is None else preparation.factor
        is_step = np.isin(np.frexp(factor)[0], (0.0, 0.5)).all()
        yield not is_step, "a factor is no power of 2"
        n_left = preparation.n_numbers(n_columns)
        is_basis = _has_shape(basis.center, n_left) and _has_shape(basis.steps, n_codes)
        is_basis &= _has_shape(basis.rotation, n_left, n_left)
        yield not is_basis, "the basis is of other columns"
        yield not _is_moderate(basis), "the basis moves points too far"
        least = np.repeat([1.0, 0.0], [n_left, n_codes])  # of numbers, and of codes
        both = preparation.weights_of(len(least)), basis.all_weights
        is_weighted = all(w.shape == least.shape and (w >= least).all() for w in both)
        yield not is_weighted, "the weights are of other columns, or too small"
        is_large = any((weights[:n_left] >= 4).any() for weights in both)
        yield is_large, "a weight of numbers is 4 or more"
        is_range = len(ranges.low) == len(ranges.high) == n_features
        yield not is_range, "the ranges are of other columns"


def write_manifest(manifest: Manifest, url: str) -> str:
    """Publish a model: write its manifest, in the place of an earlier one.

    Returns
    -------
    checksum : str
        As in `Fitted`.

    Raises
    ------
    ValueError
        For what could not be read again.
    """
    given = manifest.model_dump(warnings=False)  # some may be numbers of NumPy
    content = json.loads(json.dumps(given, default=to_jsonable))
    text = json.dumps({"sha256": _digest(content), **content}, indent=1, allow_nan=False)
    encoded = text.encode() + b"\n"
    if len(encoded) > MAX_BYTES:
        raise ValueError(
            f"the manifest of this model has {len(encoded) / 2**20:.0f} MiB, and at most "
            f"{MAX_BYTES / 2**20:.0f} MiB are read: what is learned of "
            f"{manifest.n_features_in} columns is too much. Measure fewer columns."
        )
    Manifest.model_validate_json(json.dumps(content))
    Folder(url).write(MANIFEST_NAME, encoded)
    return _checksum(content)


def keep_manifest(url: str) -> None:
    """Copy the manifest of a model that is about to be replaced."""
    folder = Folder(url)
    text = folder.read(MANIFEST_NAME, MAX_BYTES)
    if text is not None:
        folder.write(PREVIOUS_NAME, text)


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
    text = Folder(url).read(MANIFEST_NAME, MAX_BYTES)
    if text is None:
        raise FileNotFoundError(f"{name} is missing: there is no model")
    try:
        content = dict(json.loads(text))
        digest = content.pop("sha256", None)
        is_as_written = digest == _digest(content)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} was cut short or altered: it is no JSON") from error
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{name} is of format {content.get('format')!r}, and this version of lpe_dask "
            f"reads format {FORMAT}"
        )
    if not is_as_written:
        raise ValueError(f"{name} was altered after it was written")
    try:
        manifest = Manifest.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise ValueError(f"{name} describes no model: {_first_problem(error)}") from error
    return manifest.model_copy(update={"checksum": _checksum(content)})


def _first_problem(error: ValidationError) -> str:
    """Return where something else was expected first, and what."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def _checksum(content: dict[str, Any]) -> str:
    """Return the hash of all that decides what a model says of rows."""
    return _digest(_without_circumstances(content))


def _without_circumstances(content: dict[str, Any]) -> dict[str, Any]:
    decisive = {key: of for key, of in content.items() if key not in _CIRCUMSTANCES}
    if decisive.get("pool") is not None:
        decisive["pool"] = _without_circumstances(decisive["pool"])
    return decisive


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
