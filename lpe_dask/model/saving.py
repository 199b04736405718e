"""Write a fitted model to a folder, and read it: JSON and Parquet, never a pickle.

    Fitted --save_fitted--> MODEL/data-<hex>/*.parquet, then MODEL/manifest.json
    MODEL  --load_fitted--> Fitted, whose blocks are read by the tasks that search

The manifest is replaced by one move, after all else is written: a reader sees the old
model or the new one, never half of one. The files of the model that was replaced stay until
the next time, for those who read it at the moment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.audit import Approximate
from lpe_dask.model.certificate import Certificate, Quality
from lpe_dask.model.fitted import Fitted, NominalKind
from lpe_dask.model.manifest import (
    DATA_PATTERN,
    FORMAT,
    MANIFEST_NAME,
    FileEntry,
    FittedEntry,
    Manifest,
    NewerFormatError,
    block_name,
    index_name,
    read_manifest,
    write_manifest,
)
from lpe_dask.model.own_values import StoredOwnValues
from lpe_dask.model.parameters import check_parameters
from lpe_dask.model.space_entries import entry_of_space, space_of_entry
from lpe_dask.pvalues import Calibration, DensityWeight, LogDensity
from lpe_dask.search import (
    LARGEST_BLOCK,
    Guide,
    NeighborGraphParams,
    Reference,
    SearchShape,
    Statistic,
    StoredBlocks,
    load_blocks,
    load_graph,
    load_indexes,
    store_blocks,
    store_graph,
    store_indexes,
)
from lpe_dask.storage import (
    FLOAT64,
    Folder,
    Lock,
    StoredFile,
    check_token,
    hold,
    package_versions,
    plain,
    retried_until_seen,
    write_columns,
)
from lpe_dask.tables import name_from_json, name_to_json, to_numpy
from lpe_dask.tasks import compute

#: Files of up to so many bytes in all are compared with their hashes at once; larger ones
#: by the tasks that read them.
CHECKED_BYTES = 64 * 2**20

#: Names of the files beside those of the blocks.
_CALIBRATION, _NOMINAL = "calibration.parquet", "nominal.parquet"
_STARTS, _EDGES = "graph-starts.parquet", "graph-edges.parquet"


def model_url(path: str | PathLike[str]) -> str:
    """Return the URL of a model's folder, the same from wherever it is looked at."""
    return Folder(path).full_url()


# Write


def reserved_model(url: str) -> AbstractContextManager[Lock]:
    """Make the folder of a model and lock it; remove it again if the work fails.

    Raises
    ------
    FileExistsError
        If something else is there.
    OSError
        If nothing can be written there, or another run holds the lock.
    """
    existed = Folder(url).exists()
    if existed:
        _check_place(Folder(url))
    refusal = "no model can be written to {url}"
    return hold(url, "save a model", refusal, is_ours=not existed)


def save_model(fitted: Fitted, path: str | PathLike[str], *, overwrite: bool) -> None:
    """Write a model to a folder, as `LPE.save` does; computes."""
    url = model_url(path)
    with reserved_model(url) as lock:
        if Folder(url).exists(MANIFEST_NAME) and not overwrite:
            raise FileExistsError(
                f"there is a model at {url}. Give another folder, or replace it "
                f"(overwrite=True)."
            )
        save_fitted(fitted, lock)


def save_fitted(fitted: Fitted, lock: Lock) -> None:
    """Write a model to the folder of a `reserved_model`; computes.

    Raises
    ------
    ValueError
        For parameters that were changed after the fit, to what could not be loaded.
    OSError
        If it cannot be written, or this process does not see what the workers wrote.
    """
    check_parameters(fitted.parameters)
    url = lock.url
    data = f"data-{uuid4().hex[:12]}"
    try:
        Folder(f"{url}/{data}").make()
        files, block_rows = _write_files(fitted, f"{url}/{data}")
        _check_seen(files)
        replaced = _data_of(url)
        check_token(url, lock.token)
        write_manifest(_manifest(fitted, data, files, block_rows), url)
    except BaseException:
        with suppress(Exception):  # the next save tidies up
            if not _is_published(data, url):
                Folder(url).remove(data)
        raise
    _remove_others(Folder(url), {data, replaced})


