"""Say by sizes alone how long a run takes at most, and what it needs.

    Run --footers, bytes of CSV--> rows, columns --all pairs--> seconds, bytes

Nothing is tried, and no row is read but the first ones of a CSV file. All pairs of rows are
counted, so a search that leaves many out ends sooner than forecast here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpe_dask.batch import Run, read_summary
from lpe_dask.model import Fitted, largest_search
from lpe_dask.search import MemoryEstimate, ProblemSize
from lpe_dask.tasks import Workers

#: Seconds of one thread for a pair of rows and for each of its columns (measured on Zen 5,
#: 2 to 128 columns, K up to 150), for a row that a walk along a neighbor graph touches, and
#: to read, prepare and write a number.
PAIR_SECONDS, COLUMN_SECONDS = 0.4e-9, 0.03e-9
TOUCHED_SECONDS, NUMBER_SECONDS = 1e-6, 0.5e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """How much there is to do.

    Attributes
    ----------
    shape : ProblemSize
        Of the largest search there may be.
    n_queries : int
        Rows that are searched for, at most: nominal ones, and those to score.
    n_read : int
        Rows that are read.
    """

    shape: ProblemSize
    n_queries: int
    n_read: int

    @classmethod
    def of_run(cls, run: Run) -> Workload:
        """Return the work of what a job does; counts rows."""
        fit, model, scoring = run.fit, run.model, run.scoring
        scored: Sequence[int] = ()
        if scoring is not None and not scoring.scores_nominal_rows:
            scored, _ = scoring.kept.rows_of_parts()
        if model is not None:
            return cls.with_model(model, scored or [model.n_samples])
        assert fit is not None
        nominal, _ = fit.table.rows_of_parts()
        n_features = len(fit.columns) + bool(fit.by)
        found = cls.of_fit(fit.parameters, nominal, scored, n_features)
        n_fits = 2 if run.job.model.check_calibration else 1
        return replace(found, n_queries=n_fits * found.n_queries)

    @classmethod
    def of_fit(
        cls,
        parameters: Mapping[str, Any],
        nominal: Sequence[int],
        scored: Sequence[int],
        n_features: int,
    ) -> Workload:
        """Return the work of a fit, and of rows that are scored with it.

        Parameters
        ----------
        parameters : dict
            The arguments of `LPE`, checked.
        nominal, scored : sequence of int
            Rows of each partition; none to score: the nominal ones are.
        n_features : int
        """
        n_nominal, partition_rows = sum(nominal), max((0, *nominal, *scored))
        shape = largest_search(
            parameters, n_nominal, n_features, partition_rows=partition_rows,
            reads_frame=True,
        )  # fmt: skip
        n_rows = n_nominal + sum(scored)
        return cls(shape, n_rows, n_rows)

    @classmethod
    def with_model(cls, model: Fitted, scored: Sequence[int]) -> Workload:
        """Return the work of rows, by partition, that are scored with a model on disk."""
        shape = replace(
            model.reference.shape, partition_rows=max((0, *scored)), reads_frame=True
        )
        n_rows = sum(scored)
        return cls(shape, n_rows, n_rows + model.n_samples)

    @classmethod
    def of_explanations(cls, output: str, top: int) -> Workload:
        """Return the work of the reasons for so many rows of an output."""
        summary = read_summary(output)
        nominal, n_columns = [summary["nominal_rows"]], summary["reasons"]["n_columns"]
        found = cls.of_fit(summary["parameters"], nominal, (), n_columns)
        return replace(found, n_queries=top, n_read=summary["rows"])

    def seconds(self, n_threads: int) -> float:
        """Return how long threads take at most; inf where sizes are not known."""
        shape = self.shape
        if shape.is_indexed:
            return math.inf
        pair = PAIR_SECONDS + COLUMN_SECONDS * shape.n_features
        query = shape.n_reference * pair + shape.walk_rows * TOUCHED_SECONDS
        read = self.n_read * shape.n_features * NUMBER_SECONDS
        return (self.n_queries * query + read) / n_threads

    def fit_into(self, workers: Workers) -> bool:
        """Return whether workers have the memory that this takes."""
        return MemoryEstimate.of(self.shape, workers).fits(workers.memory_limit)
