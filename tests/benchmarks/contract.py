"""What the benchmarks ask, and what a contender has to offer to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Threads that every contender may use, or worker processes of one thread.
N_THREADS = 2

#: Rows that a contender warms up on: enough for each of its code paths.
WARM_UP_ROWS = 2000


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """One question: the K-th distances, p-values or labels of some rows.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
        The nominal rows, float32 for all but real tables.
    queries : ndarray of shape (n_queries, n_features), optional
        New rows. None: each of ``rows`` against all others.
    n_neighbors : int
        K, less than ``n_rows``.
    arguments : mapping
        Further arguments of `lpe_dask.LPE`; peers have no use for them.
    """

    rows: NDArray[np.generic]
    queries: NDArray[np.generic] | None
    n_neighbors: int
    arguments: Mapping[str, Any]

    def head(self, n_rows: int) -> Problem:
        """Return the same question about the first rows only."""
        queries = None if self.queries is None else self.queries[:n_rows]
        return replace(self, rows=self.rows[:n_rows], queries=queries)


class Answer(NamedTuple):
    """What a contender returned, and what it was asked.

    Attributes
    ----------
    result : ndarray
    problem : Problem
    sample : ndarray of int, optional
        The numbers of the rows it was asked about; None for all.
    expected : ndarray, optional
        The result of the first contender of the case, for all rows, if that was asked the
        same and was right.
    """

    result: NDArray[np.generic]
    problem: Problem
    sample: NDArray[np.integer] | None = None
    expected: NDArray[np.generic] | None = None


#: Tells whether a result is right; see `checks`.
Check = Callable[[Answer], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer. ``build`` and ``query`` are timed, each for itself.

    Attributes
    ----------
    distribution : str
        The installed package that it needs.
    process : str
        Contenders with the same name here share one process.
    build : callable
        ``build(problem) -> index``.
    query : callable
        ``query(index, problem, sample) -> result`` of shape (n_rows,), or of the shape of
        ``sample``: numbers of the rows to measure, None for all. Their neighbors are always
        sought among all rows.
    check : Check
    warm_up : callable, optional
        ``warm_up(problem)``, not timed. None: build and query on the first rows.
    takes_queries : bool, default=False
        Whether ``query`` can do with a sample.
    keeps_process : bool, default=True
        False: the process ends with the case, for what it holds or to see its memory.
    gives_radii : bool, default=True
        False: p-values or labels, which are compared with such only.
    process_threads : int, default=N_THREADS
        What the environment tells OpenMP, BLAS and numba. 1 where worker processes are the
        threads.
    """

    distribution: str
    process: str
    build: Callable[[Problem], Any]
    query: Callable[[Any, Problem, NDArray[np.integer] | None], NDArray[np.generic]]
    check: Check
    warm_up: Callable[[Problem], None] | None = None
    takes_queries: bool = False
    keeps_process: bool = True
    process_threads: int = N_THREADS
    gives_radii: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether this environment has the package; it is not imported to find out."""
        try:
            version(self.distribution)
        except PackageNotFoundError:
            return False
        return True

    def prepare(self, problem: Problem) -> None:
        """Import, compile and fill caches, so that none of it is timed."""
        if self.warm_up is not None:
            self.warm_up(problem)
        else:
            small = problem.head(WARM_UP_ROWS)
            self.query(self.build(small), small, None)