def _check_place(folder: Folder) -> None:
    names = ["a file"] if folder.is_file() else folder.names()
    foreign = sorted(name for name in names if not _is_ours(name))
    if foreign:
        raise FileExistsError(
            f"{folder.url} contains files that are not part of a model: "
            f"{', '.join(foreign[:3])}. Give the model a separate folder."
        )


def _is_ours(name: str) -> bool:
    return name == MANIFEST_NAME or name[0] in "_." or _is_data(name)


def _is_data(name: str) -> bool:
    return re.fullmatch(DATA_PATTERN, name) is not None


def _write_files(fitted: Fitted, url: str) -> tuple[dict[str, StoredFile], list[int]]:
    """Write all files but the manifest; return them by name, and the rows of the blocks."""
    reference = fitted.reference
    names = [block_name(i) for i in range(len(reference.blocks))]
    tasks = store_blocks(
        reference.blocks.tasks(), len(names), reference.shape.n_features,
        [f"{url}/{name}" for name in names],
    )  # fmt: skip
    stored = compute(*tasks)
    files = {name: file for name, (_, file) in zip(names, stored, strict=True)}
    if reference.graph is not None:
        (graph,) = reference.graph.tasks()
        task = store_graph(graph, f"{url}/{_STARTS}", f"{url}/{_EDGES}")
        ((files[_STARTS], files[_EDGES]),) = compute(task)
    if reference.indexes is not None:
        names = [index_name(i) for i in range(len(reference.indexes))]
        tasks = store_indexes(
            reference.blocks.tasks(), reference.indexes.tasks(),
            [f"{url}/{name}" for name in names],
        )  # fmt: skip
        files |= dict(zip(names, compute(*tasks), strict=True))
    calibration = {"statistic": fitted.calibration.values}
    files[_CALIBRATION] = write_columns(f"{url}/{_CALIBRATION}", calibration)
    if (columns := fitted.own_values.columns()) is not None:
        files[_NOMINAL] = write_columns(f"{url}/{_NOMINAL}", columns)
    return files, [n_rows for n_rows, _ in stored]


def _check_seen(files: dict[str, StoredFile]) -> None:
    for file in files.values():
        try:
            retried_until_seen(file.check_size)()
        except (OSError, ValueError) as error:
            raise OSError(
                f"a file that the workers wrote is not visible from this machine: {error}. "
                f"Give a folder that this machine and all workers share."
            ) from error


def _manifest(
    fitted: Fitted, data: str, files: dict[str, StoredFile], block_rows: list[int]
) -> Manifest:
    reference = fitted.reference
    graph, calibration, names = (
        reference.shape.graph_params,
        fitted.calibration,
        fitted.columns,
    )
    parameters = dict(fitted.parameters)
    del parameters["anomaly_log_density"]  # a function: given to `load` again
    return Manifest.model_validate(
        {
            "format": FORMAT,
            "data": data,
            "parameters": json.loads(json.dumps(parameters, default=plain)),
            "source": fitted.source,
            "fitted": {
                "n_samples": fitted.n_samples,
                "n_dropped": fitted.n_dropped,
                "n_features_in": fitted.n_features,
                "feature_names_in": names and list(map(name_to_json, names)),
                "n_neighbors": fitted.n_neighbors,
                "radius": fitted.radius,
                "offset": fitted.offset,
                "graph": calibration.graph,
                "counts_itself": calibration.counts_itself,
                "has_anomaly_log_density": calibration.weight is not None,
            },
            "reference": {
                "n_rows": reference.shape.n_reference,
                "algorithm": reference.space.algorithm,
                "space": entry_of_space(reference.space),
                "neighbor_graph": graph
                and {"n_neighbors": graph.n_neighbors, "graph": graph.graph},
                "block_rows": block_rows,
            },
            "approximate": _approximate_entry(fitted.approximate),
            "files": {
                name: FileEntry(n_bytes=file.n_bytes, sha256=file.sha256)
                for name, file in files.items()
            },
            "versions": package_versions("lpe_dask", "numpy", "pandas", "pyarrow"),
        }
    )


