r"""Measure rows by a search that may miss some of their neighbors.

    blocks, indexes --beam--> neighbors found --nearest--> statistic, or a larger one

What is found is rows of the reference, each once and never the query itself, at distances
by definition. So the statistic is at least that of all rows, bit for bit:

    Let D be the distances of a query to all other rows, and F to those found, a part of
    them. The K-th smallest number of a part is not below that of the whole; where F has
    fewer than K, it is replaced by D. A mean of the K smallest, added in ascending order,
    is not below either: each of them is not, and float addition is monotone.

The p-value, a share of calibration statistics at least as large, is then at most the exact
one, whatever the calibration is, if its statistics are exact: it falls with the statistic,
the form that counts the row itself adds the same to both, and a weight grows with it (as
far as the logarithm of the C library is monotone). So all rows whose exact p-value is at
most c are among those found at most c; measuring these again among all rows gives every
p-value up to c, and every decision by them, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import BeamAccumulator, QueryTiles
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.plan import Statistic


@dataclass(frozen=True, slots=True)
class Approximation:
    """Which rows of a search that may miss neighbors are measured among all others.

    Attributes
    ----------
    beyond : float
        Those of which what p-values compare is found to be more.
    weight : callable, optional
        From rows, as they came, and their statistic to what p-values compare; None: the
        statistic.
    is_exact : Delayed, optional
        Of whether all of them are: the search waits for this task. None: they are not.
    """

    #: Rows of the sample by which such a search is judged, and how many samples of parts
    #: one task merges.
    AUDITED_ROWS: ClassVar[int] = 3000
    MERGED_SAMPLES: ClassVar[int] = 4

    beyond: float
    weight: Any = None
    is_exact: Any = None


def beam_search(
    queries: QueryTiles,
    handles: Sequence[Any],
    indexes: Sequence[Any],
    space: Space,
    statistic: Statistic,
) -> NDArray[np.float64]:
    """Return the statistic by the nearest rows that were found, of shape (n_queries,).

    ``inf`` where fewer than K were found, and NaN for a query that was not measured. What
    is found for a query depends on no other query.

    Parameters
    ----------
    queries : QueryTiles
    handles : sequence
        Of the blocks.
    indexes : sequence
        Of their indexes.
    space : Space
    statistic : Statistic
        Of K neighbors.
    """
    n_neighbors = statistic.n_neighbors
    assert n_neighbors is not None
    state = BeamAccumulator(
        queries, space.basis, n_neighbors, aggregation=statistic.aggregation
    )
    for handle, index in zip(handles, indexes, strict=True):
        state.fold(handle.load(), index.load())
    return state.finish()
