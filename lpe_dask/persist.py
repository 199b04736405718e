"""Write a fitted model to a folder, and read it: JSON and Parquet, never a pickle.

    ModelParts --write_model--> MODEL/data-<hex>/*.parquet, then MODEL/manifest.json
    MODEL      --read_model-->  ModelParts, whose blocks are read by the tasks that search

The manifest is replaced by one move, after all else is written: whoever reads sees the old
model or the new one, never half of one. The files of the model that was replaced stay until
the next time, for those who read it at the moment.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

import dask
import fsspec
import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.frames import Frame
from lpe_dask.locality import Split
from lpe_dask.locks import hold
from lpe_dask.manifest import (
    FORMAT,
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    block_name,
    read_manifest,
    write_manifest,
)
from lpe_dask.messages import brief
from lpe_dask.metrics import NeighborGraphParams
from lpe_dask.own_values import OwnValues, StoredOwnValues
from lpe_dask.packing import Space, load_blocks
from lpe_dask.plan import LARGEST_BLOCK
from lpe_dask.preparation import LinearMap, Preparation, Scaling
from lpe_dask.reference import Measure, Reference
from lpe_dask.stored import StoredResults, load_graph, store_blocks, store_graph
from lpe_dask.stored_files import StoredFile, write_columns

#: Files of up to so many bytes in all are compared with their hashes at once; larger ones
#: by the tasks that read them.
CHECKED_BYTES = 64 * 2**20

#: Names of the files beside those of the blocks.
_CALIBRATION, _NOMINAL = "calibration.parquet", "nominal.parquet"
_STARTS, _EDGES = "graph-starts.parquet", "graph-edges.parquet"

#: Packages that a manifest names the version of.
_PACKAGES = ("lpe_dask", "numpy", "pandas", "pyarrow")


@dataclass(frozen=True, slots=True)
class ModelParts:
    """What a fitted model consists of.

    Attributes
    ----------
    parameters : dict
        Of `LPE`, but for ``anomaly_log_density``.
    fitted : dict
        Fields of `manifest.Fitted`.
    reference : Reference
    calibration : ndarray of shape (m,)
        As in `LPE`.
    own_values : OwnValues or StoredOwnValues
        Written where they are known of all nominal rows.
    source : str, optional
        Tells what the model was fitted from, where a run has fitted it.
    """

    parameters: dict[str, Any]
    fitted: dict[str, Any]
    reference: Reference
    calibration: NDArray[np.float64]
    own_values: OwnValues | StoredOwnValues
    source: str | None = None


# Write


@contextmanager
def reserved_model(url: str) -> Iterator[None]:
    """Make the folder of a model and lock it; take it away if the work comes to nothing.

    Raises
    ------
    FileExistsError
        If something else is there.
    OSError
        If nothing can be written there, or another run holds the lock.
    """
    filesystem, root = fsspec.core.url_to_fs(url)
    existed = filesystem.exists(root)
    if existed:
        _check_place(filesystem, root, url)
    try:
        filesystem.makedirs(root, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"no model can be written to {url}: {brief(error)} Give a folder that may be "
            f"written to."
        ) from error
    try:
        with hold(url, "save a model"):
            yield
    except BaseException:
        if not existed:
            with suppress(Exception):
                filesystem.rmdir(root)  # as long as it is empty
        raise


def write_model(parts: ModelParts, url: str) -> None:
    """Write a model to a folder that is `reserved_model`; computes.

    Raises
    ------
    OSError
        If it cannot be written, or this process does not see what the workers wrote.
    """
    filesystem, root = fsspec.core.url_to_fs(url)
    data = f"data-{uuid4().hex[:12]}"
    try:
        filesystem.makedirs(f"{root}/{data}", exist_ok=True)
        files, block_rows = _write_files(parts, f"{url}/{data}")
        _check_seen(filesystem, files)
        replaced = _data_of(url)
        write_manifest(_manifest(parts, data, files, block_rows), url)
    except BaseException:
        with suppress(Exception):
            filesystem.rm(f"{root}/{data}", recursive=True)
        raise
    _remove_others(filesystem, root, {data, replaced})


def _check_place(filesystem: Any, root: str, url: str) -> None:
    names = ["a file"]
    if filesystem.isdir(root):
        paths = filesystem.ls(root, detail=False)
        names = [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]
    foreign = sorted(name for name in names if not _is_ours(name))
    if foreign:
        raise FileExistsError(
            f"{url} holds what is no model: {', '.join(foreign[:3])}. Give a folder of its "
            f"own to the model."
        )


def _is_ours(name: str) -> bool:
    return name == MANIFEST_NAME or name.startswith(("data-", "_", "."))


def _write_files(parts: ModelParts, url: str) -> tuple[dict[str, StoredFile], list[int]]:
    """Write all files but the manifest; return them by name, and the rows of the blocks."""
    reference = parts.reference
    names = [block_name(i) for i in range(len(reference.blocks))]
    tasks = store_blocks(
        reference.blocks.tasks(), len(names), reference.n_features,
        [f"{url}/{name}" for name in names],
    )  # fmt: skip
    stored = dask.compute(*tasks)
    files = {name: file for name, (_, file) in zip(names, stored, strict=True)}
    if reference.graph is not None:
        (graph,) = reference.graph.tasks()
        task = store_graph(graph, f"{url}/{_STARTS}", f"{url}/{_EDGES}")
        (files[_STARTS], files[_EDGES]) = task.compute()
    calibration = {"statistic": parts.calibration}
    files[_CALIBRATION] = write_columns(f"{url}/{_CALIBRATION}", calibration)
    if (columns := parts.own_values.columns()) is not None:
        files[_NOMINAL] = write_columns(f"{url}/{_NOMINAL}", columns)
    return files, [n_rows for n_rows, _ in stored]


def _check_seen(filesystem: Any, files: dict[str, StoredFile]) -> None:
    filesystem.invalidate_cache()
    for file in files.values():
        try:
            file.check_size()
        except (OSError, ValueError) as error:
            raise OSError(
                f"the workers wrote a file that is not to be seen from here: {error}. Give "
                f"a folder that this machine and all workers share."
            ) from error


def _manifest(
    parts: ModelParts, data: str, files: dict[str, StoredFile], block_rows: list[int]
) -> Manifest:
    reference = parts.reference
    graph = reference.graph_params
    return Manifest.model_validate(
        {
            "format": FORMAT,
            "data": data,
            "parameters": json.loads(json.dumps(parts.parameters, default=_plain)),
            "source": parts.source,
            "fitted": parts.fitted,
            "reference": {
                "n_rows": reference.n_rows,
                "algorithm": reference.algorithm,
                "space": _entry_of_space(reference.space),
                "neighbor_graph": graph
                and {"n_neighbors": graph.n_neighbors, "graph": graph.graph},
                "block_rows": block_rows,
            },
            "files": {
                name: FileEntry(n_bytes=file.n_bytes, sha256=file.sha256)
                for name, file in files.items()
            },
            "versions": {"python": platform.python_version()}
            | {name: metadata.version(name) for name in _PACKAGES},
        }
    )


def _plain(value: Any) -> Any:
    """Return an array or a number of some library as what JSON knows."""
    plain = np.asarray(value).tolist()
    return plain if isinstance(plain, list | int | float | str) else float(plain)


def _entry_of_space(space: Space) -> dict[str, Any]:
    scaling, linear_map = space.preparation.scaling, space.preparation.linear_map
    split = space.split
    return {
        "scaling": {
            "shift": _list(scaling.shift),
            "factor": _list(scaling.factor),
            "divisor": _list(scaling.divisor),
        },
        "linear_map": {
            "factor": _list(linear_map.factor),
            "divisor": _list(linear_map.divisor),
            "matrix": _list(linear_map.matrix),
        },
        "frame": {
            "center": _list(space.frame.center),
            "exponent": int(space.frame.exponent),
            "rotation": _list(space.frame.rotation),
        },
        "split": None
        if split is None
        else {
            "axes": list(split.axes),
            "thresholds": list(split.thresholds),
            "children": list(split.children),
        },
        "with_samples": space.with_samples,
    }


def _list(values: NDArray[np.float64] | None) -> list[Any] | None:
    return None if values is None else values.tolist()


def _data_of(url: str) -> str | None:
    """Return the folder of the model that is to be replaced, if there is a readable one."""
    try:
        return read_manifest(url).data
    except (OSError, ValueError):
        return None


def _remove_others(filesystem: Any, root: str, kept: Iterable[str | None]) -> None:
    """Remove the files of models before the last, and what an interrupted save has left."""
    kept = set(kept)
    for path in filesystem.ls(root, detail=False):
        name = path.rstrip("/").rsplit("/", 1)[-1]
        if name.startswith("data-") and name not in kept:
            with suppress(OSError):
                filesystem.rm(f"{root}/{name}", recursive=True)


# Read


def read_model(path: str | PathLike[str]) -> ModelParts:
    """Return the model in the folder ``path``; computes nothing, and reads no blocks.

    Raises
    ------
    FileNotFoundError
        If there is no model, or one of its files is missing.
    ValueError
        If a file is cut short, altered, or of a newer format.
    """
    filesystem, root = fsspec.core.url_to_fs(fspath(path))
    url = filesystem.unstrip_protocol(root.rstrip("/"))
    try:
        return _read_parts(url)
    except (FileNotFoundError, ValueError) as error:
        text = str(error).rstrip(".")
        is_missing = isinstance(error, FileNotFoundError)
        raise (FileNotFoundError if is_missing else ValueError)(
            f"no model can be loaded from {fspath(path)}: {text}. Save it again, or give "
            f"the folder of a model that is whole."
        ) from error


def model_source(path: str | PathLike[str]) -> str | None:
    """Return what tells the model at ``path`` from others; None if there is none.

    What a run has fitted is told by its files and parameters, others by their folder of
    files, which is another one each time.

    Raises
    ------
    ValueError
        If the manifest was cut short or altered, or is of a newer format.
    """
    filesystem, root = fsspec.core.url_to_fs(fspath(path))
    try:
        manifest = read_manifest(filesystem.unstrip_protocol(root.rstrip("/")))
    except FileNotFoundError:
        return None
    return manifest.source or manifest.data


def _read_parts(url: str) -> ModelParts:
    manifest = read_manifest(url)
    entry = manifest.reference
    files = {
        name: StoredFile(f"{url}/{manifest.data}/{name}", file.n_bytes, file.sha256)
        for name, file in manifest.files.items()
    }
    blocks = [block_name(i) for i in range(len(entry.block_rows))]
    graph_files = [] if entry.neighbor_graph is None else [_STARTS, _EDGES]
    needed = {*blocks, *graph_files, _CALIBRATION}
    if not needed <= set(files) <= {*needed, _NOMINAL}:
        odd = sorted(set(files) ^ needed)
        raise ValueError(f"{url}/{MANIFEST_NAME} names other files than needed: {odd[:3]}")
    _check_files(list(files.values()))
    calibration = files[_CALIBRATION].columns(["statistic"])["statistic"]
    is_sorted = (
        calibration.dtype == np.float64 and (calibration[1:] >= calibration[:-1]).all()
    )
    if len(calibration) == 0 or not is_sorted:
        raise ValueError(f"{files[_CALIBRATION].url} holds no ascending numbers")
    return ModelParts(
        manifest.parameters, dict(manifest.fitted),
        _reference(manifest, [files[name] for name in blocks], files),
        calibration,
        StoredOwnValues(files.get(_NOMINAL), manifest.fitted.has_anomaly_log_density),
        manifest.source,
    )  # fmt: skip


def _check_files(files: list[StoredFile]) -> None:
    is_small = sum(file.n_bytes for file in files) <= CHECKED_BYTES
    for file in files:
        if is_small:
            file.check()
        else:
            file.check_size()


def _reference(
    manifest: Manifest, blocks: list[StoredFile], files: dict[str, StoredFile]
) -> Reference:
    entry, fitted = manifest.reference, manifest.fitted
    space = _space_of(manifest)
    load = partial(load_blocks, blocks, entry.n_rows, space, entry.algorithm)
    params = graph = None
    if entry.neighbor_graph is not None:
        params = NeighborGraphParams(**dict(entry.neighbor_graph))
        edges = partial(load_graph, files[_STARTS], files[_EDGES], entry.n_rows)
        graph = StoredResults(edges, 1)
    return Reference(
        entry.n_rows, fitted.n_features_in, Measure(fitted.n_neighbors, fitted.radius),
        params, space, entry.algorithm, StoredResults(load, len(blocks)), graph,
        -(-max(entry.block_rows) // LARGEST_BLOCK),
    )  # fmt: skip


def _space_of(manifest: Manifest) -> Space:
    space = manifest.reference.space
    scaling = Scaling(**{name: _array(v) for name, v in space.scaling})
    linear_map = LinearMap(**{name: _array(v) for name, v in space.linear_map})
    center, rotation = _array(space.frame.center), _array(space.frame.rotation)
    assert center is not None
    frame = Frame(center, space.frame.exponent, rotation)
    split = None
    if (tree := space.split) is not None:
        split = Split(tuple(tree.axes), tuple(tree.thresholds), tuple(tree.children))
    return Space(Preparation(scaling, linear_map), frame, split, space.with_samples)


def _array(values: list[Any] | None) -> NDArray[np.float64] | None:
    return None if values is None else np.array(values, dtype=np.float64)