def _approximate_entry(approximate: Approximate | None) -> dict[str, Any] | None:
    if approximate is None:
        return None
    guide = approximate.guide
    return {
        "guide": {
            "width": guide.width,
            "n_asked": guide.n_asked,
            "exact_blocks": list(guide.exact_blocks),
            "suspects": list(guide.suspects),
        },
        "certificate": approximate.certificate.as_json(),
        "seed": approximate.quality.seed,
        "pynndescent": approximate.pynndescent,
    }


def _approximate(manifest: Manifest) -> Approximate | None:
    entry = manifest.approximate
    if entry is None:
        return None
    guide = entry.guide
    return Approximate(
        Guide(guide.width, guide.n_asked, tuple(guide.exact_blocks), tuple(guide.suspects)),
        Certificate(**dict(entry.certificate)),
        replace(Quality.of(manifest.parameters), seed=entry.seed),
        entry.pynndescent,
    )


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


def _remove_others(folder: Folder, kept: Iterable[str | None]) -> None:
    """Remove the files of models before the last, and what an interrupted save has left."""
    kept = set(kept)
    for name in folder.names():
        is_old = _is_data(name) and name not in kept
        if is_old or name.startswith(f".{MANIFEST_NAME}."):
            with suppress(OSError):
                folder.remove(name)


# Read


