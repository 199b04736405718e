"""Measure the nominal rows that p-values compare with.

    rows --divide--> part to search, rows to measure
    rows --learn--> scaling, metric --> part, packed --> statistic of the rows to measure

Here is what "loo", "split" and "conformal" mean for the rows; calibration.py has what they
mean for the p-values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from lpe_dask.density import DensityWeight, log_densities, weigh
from lpe_dask.division import Division
from lpe_dask.inputs import map_blocks
from lpe_dask.metrics import graph_params
from lpe_dask.nominal import Nominal, take_rows
from lpe_dask.preparation import Preparation
from lpe_dask.reference import Measure, Reference, plan_for_workers, prepare_reference
from lpe_dask.scaling import learn_preparation


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
    nominal: Nominal, division: Division, recipe: Recipe
) -> tuple[Reference, NDArray[np.float64]]:
    """Return what new rows are measured among, and the calibration statistics; computes.

    Returns
    -------
    reference : Reference
    statistic : ndarray of shape (m,)
        Of the rows of ``division.calibration``, in their order.
    """
    rows = nominal.rows
    searched = rows if division.reference is None else take_rows(rows, division.reference)
    # Were the rows to measure among those a scaling is learnt from, they would no longer be
    # exchangeable with new ones.
    is_like_new = division.is_disjoint and division.own_part is None
    preparation = learn_preparation(
        searched if is_like_new else rows,
        recipe.scale, recipe.metric, recipe.metric_params, recipe.labels,
    )  # fmt: skip
    if division.own_part is not None:
        own = _prepare(take_rows(rows, division.own_part), nominal, preparation, recipe)
        assert division.calibration is not None
        statistic = own.measure_own(
            np.searchsorted(division.own_part, division.calibration)
        )
        del own  # its memory is free before the other part is packed
        return _prepare(searched, nominal, preparation, recipe), statistic
    reference = _prepare(searched, nominal, preparation, recipe)
    if not is_like_new:
        return reference, reference.measure_own(division.calibration)
    assert division.calibration is not None
    measured = reference.measure_rows(take_rows(rows, division.calibration))
    return reference, np.asarray(measured.compute())


def _prepare(
    rows: da.Array, nominal: Nominal, preparation: Preparation, recipe: Recipe
) -> Reference:
    params = graph_params(recipe.metric, recipe.metric_params, rows.shape[0])
    plan = plan_for_workers(rows.shape, recipe.measure, params, nominal.input_chunks)
    return prepare_reference(
        rows, nominal.sample, preparation, plan, recipe.algorithm, recipe.measure, params
    )


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
    return weigh(weight.graph, np.asarray(logs.compute()), statistic, rows.shape[1])


# Runs inside tasks: NumPy in, NumPy out.


def _log_densities(rows: NDArray[np.generic], log_density: Any) -> NDArray[np.float64]:
    return log_densities(log_density, np.ascontiguousarray(rows, dtype=np.float64))
