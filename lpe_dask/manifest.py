"""The manifest of a model on disk: what it is, and which files belong to it.

    MODEL/manifest.json             written last, and replaced as a whole
    MODEL/data-<hex>/*.parquet      the numbers, of which it holds the hashes

A manifest has a hash of its own, so that a change of it is noticed, too. What it says is
checked as if a stranger had written it: kernels trust their input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import fsspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lpe_dask.whole_files import whole_file

#: The version of the format that is written, and the latest that can be read.
FORMAT = 1

#: Name of the file.
MANIFEST_NAME = "manifest.json"

_Count = Annotated[int, Field(ge=0)]
_Vector = list[float]
_Matrix = list[list[float]]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class FileEntry(_Section):
    """A file of the model: its size, and the hash of its content."""

    n_bytes: _Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Fitted(_Section):
    """What `fit` has found, and settled about p-values."""

    n_samples: Annotated[int, Field(ge=1)]
    n_dropped: _Count
    n_features_in: Annotated[int, Field(ge=1)]
    feature_names_in: list[str] | None
    n_neighbors: Annotated[int, Field(ge=1)] | None
    radius: Annotated[float, Field(ge=0)] | None
    offset: Annotated[float, Field(gt=0, le=1)]
    graph: Literal["knn", "radius"]
    counts_itself: Literal[0, 1]
    has_anomaly_log_density: bool


class ScalingEntry(_Section):
    """Of `preparation.Scaling`."""

    shift: _Vector | None
    factor: _Vector | None
    divisor: _Vector | None


class LinearMapEntry(_Section):
    """Of `preparation.LinearMap`."""

    factor: _Vector | None
    divisor: _Vector | None
    matrix: _Matrix | None


class FrameEntry(_Section):
    """Of `kernels.frames.Frame`."""

    center: _Vector
    exponent: Annotated[int, Field(ge=-1000, le=1000)]
    rotation: _Matrix | None


class SplitEntry(_Section):
    """Of `locality.Split`."""

    axes: list[int]
    thresholds: _Vector
    children: list[_Count]

    @model_validator(mode="after")
    def _is_tree(self) -> SplitEntry:
        """Demand that every walk ends in a part: children come after their node."""
        n_nodes = len(self.axes)
        if not n_nodes == len(self.thresholds) == len(self.children) > 0:
            raise ValueError("axes, thresholds and children differ in length")
        inner = [i for i in range(n_nodes) if self.axes[i] >= 0]
        leaves = sorted(self.children[i] for i in range(n_nodes) if self.axes[i] < 0)
        if any(not i < self.children[i] < n_nodes - 1 for i in inner):
            raise ValueError("a node has no two children after it")
        if leaves != list(range(len(leaves))):
            raise ValueError("the parts are not numbered from 0 on")
        return self


class SpaceEntry(_Section):
    """Of `packing.Space`."""

    scaling: ScalingEntry
    linear_map: LinearMapEntry
    frame: FrameEntry
    split: SplitEntry | None
    with_samples: bool


class NeighborGraphEntry(_Section):
    """Of `metrics.NeighborGraphParams`."""

    n_neighbors: Annotated[int, Field(ge=1)]
    graph: Literal["directed", "union"]


class ReferenceEntry(_Section):
    """Of `reference.Reference`; the rows are in a file for each block."""

    n_rows: Annotated[int, Field(ge=1, lt=2**31)]
    algorithm: Literal["brute", "pruned"]
    space: SpaceEntry
    neighbor_graph: NeighborGraphEntry | None
    block_rows: list[Annotated[int, Field(ge=1)]]

    @model_validator(mode="after")
    def _is_whole(self) -> ReferenceEntry:
        if sum(self.block_rows) != self.n_rows:
            raise ValueError("the blocks do not hold n_rows rows")
        return self


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
        Of `LPE`, but for ``anomaly_log_density``.
    fitted : Fitted
    reference : ReferenceEntry
    files : dict of str to FileEntry
    versions : dict of str to str
        Of the packages that wrote it; for people.
    """

    format: Literal[1]
    data: Annotated[str, Field(pattern="^data-[0-9a-f]{12}$")]
    source: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None
    parameters: dict[str, Any]
    fitted: Fitted
    reference: ReferenceEntry
    files: dict[str, FileEntry]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _fits_together(self) -> Manifest:
        n_features = self.fitted.n_features_in
        space = self.reference.space
        vectors = [
            *dict(space.scaling).values(),
            space.linear_map.factor, space.linear_map.divisor, space.frame.center,
            self.fitted.feature_names_in,
        ]  # fmt: skip
        if any(v is not None and len(v) != n_features for v in vectors):
            raise ValueError("a vector has another length than n_features_in")
        for matrix in (space.linear_map.matrix, space.frame.rotation):
            lengths = {n_features} if matrix is None else {len(matrix), *map(len, matrix)}
            if lengths != {n_features}:
                raise ValueError("a matrix has another shape than n_features_in")
        if space.split is not None and max(space.split.axes) >= n_features:
            raise ValueError("the split names a column that is not there")
        if (self.fitted.n_neighbors is None) == (self.fitted.radius is None):
            raise ValueError("it needs n_neighbors or radius, and not both")
        return self


def block_name(i: int) -> str:
    """Return the name of the file of a block."""
    return f"block-{i:05}.parquet"


def write_manifest(manifest: Manifest, url: str) -> None:
    """Publish a model: write its manifest, in the place of an earlier one."""
    content = manifest.model_dump(mode="json")
    text = json.dumps({"sha256": _digest(content), **content}, indent=1, allow_nan=False)
    filesystem, folder = fsspec.core.url_to_fs(url)
    with whole_file(filesystem, folder, MANIFEST_NAME) as file:
        file.write(text.encode() + b"\n")


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
    try:
        with fsspec.open(name, "rb") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{name} is missing: there is no model") from error
    content = _parse(text, name)
    if "sha256" not in content or content.pop("sha256") != _digest(content):
        raise ValueError(f"{name} was altered after it was written")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{name} describes no model: {_first_problem(error)}") from error


def _parse(text: bytes, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} was cut short or altered: it is no JSON") from error
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise ValueError(f"{name} is no manifest of a model: it names no format")
    if content["format"] > FORMAT:
        raise ValueError(
            f"{name} is of format {content['format']}, but this version reads formats up "
            f"to {FORMAT}. Load it with a newer version of lpe_dask, or fit again"
        )
    return content


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    place: Sequence[Any] = first["loc"] or ["the whole"]
    return f"{'.'.join(map(str, place))}: {first['msg']}"
