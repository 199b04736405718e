"""Read a model from its folder; no code is run that comes from there.

MODEL --read_latest--> Fitted, whose blocks are read by the tasks that search
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.arguments import LogDensity
from lpe_dask.model.calibration_split import INCLUDES_SELF, GroupedSize
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.lpe_parameters import check_parameters
from lpe_dask.model.nominal_scores import StoredNominalScores
from lpe_dask.model.persistence.manifest import (
    CALIBRATION_NAME,
    MANIFEST_NAME,
    NOMINAL_NAME,
    POOL_NAME,
    Manifest,
    columns_from_json,
    read_manifest,
)
from lpe_dask.model.persistence.stored_groups import LoadedGroups
from lpe_dask.model.persistence.stored_vectors import (
    CALIBRATION,
    NOMINAL,
    load_vector,
)
from lpe_dask.pvalues import Calibration, LikelihoodRatio
from lpe_dask.storage import (
    RefusedError,
    SortedVector,
    StoredFile,
    StoredVector,
    child_url,
    single_line,
)
from lpe_dask.tables import InputKind

#: Files of up to so many bytes in all are compared with their hashes at once; larger ones
#: by the tasks that read them.
MAX_HASHED_BYTES = 64 * 2**20


@contextmanager
def with_remedy(path: str | PathLike[str]) -> Iterator[None]:
    """Name the folder of a model that cannot be loaded, and the remedy, in one line."""
    try:
        yield
    except RefusedError:  # it says itself what to check
        raise
    except (OSError, ValueError) as error:
        kinds = (FileNotFoundError, OSError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(
            f"no model can be loaded from {fspath(path)}: {single_line(error)}. Fit it "
            f"again (overwrite=True, --overwrite), or give the folder of a complete model."
        ) from error


def with_log_density(
    fitted: Fitted, manifest: Manifest, path: Any, log_density: LogDensity | None
) -> Fitted:
    """Return a model with the function that it was fitted with, and that is not stored."""
    was_given = manifest.has_anomaly_log_density
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
    graph = fitted.calibration.graph
    weight = LikelihoodRatio(log_density, graph, fitted.has_groups)
    calibration, pool = fitted.calibration.with_weight(weight), fitted.pool
    if pool is not None:
        pool = replace(
            pool, calibration=pool.calibration.with_weight(weight.without_groups())
        )
    return replace(fitted, parameters=parameters, calibration=calibration, pool=pool)


def source_of(manifest: Manifest) -> str:
    """Return what tells a model from others; see `ModelFolder.source`."""
    return manifest.source or manifest.data


def read_latest(url: str, *, sizes_only: bool = False) -> tuple[Manifest, Fitted]:
    """Return a model that others may be replacing at the same time.

    Its files are compared with their hashes if they are small, and not ``sizes_only``.
    """
    manifest, max_hashed = read_manifest(url), 0 if sizes_only else MAX_HASHED_BYTES
    while True:
        try:
            folder = child_url(url, manifest.data)
            return manifest, _read(manifest, folder, url, max_hashed)
        except FileNotFoundError:
            before, manifest = manifest, read_manifest(url)
            if manifest.data == before.data:
                raise


def _read(manifest: Manifest, folder: str, url: str, max_hashed: int) -> Fitted:
    """Return the model of a manifest, whose files are in a folder of that at ``url``."""
    files = {
        name: StoredFile(child_url(folder, name), file.n_bytes, file.sha256)
        for name, file in manifest.files.items()
    }
    _check_names(manifest, url)
    _check_files(list(files.values()), max_hashed)
    division = manifest.division
    groups, stored = _groups(files, manifest), manifest.reference
    categories = manifest.categories
    if groups is not None:
        categories = groups.in_categories(categories)
        stored = replace(stored, space=groups.in_space(stored.space))
    n_input = division.n_rows + manifest.n_dropped
    calibration = _calibration(files, manifest, groups)
    looks_up = isinstance(calibration.values, SortedVector)
    n_held = 0 if looks_up else len(calibration.values)
    nominal: StoredFile | StoredVector | None = files.get(NOMINAL_NAME)
    if (n_files := manifest.vectors.nominal) is not None:
        nominal = load_vector(files, NOMINAL, n_files, n_input)
        if len(nominal) != n_input:
            raise ValueError(f"{folder} holds {len(nominal)} of {n_input} statistics")
    return Fitted(
        parameters=_parameters(manifest),
        columns=columns_from_json(manifest.feature_names_in),
        n_dropped=manifest.n_dropped,
        n_confirmed=manifest.n_confirmed,
        confirmed_digest=manifest.confirmed_digest,
        created=manifest.created,
        run_date=manifest.run_date,
        checksum=manifest.checksum or None,
        offset=manifest.offset,
        confidence=manifest.confidence,
        reference=stored.load(files, n_held),
        calibration=calibration,
        nominal_scores=StoredNominalScores(
            nominal,
            n_input,
            manifest.has_anomaly_log_density or calibration.weigher is not None,
            manifest.pool is not None,
        ),
        nominal=InputKind(),
        division=division,
        ranges=manifest.ranges,
        quality=manifest.quality,
        certificate=manifest.certificate,
        source=source_of(manifest),
        categories=categories,
        minima=manifest.minima,
        groups=None if groups is None else groups.fitted,
        pool=(
            None
            if manifest.pool is None
            else _read(manifest.pool, child_url(folder, POOL_NAME), url, max_hashed)
        ),
    )


def _parameters(manifest: Manifest) -> dict[str, Any]:
    given = manifest.parameters
    named = {name: columns_from_json(given[name]) for name in ("categorical", "by")}
    return given | named | {"own": tuple(given["own"]), "anomaly_log_density": None}


def _check_names(manifest: Manifest, url: str) -> None:
    """Demand the files that the manifest lists, and no others, wherever they may be."""
    needed = manifest.reference.file_names() | manifest.vectors.file_names()
    if manifest.vectors.calibration is None:
        needed |= {CALIBRATION_NAME}
    if manifest.groups is not None:
        needed |= manifest.groups.file_names()
    found = set(manifest.files) - {NOMINAL_NAME}
    if found != needed:
        odd = sorted(found ^ needed)
        raise ValueError(f"{url}/{MANIFEST_NAME} names other files than needed: {odd[:3]}")


def _check_files(files: list[StoredFile], max_hashed: int) -> None:
    is_small = sum(file.n_bytes for file in files) <= max_hashed
    for file in files:
        if is_small:
            file.check()
        else:
            file.check_size()


def _calibration(
    files: Mapping[str, StoredFile], manifest: Manifest, groups: LoadedGroups | None
) -> Calibration:
    n_rows, kind = manifest.division.n_rows, manifest.division.kind
    graph = "radius" if manifest.statistic.n_neighbors is None else "knn"
    if (n_files := manifest.vectors.calibration) is not None:
        vector = load_vector(files, CALIBRATION, n_files, n_rows)
        assert isinstance(vector, SortedVector)
        return Calibration.of(graph, INCLUDES_SELF[kind], None, vector)
    file = files[CALIBRATION_NAME]
    file.check_plausible(1, n_rows)
    values: NDArray[np.float64] = file.columns({"statistic": np.float64})["statistic"]
    if not 1 <= len(values) <= n_rows:  # users may have set others than the fit
        raise ValueError(f"{file.url} holds {len(values)} of {n_rows} statistics")
    statistics = None if groups is None else groups.statistics(file, values)
    if statistics is not None:
        _check_ascending(file, values, statistics.starts)
        return Calibration.of_groups(graph, INCLUDES_SELF[kind], None, statistics)
    _check_ascending(file, values)
    return Calibration.of(graph, INCLUDES_SELF[kind], None, values)


def _check_ascending(
    file: StoredFile,
    values: NDArray[np.float64],
    starts: NDArray[np.int64] | None = None,
) -> None:
    """Raise unless statistics ascend, or those of each group, which begin at ``starts``."""
    is_less = values[1:] < values[:-1]
    if starts is not None:
        firsts = starts[(starts > 0) & (starts < len(values))]
        is_less[firsts - 1] = False
    if np.isnan(values).any() or is_less.any():
        raise ValueError(f"{file.url} is not sorted or contains NaN")


def _groups(files: Mapping[str, StoredFile], manifest: Manifest) -> LoadedGroups | None:
    division = manifest.division
    if manifest.groups is None or not isinstance(division, GroupedSize):
        return None
    return manifest.groups.load(
        files, division, manifest.statistic, manifest.space, manifest.n_columns
    )
