"""What a forecast knows of a model: of one that is to be fitted, or of one that is saved.

    ForeseenFit   nominal rows, arguments --> cut, algorithm, sample   as a fit settles them
    SavedModel    manifest, a few blocks  --> cut, algorithm, sample   as they are

Both say the same about themselves, so that a forecast need not ask which one it has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np

from lpe_dask.forecast.costs import Sampled, pack_seconds
from lpe_dask.forecast.counts import (
    LEARNT,
    FitShape,
    fit_tasks,
    load_tasks,
    most_blocks,
    save_tasks,
)
from lpe_dask.forecast.sample import Sample, rows_of_blocks, take_sample
from lpe_dask.model import (
    METRIC_PARAMS,
    Division,
    Fitted,
    check_determined,
    divide_in_size,
    graph_params,
    learn_preparation,
    plan_fit,
)
from lpe_dask.search import (
    NeighborGraphParams,
    Preparation,
    Search,
    SearchPlan,
    SearchShape,
    Statistic,
    choose_space,
    plan_for,
)
from lpe_dask.tables import Nominal, Table, read_nominal, read_table
from lpe_dask.tasks import Workers


@dataclass(frozen=True, slots=True)
class ForeseenFit:
    """What a fit would settle before it searches.

    Attributes
    ----------
    parameters : dict
        The arguments of `LPE`.
    division : Division
        In size.
    statistic : Statistic
    params : NeighborGraphParams, optional
    plan : SearchPlan
        Of the rows that new rows are measured among.
    own_plan : SearchPlan, optional
        Of the part that calibration rows are measured among, if that is another one.
    sampled : Sampled
    preparation : Preparation
    learn_seconds : float
        Of one thread, for a row, to learn the preparation.
    is_counted : bool
        Whether the number of nominal rows is certain.
    """

    parameters: Mapping[str, Any]
    division: Division
    statistic: Statistic
    params: NeighborGraphParams | None
    plan: SearchPlan
    own_plan: SearchPlan | None
    sampled: Sampled
    preparation: Preparation
    learn_seconds: float
    is_counted: bool

    @classmethod
    def of(
        cls, parameters: Mapping[str, Any], table: Table, sample: Sample, workers: Workers
    ) -> ForeseenFit:
        """Return what a fit to a table would settle, by a sample of it."""
        with dask.config.set(scheduler="sync"):
            drawn = replace(read_table(sample.rows), labels=table.labels)
            nominal = read_nominal(drawn, parameters["missing"])
            rows = nominal.rows.compute()
            began = time.thread_time()
            preparation = _learnt_preparation(parameters, nominal, table.labels)
            learn_seconds = (time.thread_time() - began) / len(rows)
        n_nominal = sample.n_rows * len(rows) // max(1, len(sample.rows))
        n_features = rows.shape[1]
        fit = plan_fit(parameters, n_nominal, n_features, divide_in_size)
        division, statistic = fit.division, fit.statistic
        n_reference = division.n_reference
        if fit.learnt == "covariance":
            is_whole = division.own_part is not None or not division.is_disjoint
            check_determined(n_nominal if is_whole else n_reference, n_features)
        metric, given = parameters["metric"], parameters["metric_params"]
        shape = SearchShape(
            n_reference, n_features, statistic,
            graph_params(metric, given, n_reference),
            division.n_calibration, partition_rows=max(sample.sizes),
            reads_frame=table.frame is not None,
        )  # fmt: skip
        join_plan, own_plan = plan_for(shape, workers), None
        if division.own_part is not None:
            n_own = len(division.own_part)
            own_params = graph_params(metric, given, n_own)
            own_shape = replace(shape, n_reference=n_own, graph_params=own_params)
            own_plan = plan_for(own_shape, workers)
        algorithm, space = choose_space(
            nominal.sample, preparation, join_plan, parameters["algorithm"]
        )
        prepared = preparation.apply(rows)
        search = _trial_search(algorithm, statistic, shape.graph_params, len(prepared))
        return cls(
            parameters, division, statistic, shape.graph_params, join_plan, own_plan,
            Sampled(prepared, space, search), preparation, learn_seconds,
            sample.is_exact and nominal.n_dropped == 0,
        )  # fmt: skip

    @property
    def n_measured(self) -> int:
        """Calibration rows."""
        chosen = self.division.calibration
        return self.division.n_rows if chosen is None else len(chosen)

    @property
    def is_like_new(self) -> bool:
        """Whether calibration rows are measured like new ones."""
        return self.division.is_disjoint and self.own_plan is None

    @property
    def plans(self) -> list[SearchPlan]:
        """The plans of all searches."""
        return [self.plan] if self.own_plan is None else [self.own_plan, self.plan]

    @property
    def n_nominal(self) -> int:
        """Nominal rows."""
        return self.division.n_rows

    @property
    def learning_seconds(self) -> float:
        """Seconds of one thread to learn the preparation."""
        return self.learn_seconds * self.n_nominal if self.learnt else 0.0

    def packings(self) -> list[tuple[float, int]]:
        """Return the seconds of one thread to make all blocks of a search, and these."""
        of_row, prunes = pack_seconds(self.sampled), self.sampled.prunes
        return [
            (of_row * plan.shape.n_reference, most_blocks(plan, keeps_near_rows=prunes))
            for plan in self.plans
        ]

    def tasks(
        self, partitions: Sequence[int], workers: Workers, *, saves: bool
    ) -> Counter[str]:
        """Return the tasks of the fit, by the rows of the partitions."""
        shape = FitShape(
            self.plan, self.own_plan, self.n_measured, partitions, self.sampled.prunes,
            workers.n_threads, self.learnt, self.is_like_new, workers.is_cluster,
        )  # fmt: skip
        return fit_tasks(shape) + (save_tasks(shape) if saves else Counter())

    @property
    def learnt(self) -> list[str]:
        """What is learnt from the nominal rows, as `counts.LEARNT` calls it."""
        scale, metric = self.parameters["scale"], self.parameters["metric"]
        names = [] if scale is None else [scale]
        (parameter, *_) = METRIC_PARAMS[metric]
        if metric in LEARNT and parameter not in (self.parameters["metric_params"] or {}):
            names.append(metric)
        return names


def _learnt_preparation(
    parameters: Mapping[str, Any], nominal: Nominal, labels: list[str]
) -> Preparation:
    """Return the preparation learnt from a sample."""
    try:
        return learn_preparation(
            nominal.rows,
            parameters["scale"],
            parameters["metric"],
            parameters["metric_params"],
            labels,
        )
    except ValueError:
        if parameters["metric_params"]:
            raise
        # A few rows may be singular where all are not; the run will tell.
        return Preparation()


def _trial_search(
    algorithm: str,
    statistic: Statistic,
    params: NeighborGraphParams | None,
    n_sampled: int,
) -> Search:
    """Return the search to try, for no more neighbors than a sample has rows."""
    n_neighbors = statistic.n_neighbors
    if n_neighbors is not None:
        n_neighbors = min(n_neighbors, n_sampled)
    n_edges = None if params is None else params.n_neighbors
    return Search(algorithm, n_neighbors, statistic.radius, 1, None, n_edges)


# A saved model


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a model on disk says about a search; offers what `ForeseenFit` does.

    Attributes
    ----------
    n_nominal : int
    statistic, params, plan, sampled
        As in `ForeseenFit`.
    n_files : int
        Blocks.
    """

    n_nominal: int
    statistic: Statistic
    params: NeighborGraphParams | None
    plan: SearchPlan
    sampled: Sampled
    n_files: int
    n_measured: int = 0
    is_like_new: bool = False
    is_counted: bool = True
    learning_seconds: float = 0.0

    @classmethod
    def of(cls, model: Fitted, workers: Workers) -> tuple[SavedModel, Sample]:
        """Return a model that was loaded, and a sample of its rows; reads some blocks."""
        reference = model.reference
        blocks = reference.blocks.tasks()
        rows = rows_of_blocks(blocks, reference.shape.n_features)
        sample = take_sample(rows, None, workers.n_threads)
        shape = reference.shape
        search = _trial_search(
            reference.algorithm, shape.statistic, shape.graph_params, len(sample.rows)
        )
        rows_taken = sample.rows.astype(np.float64, copy=False)
        sampled = Sampled(rows_taken, reference.space, search)
        return cls(
            model.n_samples, shape.statistic, shape.graph_params, plan_for(shape, workers),
            sampled, len(blocks),
        ), sample  # fmt: skip

    @property
    def preparation(self) -> Preparation:
        """Of the rows to score."""
        return self.sampled.space.preparation

    @property
    def plans(self) -> list[SearchPlan]:
        """The plan of the only search."""
        return [self.plan]

    def packings(self) -> list[tuple[float, int]]:
        """Return nothing: blocks are made as they are read, which the sample has timed."""
        return []

    def tasks(
        self, partitions: Sequence[int], workers: Workers, *, saves: bool
    ) -> Counter[str]:
        """Return the tasks that read the model."""
        return load_tasks(self.n_files, has_graph=self.params is not None)
