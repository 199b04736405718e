"""Measure the nominal rows that p-values compare with.

    rows --divide--> part to search, rows to measure
    rows --learn--> scaling, metric --> part, packed --> statistic of the rows to measure

Here is what "loo", "split" and "conformal" mean for the rows; calibration.py has what they
mean for the p-values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.model.checkpoint import Checkpoint, measure_numbered
from lpe_dask.model.division import Division
from lpe_dask.model.metrics import graph_params
from lpe_dask.model.scaling import learn_preparation
from lpe_dask.pvalues import DensityWeight, log_densities, weigh
from lpe_dask.search import (
    Measure,
    Preparation,
    Reference,
    plan_for_workers,
    prepare_reference,
)
from lpe_dask.tables import Nominal, map_blocks, take_rows
from lpe_dask.tasks import compute, delayed_tasks, enter, settle


@dataclass(frozen=True, slots=True)
class Recipe:
    """How rows are to be measured: some arguments of `LPE`, checked.

    Attributes
    ----------
    measure : Measure
    scale, metric, metric_params, algorithm
        As in `LPE`.
    labels : list of str
        What to call the columns in an error.
    """

    measure: Measure
    scale: str | None
    metric: str
    metric_params: Mapping[str, Any] | None
    algorithm: str
    labels: list[str]


def measure_nominal(
    nominal: Nominal,
    division: Division,
    recipe: Recipe,
    checkpoint: Checkpoint | None = None,
) -> tuple[Reference, NDArray[np.float64]]:
    """Return what new rows are measured among, and the calibration statistics; computes.

    Parameters
    ----------
    nominal : Nominal
    division : Division
    recipe : Recipe
    checkpoint : Checkpoint, optional
        Where calibration rows are kept as soon as they are measured, by their numbers among
        the rows that they are measured among, or, where they belong to none, among all.

    Returns
    -------
    reference : Reference
    statistic : ndarray of shape (m,)
        Of the rows of ``division.calibration``, in their order.
    """
    rows = nominal.rows
    searched = _source(nominal, division.reference)
    # Were the rows to measure among those a scaling is learnt from, they would no longer be
    # exchangeable with new ones.
    is_like_new = division.is_disjoint and division.own_part is None
    preparation = learn_preparation(
        searched() if is_like_new else rows,
        recipe.scale, recipe.metric, recipe.metric_params, recipe.labels,
    )  # fmt: skip
    if division.own_part is not None:
        part = _source(nominal, division.own_part)
        own = _prepare(part, nominal, division, preparation, recipe)
        assert division.calibration is not None
        chosen = np.searchsorted(division.own_part, division.calibration)
        statistic = _measure_own(own, chosen, checkpoint)
        del own  # its memory is free before the other part is packed
        return _prepare(searched, nominal, division, preparation, recipe), statistic
    reference = _prepare(searched, nominal, division, preparation, recipe)
    if not is_like_new:
        return reference, _measure_own(reference, division.calibration, checkpoint)
    assert division.calibration is not None
    measure = partial(_measured_rows, reference, rows)
    statistic = measure_numbered(division.calibration, len(rows), measure, checkpoint)
    return reference, statistic


def _measure_own(
    reference: Reference,
    chosen: NDArray[np.int64] | None,
    checkpoint: Checkpoint | None,
) -> NDArray[np.float64]:
    """Return the statistic of some rows of a reference, or of all; computes."""
    numbers = np.arange(reference.n_rows) if chosen is None else chosen
    return measure_numbered(numbers, reference.n_rows, reference.own_tasks, checkpoint)


def _measured_rows(
    reference: Reference, rows: da.Array, numbers: NDArray[np.int64]
) -> list[Delayed]:
    """Return tasks for some rows each: their numbers, and their statistic as new rows."""
    measured = reference.measure_rows(take_rows(rows, numbers))
    name = f"lpe-numbered-{uuid4().hex}"
    edges = np.cumsum([0, *measured.chunks[0]]).tolist()
    entered = [enter(numbers[start:stop], "lpe-chosen") for start, stop in pairwise(edges)]
    tasks = {
        f"{name}-{i}": (_numbered, of_chunk.key, (measured.name, i))
        for i, of_chunk in enumerate(entered)
    }
    return delayed_tasks(name, tasks, [measured, *entered])


def _source(nominal: Nominal, numbers: NDArray[np.int64] | None) -> Callable[[], da.Array]:
    """Return what gives some of the nominal rows, entered anew each time."""
    if numbers is None:
        return nominal.again
    return lambda: settle(take_rows(nominal.again(), numbers), "lpe-part")


def _prepare(
    source: Callable[[], da.Array],
    nominal: Nominal,
    division: Division,
    preparation: Preparation,
    recipe: Recipe,
) -> Reference:
    shape = source().shape
    params = graph_params(recipe.metric, recipe.metric_params, shape[0])
    plan = plan_for_workers(
        shape, recipe.measure, params, nominal.input_chunks,
        calibration_rows=division.n_calibration,
        reads_frame=nominal.row_hashes is not None, wait=True,
    )  # fmt: skip
    return prepare_reference(
        source, nominal.sample, preparation, plan, recipe.algorithm, recipe.measure,
        params, nominal.n_bytes,
    )  # fmt: skip


def weigh_nominal(
    nominal: Nominal,
    division: Division,
    statistic: NDArray[np.float64],
    weight: DensityWeight,
) -> NDArray[np.float64]:
    """Return the weighed statistic of the calibration rows, of shape (m,); computes."""
    rows = nominal.rows
    if division.calibration is not None:
        rows = take_rows(rows, division.calibration)
    logs = map_blocks(
        [rows], _log_densities, weight.log_density, name="log-density", dtype=np.float64
    )
    return weigh(weight.graph, np.asarray(*compute(logs)), statistic, rows.shape[1])


# The functions below run inside tasks: NumPy in, NumPy out.


def _numbered(
    numbers: NDArray[np.int64], statistic: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return numbers, statistic


def _log_densities(rows: NDArray[np.generic], log_density: Any) -> NDArray[np.float64]:
    return log_densities(log_density, np.ascontiguousarray(rows, dtype=np.float64))
