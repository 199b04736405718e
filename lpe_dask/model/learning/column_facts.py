r"""What scales and metrics are learned from, gathered by one reading of the rows.

    block -+-> ranges, exact sums --merged in a tree--+
           +-> values near the medians --> medians ---+--> ColumnFacts, on the client
           +-> sampled rows --------------------------+

What is known before, as a survey of all rows has it, is not read again. Rows are a dask
array, or within a task those of a group, an array of NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import Moments
from lpe_dask.model.learning.medians import Medians
from lpe_dask.model.learning.quantiles import sampled_numbers
from lpe_dask.model.lpe_parameters import METRIC_PARAMS, SCALES
from lpe_dask.tables import select_rows
from lpe_dask.tasks import compute, merge_tasks, new_tasks

#: Blocks whose facts one task merges.
MERGED_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What some rows have in their columns of numbers.

    Attributes
    ----------
    low, high : ndarray of shape (n_columns,), optional
        The least and the largest values that are not missing.
    moments : Moments, optional
    medians : ndarray of shape (n_columns,), optional
    sample : ndarray of shape (n_sampled, n_columns), optional
        Of rows, for quantiles.
    """

    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    moments: Moments | None = None
    medians: NDArray[np.float64] | None = None
    sample: NDArray[np.generic] | None = None

    def updated(self, found: ColumnFacts) -> ColumnFacts:
        """Return these with the ranges and moments that others have."""
        return replace(
            self,
            low=self.low if found.low is None else found.low,
            high=self.high if found.high is None else found.high,
            moments=found.moments or self.moments,
        )

    def filled(self) -> ColumnFacts:
        """Return those of the same rows with medians in their gaps, if there are medians.

        Ranges stay as they are.
        """
        if self.medians is None:
            return self
        moments, sample = self.moments, self.sample
        if moments is not None:
            moments = moments.filled(self.medians)
        if sample is not None:
            sample = np.where(np.isnan(sample), self.medians, sample)
        return replace(self, moments=moments, sample=sample)


@dataclass(frozen=True, slots=True)
class AskedFacts:
    """Which facts a scale and a metric are learned from.

    Attributes
    ----------
    ranges, moments : bool
    products : bool
        Whether moments have products of different columns.
    sample : bool
    """

    ranges: bool = False
    moments: bool = False
    products: bool = False
    sample: bool = False

    @classmethod
    def of(
        cls, scale: str | None, metric: str, metric_params: Mapping[str, Any] | None
    ) -> AskedFacts:
        """Return what is asked for by these arguments of `LPE`."""
        chosen, is_learned = SCALES[scale], False
        if metric in ("seuclidean", "mahalanobis"):
            is_learned = METRIC_PARAMS[metric][0] not in (metric_params or {})
        has_variances = chosen.linear == "variances"
        # Of rows by quantiles it is learned later; else a linear scale cancels out.
        if is_learned and not chosen.has_quantiles:
            is_whitened = metric == "mahalanobis"
            has_ranges = is_whitened and chosen.linear == "ranges"
            return cls(has_ranges, moments=True, products=is_whitened)
        has_ranges = chosen.linear == "ranges" or chosen.has_quantiles
        return cls(has_ranges, has_variances, sample=chosen.has_quantiles)


def read_facts(
    rows: Any,
    asked: AskedFacts,
    known: ColumnFacts | None = None,
    gaps: Medians | None = None,
    random_state: int | None = None,
) -> ColumnFacts:
    """Return the facts of rows of numbers; computes what is not known, by one reading.

    Parameters
    ----------
    rows : dask array or ndarray of shape (n_rows, n_columns)
        Without inf, with known chunks and one chunk of columns.
    asked : AskedFacts
    known : ColumnFacts, optional
        Of these rows.
    gaps : Medians, optional
        What looks for the medians, if values may be missing.
    random_state : int, optional
        As for `quantiles.sampled_numbers`.

    Raises
    ------
    ValueError
        Naming the columns of which all values are missing.
    """
    facts, (n_rows, n_columns) = known or ColumnFacts(), rows.shape
    if n_columns == 0:
        return ColumnFacts(medians=None if gaps is None else np.empty(0))
    needs = replace(
        asked,
        ranges=asked.ranges and facts.low is None,
        moments=asked.moments and facts.moments is None,
    )
    taken = chosen = None
    if asked.sample:
        chosen = sampled_numbers(n_rows, n_columns, random_state)
    if isinstance(rows, np.ndarray):
        if asked.sample:
            taken = rows if chosen is None else rows[chosen]
        medians = None if gaps is None else gaps.of_array(rows)
        return replace(facts.updated(_facts_of(rows, needs)), medians=medians, sample=taken)
    if asked.sample:
        taken = rows if chosen is None else select_rows(rows, chosen)
    tasks = [_merged_facts(rows, needs)] if needs.ranges or needs.moments else []
    near = [] if gaps is None else [gaps.task(rows)]
    blocks = [] if taken is None else _blocks(taken)
    found = list(compute(*tasks, *near, *blocks)) if tasks or near or blocks else []
    for _ in tasks:
        facts = facts.updated(found.pop(0))
    if gaps is not None:
        facts = replace(facts, medians=gaps.found(rows, found.pop(0)))
    return replace(facts, sample=np.concatenate(found)) if blocks else facts


def _merged_facts(rows: da.Array, asked: AskedFacts) -> Delayed:
    """Return a task for what `_facts_of` has of all blocks."""
    name = f"lpe-facts-{uuid4().hex}"
    of_blocks = {
        f"{name}-of-{i}": (_facts_of, (rows.name, i, 0), asked)
        for i in range(rows.numblocks[0])
    }
    merged, keys = merge_tasks(name, list(of_blocks), _merge, MERGED_BLOCKS)
    tasks = of_blocks | merged | {f"{name}-all": (_merge, keys)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[rows])
    return Delayed(f"{name}-all", graph, layer=name)


def _blocks(rows: da.Array) -> list[Delayed]:
    """Return a task for each block, as those that are read at the same time are."""
    tasks = ((np.asarray, (rows.name, i, 0)) for i in range(rows.numblocks[0]))
    return new_tasks("sample", tasks, [rows])


# The functions below run inside tasks: NumPy in, NumPy out.


def _facts_of(rows: NDArray[np.generic], asked: AskedFacts) -> ColumnFacts:
    low = high = moments = None
    if asked.ranges:
        numbers = rows.astype(np.float64)
        low = np.fmin.reduce(numbers, axis=0, initial=np.inf)
        high = np.fmax.reduce(numbers, axis=0, initial=-np.inf)
    if asked.moments:
        moments = Moments.of(rows, has_products=asked.products)
    return ColumnFacts(low, high, moments)


def _merge(parts: Sequence[ColumnFacts]) -> ColumnFacts:
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    moments = [part.moments for part in parts if part.moments is not None]
    return ColumnFacts(
        np.min(lows, axis=0) if lows else None,
        np.max(highs, axis=0) if highs else None,
        Moments.add(moments) if moments else None,
    )
