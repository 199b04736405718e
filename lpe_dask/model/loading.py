"""Read a model from its folder; no code is run that comes from there.

MODEL --load_fitted--> Fitted, whose blocks are read by the tasks that search
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.audit import Approximate, indexed
from lpe_dask.model.certificate import Certificate, Quality
from lpe_dask.model.division import Division
from lpe_dask.model.fitted import Fitted, NominalKind
from lpe_dask.model.manifest import (
    CALIBRATION_NAME,
    EDGES_NAME,
    MANIFEST_NAME,
    NOMINAL_NAME,
    STARTS_NAME,
    ApproximateEntry,
    FittedEntry,
    Manifest,
    NewerFormatError,
    block_name,
    columns_from_json,
    index_name,
    model_url,
    read_manifest,
)
from lpe_dask.model.own_values import StoredOwnValues
from lpe_dask.model.parameters import check_parameters
from lpe_dask.model.space_entries import space_of_entry
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
)
from lpe_dask.storage import FLOAT64, StoredFile
from lpe_dask.tables import Categories, name_from_json, to_numpy

#: Files of up to so many bytes in all are compared with their hashes at once; larger ones
#: by the tasks that read them.
CHECKED_BYTES = 64 * 2**20


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
    values = _calibration(files[CALIBRATION_NAME], entry)
    asked, names = manifest.parameters["calibration"], entry.feature_names_in
    kind, division = asked, None
    if entry.division is not None:
        division = Division(n_rows=entry.n_samples, **dict(entry.division))
        kind = division.kind
    elif asked == "auto" or entry.counts_itself:  # an earlier version has saved it
        kind = "conformal" if entry.counts_itself else "loo"
    return Fitted(
        parameters=_parameters(manifest),
        columns=None if names is None else list(map(name_from_json, names)),
        n_samples=entry.n_samples,
        n_dropped=entry.n_dropped,
        offset=entry.offset,
        calibration_kind=kind,
        reference=_reference(manifest, files, len(values)),
        calibration=Calibration.of(entry.graph, entry.counts_itself, None, values),
        own_values=StoredOwnValues(
            files.get(NOMINAL_NAME),
            entry.n_samples + entry.n_dropped,
            entry.has_anomaly_log_density,
        ),
        nominal=NominalKind(to_numpy),
        approximate=_approximate(manifest),
        source=_source_of(manifest),
        categories=_categories(manifest),
        division=division,
    )


def _parameters(manifest: Manifest) -> dict[str, Any]:
    categorical = columns_from_json(manifest.parameters["categorical"])
    others = {"categorical": categorical, "anomaly_log_density": None}
    return manifest.parameters | others


def _categories(manifest: Manifest) -> Categories | None:
    space = manifest.reference.space
    if space.levels is None:
        return None
    places = tuple(space.preparation.categorical)
    return Categories(places, tuple(tuple(levels) for levels in space.levels))


def _check_names(manifest: Manifest, url: str) -> None:
    """Demand the files that the manifest tells of, and no others, wherever they may be."""
    reference, found = manifest.reference, set(manifest.files)
    needed = {block_name(i) for i in range(len(reference.block_rows))} | {CALIBRATION_NAME}
    if reference.neighbor_graph is not None:
        needed |= {STARTS_NAME, EDGES_NAME}
    if manifest.approximate is not None:
        needed |= {index_name(i) for i in range(len(reference.block_rows))}
    if found - {NOMINAL_NAME} != needed:
        odd = sorted((found - {NOMINAL_NAME}) ^ needed)
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
        edges = partial(load_graph, files[STARTS_NAME], files[EDGES_NAME], entry.n_rows)
        graph = StoredBlocks(edges, 1)
    shape = SearchShape(
        entry.n_rows, space.preparation.n_prepared(fitted.n_features_in),
        Statistic(fitted.n_neighbors, fitted.radius, aggregation=fitted.aggregation),
        params,
        calibration_rows, -(-max(entry.block_rows) // LARGEST_BLOCK),
        n_input_features=fitted.n_features_in,
    )  # fmt: skip
    if space.is_indexed:
        assert manifest.approximate is not None
        shape = indexed(shape, _quality(manifest.approximate))
    stored, indexes = StoredBlocks(load, len(blocks)), None
    if space.is_indexed:
        pairs = [
            (file, files[index_name(i)], n_rows) for i, (file, n_rows) in enumerate(blocks)
        ]
        load_all = partial(load_indexes, pairs, entry.n_rows, space)
        indexes = StoredBlocks(load_all, len(blocks))
    return Reference(shape, space, stored, graph, indexes)


def _approximate(manifest: Manifest) -> Approximate | None:
    entry = manifest.approximate
    if entry is None:
        return None
    guide = entry.guide
    return Approximate(
        Guide(guide.width, guide.n_asked, tuple(guide.exact_blocks), tuple(guide.suspects)),
        Certificate(**dict(entry.certificate)),
        _quality(entry),
        entry.pynndescent,
    )


def _quality(entry: ApproximateEntry) -> Quality:
    asked = entry.certificate
    return Quality(
        asked.max_p_error, asked.max_error_share, entry.on_low_quality, entry.recheck,
        entry.seed,
    )  # fmt: skip