def load_fitted(
    path: str | PathLike[str], anomaly_log_density: LogDensity | None = None
) -> Fitted:
    """Return the model in the folder ``path``; computes nothing, and reads no blocks.

    Its ``source`` is what `model_source` says, of one reading: others may be replacing the
    model at the same time.

    Raises
    ------
    FileNotFoundError, ValueError, OSError
        As `load`.
    """
    try:
        manifest, fitted = _read_latest(model_url(path))
    except (OSError, ValueError) as error:
        remedy = "Save it again, or give the folder of a complete model."
        if isinstance(error, NewerFormatError):
            remedy = "Load it with a newer version, or fit again."
        kinds = (FileNotFoundError, OSError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        text = " ".join(str(error).split()).rstrip(".")
        raise kind(
            f"no model can be loaded from {fspath(path)}: {text}. {remedy}"
        ) from error
    return _with_log_density(fitted, manifest, path, anomaly_log_density)


def _with_log_density(
    fitted: Fitted, manifest: Manifest, path: Any, log_density: LogDensity | None
) -> Fitted:
    """Return a model with the function that it was fitted with, and that is not stored."""
    was_given = manifest.fitted.has_anomaly_log_density
    if was_given != (log_density is not None):
        was, remedy = ("with", "that same function") if was_given else ("without", "none")
        raise ValueError(
            f"the model at {fspath(path)} was fitted {was} anomaly_log_density. Give "
            f"{remedy} to load(path, anomaly_log_density=...)."
        )
    if log_density is None:
        return fitted
    parameters = fitted.parameters | {"anomaly_log_density": log_density}
    check_parameters(parameters)
    weight = DensityWeight(log_density, fitted.calibration.graph)
    return replace(
        fitted,
        parameters=parameters,
        calibration=replace(fitted.calibration, weight=weight),
    )


def model_source(path: str | PathLike[str]) -> str | None:
    """Return what tells the model at ``path`` from others; None if there is none.

    Models that a run has fitted are identified by files and parameters, others by their
    folder of files, which has a new name each time.

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


def _read_latest(url: str) -> tuple[Manifest, Fitted]:
    """Return a model that others may be replacing at the same time."""
    manifest = read_manifest(url)
    while True:
        try:
            return manifest, _read(manifest, url)
        except FileNotFoundError:
            before, manifest = manifest, read_manifest(url)
            if manifest.data == before.data:
                raise


def _read(manifest: Manifest, url: str) -> Fitted:
    entry = manifest.fitted
    files = {
        name: StoredFile(f"{url}/{manifest.data}/{name}", file.n_bytes, file.sha256)
        for name, file in manifest.files.items()
    }
    _check_names(manifest, url)
    _check_files(list(files.values()))
    values = _calibration(files[_CALIBRATION], entry)
    asked, names = manifest.parameters["calibration"], entry.feature_names_in
    loo = "loo" if asked == "auto" else asked
    return Fitted(
        parameters=manifest.parameters | {"anomaly_log_density": None},
        columns=None if names is None else list(map(name_from_json, names)),
        n_samples=entry.n_samples,
        n_dropped=entry.n_dropped,
        offset=entry.offset,
        calibration_kind="conformal" if entry.counts_itself else loo,
        reference=_reference(manifest, files, len(values)),
        calibration=Calibration.of(entry.graph, entry.counts_itself, None, values),
        own_values=StoredOwnValues(
            files.get(_NOMINAL),
            entry.n_samples + entry.n_dropped,
            entry.has_anomaly_log_density,
        ),
        nominal=NominalKind(to_numpy),
        approximate=_approximate(manifest),
        source=_source_of(manifest),
    )


def _check_names(manifest: Manifest, url: str) -> None:
    """Demand the files that the manifest tells of, and no others, wherever they may be."""
    reference, found = manifest.reference, set(manifest.files)
    needed = {block_name(i) for i in range(len(reference.block_rows))} | {_CALIBRATION}
    if reference.neighbor_graph is not None:
        needed |= {_STARTS, _EDGES}
    if manifest.approximate is not None:
        needed |= {index_name(i) for i in range(len(reference.block_rows))}
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


def _calibration(file: StoredFile, fitted: FittedEntry) -> NDArray[np.float64]:
    values: NDArray[np.float64] = file.columns({"statistic": FLOAT64})["statistic"]
    if not 1 <= len(values) <= fitted.n_samples:
        raise ValueError(f"{file.url} holds {len(values)} of {fitted.n_samples} statistics")
    if np.isnan(values).any() or (values[1:] < values[:-1]).any():
        raise ValueError(f"{file.url} is not sorted or contains NaN")
    if fitted.graph == "radius" and not fitted.has_anomaly_log_density:
        is_within = values[0] >= 0 and values[-1] <= fitted.n_samples
        if not is_within or (values != np.floor(values)).any():
            raise ValueError(f"{file.url} contains values that are not counts")
    return values


def _reference(
    manifest: Manifest, files: dict[str, StoredFile], calibration_rows: int
) -> Reference:
    entry, fitted = manifest.reference, manifest.fitted
    space = space_of_entry(entry.space, entry.algorithm)
    blocks = [(files[block_name(i)], n_rows) for i, n_rows in enumerate(entry.block_rows)]
    load = partial(load_blocks, blocks, entry.n_rows, space)
    params = graph = None
    if entry.neighbor_graph is not None:
        params = NeighborGraphParams(**dict(entry.neighbor_graph))
        edges = partial(load_graph, files[_STARTS], files[_EDGES], entry.n_rows)
        graph = StoredBlocks(edges, 1)
    shape = SearchShape(
        entry.n_rows, fitted.n_features_in,
        Statistic(fitted.n_neighbors, fitted.radius), params,
        calibration_rows, -(-max(entry.block_rows) // LARGEST_BLOCK),
        is_indexed=space.is_indexed,
    )  # fmt: skip
    stored, indexes = StoredBlocks(load, len(blocks)), None
    if space.is_indexed:
        pairs = [
            (file, files[index_name(i)], n_rows) for i, (file, n_rows) in enumerate(blocks)
        ]
        load_all = partial(load_indexes, pairs, entry.n_rows, space)
        indexes = StoredBlocks(load_all, len(blocks))
    return Reference(shape, space, stored, graph, indexes)
