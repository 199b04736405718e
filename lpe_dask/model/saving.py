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
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.manifest import (
    DATA_PATTERN,
    FORMAT,
    MANIFEST_NAME,
    FileEntry,
    Fitted,
    Manifest,
    NewerFormatError,
    block_name,
    read_manifest,
    write_manifest,
)
from lpe_dask.model.own_values import OwnValues, StoredOwnValues
from lpe_dask.model.parameters import check_parameters
from lpe_dask.model.space_entries import entry_of_space, space_of_entry
from lpe_dask.search import (
    LARGEST_BLOCK,
    Measure,
    NeighborGraphParams,
    Reference,
    Results,
    load_blocks,
    load_graph,
    store_blocks,
    store_graph,
)
from lpe_dask.storage import (
    FLOAT64,
    Lock,
    StoredFile,
    brief,
    check_token,
    hold,
    retried,
    retried_until_seen,
    write_columns,
)
from lpe_dask.tasks import compute

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
        Tells what the model was fitted from, where a run has fitted it. Of a model that
        was read: what `model_source` says.
    """

    parameters: dict[str, Any]
    fitted: dict[str, Any]
    reference: Reference
    calibration: NDArray[np.float64]
    own_values: OwnValues | StoredOwnValues
    source: str | None = None


def model_url(path: str | PathLike[str]) -> str:
    """Return the URL of a model's folder, the same from wherever it is looked at."""
    filesystem, root = fsspec.core.url_to_fs(fspath(path))
    url: str = filesystem.unstrip_protocol(root.rstrip("/"))
    return url


# Write


@contextmanager
def reserved_model(url: str) -> Iterator[Lock]:
    """Make the folder of a model and lock it; take it away if the work comes to nothing.

    Raises
    ------
    FileExistsError
        If something else is there.
    OSError
        If nothing can be written there, or another run holds the lock.
    """
    filesystem, root = fsspec.core.url_to_fs(url)
    existed = retried(filesystem.exists)(root)
    if existed:
        _check_place(filesystem, root, url)
    try:
        retried(filesystem.makedirs)(root, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"no model can be written to {url}: {brief(error)} Give a folder that may be "
            f"written to."
        ) from error
    try:
        with hold(url, "save a model") as lock:
            yield lock
    except BaseException:
        if not existed:
            with suppress(Exception):
                filesystem.rmdir(root)  # as long as it is empty
        raise


def write_model(parts: ModelParts, lock: Lock) -> None:
    """Write a model to the folder of a `reserved_model`; computes.

    Raises
    ------
    ValueError
        For parameters that were changed after the fit, to what could not be loaded.
    OSError
        If it cannot be written, or this process does not see what the workers wrote.
    """
    check_parameters(parts.parameters | {"anomaly_log_density": None})
    url = lock.url
    filesystem, root = fsspec.core.url_to_fs(url)
    data = f"data-{uuid4().hex[:12]}"
    try:
        retried(filesystem.makedirs)(f"{root}/{data}", exist_ok=True)
        files, block_rows = _write_files(parts, f"{url}/{data}")
        _check_seen(filesystem, files)
        replaced = _data_of(url)
        check_token(url, lock.token)
        write_manifest(_manifest(parts, data, files, block_rows), url)
    except BaseException:
        with suppress(Exception):  # the next save tidies up
            if not _is_published(data, url):
                filesystem.rm(f"{root}/{data}", recursive=True)
        raise
    _remove_others(filesystem, root, {data, replaced})


def _check_place(filesystem: Any, root: str, url: str) -> None:
    names = ["a file"]
    if filesystem.isdir(root):
        names = _names_in(filesystem, root)
    foreign = sorted(name for name in names if not _is_ours(name))
    if foreign:
        raise FileExistsError(
            f"{url} holds what is no model: {', '.join(foreign[:3])}. Give a folder of its "
            f"own to the model."
        )


def _is_ours(name: str) -> bool:
    return name == MANIFEST_NAME or name[0] in "_." or _is_data(name)


def _is_data(name: str) -> bool:
    return re.fullmatch(DATA_PATTERN, name) is not None


@retried
def _names_in(filesystem: Any, root: str) -> list[str]:
    paths = filesystem.ls(root, detail=False)
    return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]


def _write_files(parts: ModelParts, url: str) -> tuple[dict[str, StoredFile], list[int]]:
    """Write all files but the manifest; return them by name, and the rows of the blocks."""
    reference = parts.reference
    names = [block_name(i) for i in range(len(reference.blocks))]
    tasks = store_blocks(
        reference.blocks.tasks(), len(names), reference.n_features,
        [f"{url}/{name}" for name in names],
    )  # fmt: skip
    stored = compute(*tasks)
    files = {name: file for name, (_, file) in zip(names, stored, strict=True)}
    if reference.graph is not None:
        (graph,) = reference.graph.tasks()
        task = store_graph(graph, f"{url}/{_STARTS}", f"{url}/{_EDGES}")
        ((files[_STARTS], files[_EDGES]),) = compute(task)
    calibration = {"statistic": parts.calibration}
    files[_CALIBRATION] = write_columns(f"{url}/{_CALIBRATION}", calibration)
    if (columns := parts.own_values.columns()) is not None:
        files[_NOMINAL] = write_columns(f"{url}/{_NOMINAL}", columns)
    return files, [n_rows for n_rows, _ in stored]


def _check_seen(filesystem: Any, files: dict[str, StoredFile]) -> None:
    for file in files.values():
        try:
            _look_for(filesystem, file)
        except (OSError, ValueError) as error:
            raise OSError(
                f"the workers wrote a file that is not to be seen from here: {error}. Give "
                f"a folder that this machine and all workers share."
            ) from error


