"""What a forecast knows of a model that is to be fitted, or of one that is saved.

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
from numpy.typing import NDArray

from lpe_dask.forecast.planned_groups import PlannedGroups
from lpe_dask.forecast.sample import Sample, sample_table
from lpe_dask.model import (
    AskedFacts,
    ColumnFacts,
    FitPlan,
    Fitted,
    exact_level,
    read_facts,
    scales_groups,
)
from lpe_dask.search import (
    MemoryEstimate,
    Preparation,
    ProblemSize,
    SampledRows,
    SearchPlan,
    choose_space,
)
from lpe_dask.tables import NominalRows, Table
from lpe_dask.tasks import Workers, meta_of


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model before anything is searched for.

    Attributes
    ----------
    nominal : Sample
        Of the nominal rows.
    n_nominal : int
    plans : list of SearchPlan
        Of all searches, the last one of the rows that new rows are measured among.
    sampled : SampledRows
        Of these rows.
    n_files : int
        Blocks of a model on disk; 0 for one that is to be fitted.
    n_measured : int
        Calibration rows that a fit measures.
    is_held_out : bool
        Whether it measures these like new rows.
    n_readings : int
        How often the nominal rows are read, or the files of the model.
    learn_seconds : float
        Of one thread, to learn scale and metric.
    is_exact_count : bool
        Whether the number of nominal rows is certain.
    recheck : float, optional
        Up to which p-value rows are measured exactly where neighbors may be missed.
    group_share : float
        Share of the rows that a row is compared with, where groups are searched each by
        itself; 1 where the sample shows it.
    has_groups : bool
        Whether the last column of rows has the numbers of groups.
    """

    nominal: Sample
    n_nominal: int
    plans: list[SearchPlan]
    sampled: SampledRows
    n_files: int = 0
    n_measured: int = 0
    is_held_out: bool = False
    n_readings: int = 1
    learn_seconds: float = 0.0
    is_exact_count: bool = True
    recheck: float | None = None
    group_share: float = 1.0
    has_groups: bool = False

    def n_compared(self, n_reference: int) -> int:
        """Return with about how many of so many rows a row is compared at most."""
        return max(1, round(self.group_share * n_reference))

    @property
    def plan(self) -> SearchPlan:
        """Of the search of new rows."""
        return self.plans[-1]

    @property
    def shape(self) -> ProblemSize:
        """Of the search of new rows."""
        return self.plan.shape


def plan_model(
    parameters: Mapping[str, Any],
    table: Table,
    sample: Sample,
    workers: Workers,
    places: tuple[int, ...] = (),
    group_sizes: NDArray[np.int64] | None = None,
) -> PlannedModel:
    """Return the planned model of a fit to a table, by a sample of it.

    ``places`` are those of the columns with codes of categories; ``group_sizes`` the rows
    of groups in some partitions, where rows are divided into groups.
    """
    groups = None if group_sizes is None else PlannedGroups.of(parameters, group_sizes)
    with dask.config.set(scheduler=dask.get):
        rows = sample.rows
        if parameters["missing"] == "measure":
            rows = _with_values(rows)
        drawn = replace(Table.of(rows), columns=table.columns)
        nominal = NominalRows.of(drawn, parameters["missing"])
        rows = nominal.rows.compute()
        n_nominal = sample.n_rows * len(rows) // max(1, len(sample.rows))
        n_features = rows.shape[1]
        if groups is None:
            fit = FitPlan.of(parameters, n_nominal, n_features, len(places))
        else:
            fit = groups.plan(n_nominal, n_features, len(places))
        began = time.thread_time()
        known = None
        if not (fit.division.is_held_out or scales_groups(parameters)):
            known = _surveyed(parameters, rows, places)
        preparation, n_readings = _learned_preparation(
            fit, nominal, table.labels, places, known
        )
        learn_seconds = (time.thread_time() - began) / len(rows)
    division = fit.division
    # Where calibration rows have a part of their own, it is searched first.
    is_split = division.is_disjoint and not division.is_held_out
    sizes = [division.n_pool] if is_split else []
    reading = {
        "partition_rows": max(sample.sizes), "reads_frame": table.frame is not None
    }  # fmt: skip
    prepared, algorithm, recheck = preparation, parameters["algorithm"], None
    if groups is not None:
        prepared, n_features = groups.prepared(preparation, n_features), n_features + 1
        algorithm = groups.algorithm
    shapes = [
        fit.shape(n_rows, n_features, prepared, **reading)
        for n_rows in (*sizes, division.n_reference)
    ]
    if algorithm == "nn_descent":
        recheck = exact_level(parameters)
        shapes[-1] = replace(shapes[-1], is_indexed=True)
    plans = [MemoryEstimate.of(shape, workers).plan for shape in shapes]
    n_readings += 2  # to be surveyed, and put into blocks
    space = choose_space(nominal.sample, preparation, plans[-1], algorithm)
    sampled = SampledRows.of(preparation.apply(rows), space, plans[-1].shape)
    return PlannedModel(
        sample, n_nominal, plans, sampled,
        n_measured=division.n_calibration,
        is_held_out=division.is_held_out,
        n_readings=n_readings,
        learn_seconds=learn_seconds * n_nominal,
        is_exact_count=sample.is_exact and nominal.n_dropped == 0,
        recheck=recheck,
        group_share=1.0 if groups is None else groups.share,
        has_groups=groups is not None,
    )  # fmt: skip


def sample_model(model: Fitted, workers: Workers) -> PlannedModel:
    """Return a model that was loaded; reads a sample of its rows from some blocks."""
    reference = model.reference
    sample = sample_table(reference.prepared_rows(), None, workers.n_threads)
    rows = sample.rows.astype(np.float64, copy=False)
    sampled = SampledRows.of(rows, reference.space, reference.shape)
    plans = [MemoryEstimate.of(reference.shape, workers).plan]
    recheck = None if model.quality is None else model.quality.recheck
    return PlannedModel(
        sample,
        model.n_samples,
        plans,
        sampled,
        len(reference.blocks),
        recheck=recheck,
        has_groups=model.has_groups,
    )


def _with_values(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return sampled rows, with zeros in columns of which only others have values."""
    is_empty = np.isnan(rows).all(axis=0) if len(rows) else np.zeros(rows.shape[1], bool)
    return np.where(is_empty, 0.0, rows) if is_empty.any() else rows


def _surveyed(
    parameters: Mapping[str, Any], rows: NDArray[np.generic], places: tuple[int, ...]
) -> ColumnFacts:
    """Return what a fit knows of rows once it has surveyed them."""
    asked = AskedFacts.of(
        *(parameters[name] for name in ("scale", "metric", "metric_params"))
    )
    numbers = np.delete(rows, places, axis=1)
    return read_facts(numbers, replace(asked, ranges=True, sample=False))


def _learned_preparation(
    fit: FitPlan,
    nominal: NominalRows,
    labels: list[str],
    places: tuple[int, ...],
    known: ColumnFacts | None,
) -> tuple[Preparation, int]:
    """Return the preparation learned from a sample, and how often that read it."""
    read = []

    def counted(rows: NDArray[np.generic]) -> NDArray[np.generic]:
        read.append(len(rows))
        return rows

    rows = nominal.rows.map_blocks(counted, meta=meta_of(nominal.rows))
    try:
        preparation = fit.learn_preparation(rows, labels, places, nominal.sample, known)
    except ValueError:
        if fit.parameters["metric_params"]:
            raise
        # A few rows may be singular where all are not; the run will show it.
        return Preparation(), len(read)
    return preparation, len(read)
