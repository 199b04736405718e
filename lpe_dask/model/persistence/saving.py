"""Write a fitted model to a folder: JSON and Parquet, never a pickle.

    Fitted --write_model--> MODEL/data-<hex>/*.parquet, then MODEL/manifest.json

The manifest is replaced by one move, after all else is written: a reader sees the old
model or the new one, never half of one. The files of the model that was replaced stay until
the next time, for those who read it at the moment; so does its manifest, as _previous.json,
for those who want it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.nominal_scores import StoredNominalScores
from lpe_dask.model.persistence.manifest import (
    CALIBRATION_NAME,
    DATA_PATTERN,
    MANIFEST_NAME,
    NOMINAL_NAME,
    POOL_NAME,
    FileEntry,
    Manifest,
    keep_manifest,
    read_manifest,
    write_manifest,
)
from lpe_dask.model.persistence.stored_groups import StoredGroups
from lpe_dask.model.persistence.stored_vectors import (
    CALIBRATION,
    NOMINAL,
    StoredVectors,
    store_vector,
)
from lpe_dask.search import store_reference
from lpe_dask.storage import (
    Folder,
    Lock,
    StoredFile,
    StoredVector,
    child_url,
    package_versions,
    retried_until_visible,
    single_line,
    to_jsonable,
)


def write_model(fitted: Fitted, lock: Lock) -> Fitted:
    """Write a model to a locked folder, in the place of an earlier one; computes.

    Returns it with its checksum.

    Parameters
    ----------
    fitted : Fitted
    lock : Lock
        Of the folder.
    """
    url = lock.url
    data = f"data-{uuid4().hex[:12]}"
    try:
        manifest = _written(fitted, data, child_url(url, data))
        replaced = _data_folder(url)
        lock.verify()
        if replaced is not None:
            keep_manifest(url)
        checksum = write_manifest(manifest, url)
    except BaseException:
        with suppress(Exception):  # the next save tidies up
            if not _is_published(data, url):
                Folder(url).remove(data)
        raise
    _remove_others(Folder(url), {data, replaced})
    return replace(fitted, checksum=checksum)


def _written(fitted: Fitted, data: str, url: str) -> Manifest:
    """Write all files of a model to a folder; return its manifest."""
    Folder(url).make()
    groups, of_groups = StoredGroups.of(fitted) if fitted.has_groups else (None, {})
    files, block_rows = _write_files(fitted, url, of_groups)
    _wait_until_visible(files)
    manifest = _manifest_of(fitted, data, files, block_rows, groups)
    if fitted.pool is None:
        return manifest
    of_pool = _written(replace(fitted.pool, source=None), data, child_url(url, POOL_NAME))
    return manifest.model_copy(update={"pool": of_pool})


def check_place(folder: Folder) -> None:
    """Raise FileExistsError if something else than a model is there."""
    names = ["a file"] if folder.is_file() else folder.names()
    foreign = sorted(name for name in names if not _is_model_file(name))
    if foreign:
        raise FileExistsError(
            f"{folder.url} contains files that are not part of a model: "
            f"{', '.join(foreign[:3])}. Give the model a separate folder."
        )


def _is_model_file(name: str) -> bool:
    return name == MANIFEST_NAME or name[0] in "_." or _is_data(name)


def _is_data(name: str) -> bool:
    return re.fullmatch(DATA_PATTERN, name) is not None


def _write_files(
    fitted: Fitted, url: str, others: Mapping[str, Mapping[str, NDArray[Any]]]
) -> tuple[dict[str, StoredFile], list[int]]:
    """Write all files but the manifest; return them by name, and the rows of the blocks.

    ``others`` are columns of further files.
    """
    files, block_rows = store_reference(fitted.reference, url)
    vectors, columns = _vectors(fitted), dict(others)
    for name, vector in vectors.items():
        files |= store_vector(vector, name, url)
    if CALIBRATION not in vectors:
        values = np.asarray(fitted.calibration.stored_values)
        columns[CALIBRATION_NAME] = {"statistic": values}
    if NOMINAL not in vectors and (scores := _nominal_scores(fitted)) is not None:
        columns[NOMINAL_NAME] = scores
    for name, of_file in columns.items():
        files[name] = StoredFile.write(child_url(url, name), of_file)
    return files, block_rows


def _vectors(fitted: Fitted) -> dict[str, StoredVector]:
    """Return the statistics that are on storage, and of which each file is stored."""
    vectors: dict[str, Any] = {
        CALIBRATION: fitted.calibration.values, NOMINAL: fitted.nominal_scores.vector()
    }  # fmt: skip
    return {name: of for name, of in vectors.items() if isinstance(of, StoredVector)}


def _nominal_scores(fitted: Fitted) -> dict[str, NDArray[np.float64]] | None:
    """Return the columns of the nominal rows; None if some are yet to be measured.

    Of groups it is only small ones that may have rows which were not measured by the fit:
    they are measured now, where they can be. Which of them a pool measures is not stored.
    """
    if fitted.pool is not None:
        return None
    own = fitted.nominal_scores
    columns = own.columns()
    if columns is not None or fitted.groups is None or isinstance(own, StoredNominalScores):
        return columns
    if not fitted.groups.measures_all():
        return None
    if not fitted.groups.small.value.any() or fitted.reference.space.groups is not None:
        return replace(own, others=None).columns()
    return own.columns_of_all(fitted.reference, fitted.calibration)


def _wait_until_visible(files: dict[str, StoredFile]) -> None:
    for file in files.values():
        try:
            retried_until_visible(file.check_size)()
        except (OSError, ValueError) as error:
            raise OSError(
                f"a file that the workers wrote is not visible from this machine: "
                f"{single_line(error)}. Give a folder that this machine and all workers "
                f"share."
            ) from error


def _manifest_of(
    fitted: Fitted,
    data: str,
    files: dict[str, StoredFile],
    block_rows: list[int],
    groups: StoredGroups | None,
) -> Manifest:
    vectors = _vectors(fitted)
    parameters, names = dict(fitted.parameters), fitted.columns
    del parameters["anomaly_log_density"]  # a function: given to `load` again
    reference = fitted.reference
    return Manifest(
        data=data,
        source=fitted.source,
        parameters=json.loads(json.dumps(parameters, default=to_jsonable)),
        has_anomaly_log_density=fitted.calibration.weight is not None,
        n_dropped=fitted.n_dropped,
        n_confirmed=fitted.n_confirmed,
        confirmed_digest=fitted.confirmed_digest,
        created=fitted.created,
        run_date=fitted.run_date,
        n_features_in=fitted.n_features,
        feature_names_in=names,
        offset=fitted.offset,
        confidence=fitted.confidence,
        division=fitted.division,
        statistic=reference.shape.statistic,
        categories=fitted.categories,
        ranges=fitted.ranges,
        minima=fitted.minima,
        space=reference.space,
        neighbor_graph=reference.shape.graph_params,
        block_rows=block_rows,
        quality=fitted.quality,
        certificate=fitted.certificate,
        groups=groups,
        vectors=StoredVectors(**{name: len(of.files) for name, of in vectors.items()}),
        files={
            name: FileEntry(n_bytes=file.n_bytes, sha256=file.sha256)
            for name, file in files.items()
        },
        versions=package_versions("lpe_dask", "numpy", "pandas", "pyarrow"),
    )


def _is_published(data: str, url: str) -> bool:
    """Return whether an error came after the manifest was in its place."""
    try:
        return read_manifest(url).data == data
    except FileNotFoundError:
        return False


def _data_folder(url: str) -> str | None:
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
        if is_old or name.startswith((f".{MANIFEST_NAME}.", "._lock.")):
            with suppress(OSError):
                folder.remove(name)