@retried_until_seen
def _look_for(filesystem: Any, file: StoredFile) -> None:
    filesystem.invalidate_cache()
    file.check_size()


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
                "space": entry_of_space(reference.space),
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


def _is_published(data: str, url: str) -> bool:
    """Return whether an error came after the manifest was in its place."""
    try:
        return read_manifest(url).data == data
    except FileNotFoundError:
        return False


def _data_of(url: str) -> str | None:
    """Return the folder of the model that is to be replaced, if there is a readable one."""
    try:
        return read_manifest(url).data
    except (OSError, ValueError):
        return None


def _remove_others(filesystem: Any, root: str, kept: Iterable[str | None]) -> None:
    """Remove the files of models before the last, and what an interrupted save has left."""
    kept = set(kept)
    for name in _names_in(filesystem, root):
        is_old = _is_data(name) and name not in kept
        if is_old or name.startswith(f".{MANIFEST_NAME}."):
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
        If a file is cut short, altered, or of a newer format, or holds what is no model.
    OSError
        If a file cannot be read.
    """
    try:
        return _read_latest(model_url(path))
    except (OSError, ValueError) as error:
        remedy = "Save it again, or give the folder of a model that is whole."
        if isinstance(error, NewerFormatError):
            remedy = "Load it with a newer version, or fit again."
        kinds = (FileNotFoundError, OSError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        text = " ".join(str(error).split()).rstrip(".")
        raise kind(
            f"no model can be loaded from {fspath(path)}: {text}. {remedy}"
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
    try:
        manifest = read_manifest(model_url(path))
    except FileNotFoundError:
        return None
    return _source_of(manifest)


def _source_of(manifest: Manifest) -> str:
    return manifest.source or manifest.data


def _read_latest(url: str) -> ModelParts:
    """Return the parts of a model that others may be replacing at the same time."""
    manifest = read_manifest(url)
    while True:
        try:
            return _read_parts(manifest, url)
        except FileNotFoundError:
            before, manifest = manifest, read_manifest(url)
            if manifest.data == before.data:
                raise


def _read_parts(manifest: Manifest, url: str) -> ModelParts:
    fitted = manifest.fitted
    files = {
        name: StoredFile(f"{url}/{manifest.data}/{name}", file.n_bytes, file.sha256)
        for name, file in manifest.files.items()
    }
    _check_names(manifest, url)
    _check_files(list(files.values()))
    calibration = _calibration(files[_CALIBRATION], fitted)
    return ModelParts(
        manifest.parameters, dict(fitted), _reference(manifest, files, len(calibration)),
        calibration,
        StoredOwnValues(
            files.get(_NOMINAL), fitted.n_samples + fitted.n_dropped,
            fitted.has_anomaly_log_density,
        ),
        _source_of(manifest),
    )  # fmt: skip


def _check_names(manifest: Manifest, url: str) -> None:
    """Demand the files that the manifest tells of, and no others, wherever they may be."""
    reference, found = manifest.reference, set(manifest.files)
    needed = {block_name(i) for i in range(len(reference.block_rows))} | {_CALIBRATION}
    if reference.neighbor_graph is not None:
        needed |= {_STARTS, _EDGES}
    if found - {_NOMINAL} != needed:
        odd = sorted((found - {_NOMINAL}) ^ needed)
        raise ValueError(f"{url}/{MANIFEST_NAME} names other files than needed: {odd[:3]}")


def _check_files(files: list[StoredFile]) -> None:
    is_small = sum(file.n_bytes for file in files) <= CHECKED_BYTES
    for file in files:
        if is_small:
            file.check()
        else:
            file.check_size()


def _calibration(file: StoredFile, fitted: Fitted) -> NDArray[np.float64]:
    values: NDArray[np.float64] = file.columns({"statistic": FLOAT64})["statistic"]
    if not 1 <= len(values) <= fitted.n_samples:
        raise ValueError(f"{file.url} holds {len(values)} of {fitted.n_samples} statistics")
    if np.isnan(values).any() or (values[1:] < values[:-1]).any():
        raise ValueError(f"{file.url} holds no ascending numbers")
    if fitted.graph == "radius" and not fitted.has_anomaly_log_density:
        is_within = values[0] >= 0 and values[-1] <= fitted.n_samples
        if not is_within or (values != np.floor(values)).any():
            raise ValueError(f"{file.url} holds no numbers of rows")
    return values


def _reference(
    manifest: Manifest, files: dict[str, StoredFile], calibration_rows: int
) -> Reference:
    entry, fitted = manifest.reference, manifest.fitted
    space = space_of_entry(entry.space)
    blocks = [(files[block_name(i)], n_rows) for i, n_rows in enumerate(entry.block_rows)]
    load = partial(load_blocks, blocks, entry.n_rows, space, entry.algorithm)
    params = graph = None
    if entry.neighbor_graph is not None:
        params = NeighborGraphParams(**dict(entry.neighbor_graph))
        edges = partial(load_graph, files[_STARTS], files[_EDGES], entry.n_rows)
        graph = Results(edges, 1, is_stored=True)
    return Reference(
        entry.n_rows, fitted.n_features_in, Measure(fitted.n_neighbors, fitted.radius),
        params, space, entry.algorithm, Results(load, len(blocks), is_stored=True), graph,
        -(-max(entry.block_rows) // LARGEST_BLOCK), calibration_rows,
    )  # fmt: skip
