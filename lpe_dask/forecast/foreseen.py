"""What a forecast knows of a model: of one that is to be fitted, or of one that is saved.

nominal rows, arguments --sample--> cut, algorithm   as a fit settles them
model on disk           --sample--> cut, algorithm   as they are
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np

from lpe_dask.forecast.sample import Sample, rows_of_blocks, take_sample
from lpe_dask.model import Fitted, learn_preparation, plan_fit
from lpe_dask.search import (
    Preparation,
    SampledRows,
    Search,
    SearchPlan,
    SearchShape,
    choose_space,
    plan_for,
)
from lpe_dask.tables import Nominal, Table, read_nominal, read_table
from lpe_dask.tasks import Workers


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A model before anything is searched for.

    Attributes
    ----------
    n_nominal : int
    plans : list of SearchPlan
        Of all searches, the last one of the rows that new rows are measured among.
    sampled : SampledRows
        Of these rows.
    n_files : int
        Blocks of a model on disk; 0 for one that is to be fitted.
    n_measured : int
        Calibration rows that a fit measures.
    is_like_new : bool
        Whether it measures these like new rows.
    learnt : list of str
        Scale and metric, as far as they are learnt from the nominal rows.
    learn_seconds : float
        Of one thread, to learn them.
    is_counted : bool
        Whether the number of nominal rows is certain.
    """

    n_nominal: int
    plans: list[SearchPlan]
    sampled: SampledRows
    n_files: int = 0
    n_measured: int = 0
    is_like_new: bool = False
    learnt: tuple[str, ...] = ()
    learn_seconds: float = 0.0
    is_counted: bool = True

    @property
    def plan(self) -> SearchPlan:
        """Of the search of new rows."""
        return self.plans[-1]

    @property
    def shape(self) -> SearchShape:
        """Of the search of new rows."""
        return self.plan.shape


def foresee_fit(
    parameters: Mapping[str, Any], table: Table, sample: Sample, workers: Workers
) -> Foreseen:
    """Return what a fit to a table would settle, by a sample of it."""
    with dask.config.set(scheduler="sync"):
        drawn = replace(read_table(sample.rows), columns=table.columns)
        nominal = read_nominal(drawn, parameters["missing"])
        rows = nominal.rows.compute()
        began = time.thread_time()
        preparation = _learnt_preparation(parameters, nominal, table.labels)
        learn_seconds = (time.thread_time() - began) / len(rows)
    n_nominal = sample.n_rows * len(rows) // max(1, len(sample.rows))
    fit = plan_fit(parameters, n_nominal, rows.shape[1])
    division, learnt = fit.division, _learnt(parameters)
    # Where calibration rows have a part of their own, it is searched first.
    is_split = division.is_disjoint and not division.is_like_new
    sizes = [division.n_own] if is_split else []
    reading = {
        "partition_rows": max(sample.sizes), "reads_frame": table.frame is not None
    }  # fmt: skip
    plans = [
        plan_for(fit.shape(n_reference, rows.shape[1], **reading), workers)
        for n_reference in (*sizes, division.n_reference)
    ]
    algorithm, space = choose_space(
        nominal.sample, preparation, plans[-1], parameters["algorithm"]
    )
    search = _trial_search(algorithm, plans[-1].shape, len(rows))
    return Foreseen(
        n_nominal, plans, SampledRows(preparation.apply(rows), space, search),
        n_measured=division.n_calibration,
        is_like_new=division.is_like_new,
        learnt=learnt,
        learn_seconds=learn_seconds * n_nominal if learnt else 0.0,
        is_counted=sample.is_exact and nominal.n_dropped == 0,
    )  # fmt: skip


def look_at_model(model: Fitted, workers: Workers) -> tuple[Foreseen, Sample]:
    """Return a model that was loaded, and a sample of its rows; reads some blocks."""
    reference = model.reference
    blocks, shape = reference.blocks.tasks(), reference.shape
    sample = take_sample(rows_of_blocks(blocks, shape.n_features), None, workers.n_threads)
    search = _trial_search(reference.algorithm, shape, len(sample.rows))
    rows = sample.rows.astype(np.float64, copy=False)
    sampled = SampledRows(rows, reference.space, search)
    plans = [plan_for(shape, workers)]
    return Foreseen(model.n_samples, plans, sampled, len(blocks)), sample


def _learnt(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scale and the metric, as far as they are learnt."""
    scale, metric = parameters["scale"], parameters["metric"]
    is_learnt = metric in ("seuclidean", "mahalanobis") and not parameters["metric_params"]
    return (*([] if scale is None else [scale]), *([metric] if is_learnt else []))


def _learnt_preparation(
    parameters: Mapping[str, Any], nominal: Nominal, labels: list[str]
) -> Preparation:
    """Return the preparation learnt from a sample."""
    scale, metric, given = (
        parameters[name] for name in ("scale", "metric", "metric_params")
    )
    try:
        return learn_preparation(nominal.rows, scale, metric, given, labels)
    except ValueError:
        if given:
            raise
        # A few rows may be singular where all are not; the run will tell.
        return Preparation()


def _trial_search(algorithm: str, shape: SearchShape, n_sampled: int) -> Search:
    """Return the search to try, for no more neighbors than a sample has rows."""
    n_neighbors, params = shape.statistic.n_neighbors, shape.graph_params
    return Search(
        algorithm, None if n_neighbors is None else min(n_neighbors, n_sampled),
        shape.statistic.radius, 1, None, None if params is None else params.n_neighbors,
    )  # fmt: skip
