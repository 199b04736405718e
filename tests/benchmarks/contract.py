"""What the benchmarks ask, and what a contender has to offer to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Threads that every contender may use, or worker processes of one thread.
N_THREADS = 2

#: Rows that a contender warms up on: enough for each of its code paths.
WARM_UP_ROWS = 2000

Array = NDArray[np.generic]


@lru_cache(maxsize=2)
def _load(path: Path) -> Array:
    return np.load(path)


@dataclass(frozen=True)
class Problem:
    """One question: the K-th distances, p-values or labels of some rows.

    Equal problems are one problem, also in another process.

    Attributes
    ----------
    folder : Path
        Of ``rows.npy`` and, if new rows are asked about, ``queries.npy``.
    n_neighbors : int
        K, less than the number of rows.
    arguments : tuple of pairs
        Further arguments of `lpe_dask.LPE`; peers have no use for them.
    n_sample : int, optional
        Rows that stand for all; None: all. Neighbors are sought among all rows anyway.
    n_rows : int, optional
        Only the first rows, and queries, are there. None: all.
    """

    folder: Path
    n_neighbors: int
    arguments: tuple[tuple[str, Any], ...] = ()
    n_sample: int | None = None
    n_rows: int | None = None

    @property
    def rows(self) -> Array:
        """The nominal rows, float32 for all but real tables."""
        return _load(self.folder / "rows.npy")[: self.n_rows]

    @property
    def queries(self) -> Array | None:
        """New rows. None: each of ``rows`` against all others."""
        path = self.folder / "queries.npy"
        return _load(path)[: self.n_rows] if path.exists() else None

    @property
    def numbers(self) -> NDArray[np.integer]:
        """The numbers of the rows to measure."""
        n_rows = len(self.rows)
        if self.n_sample is None:
            return np.arange(n_rows)
        return np.random.default_rng(0).choice(n_rows, self.n_sample, replace=False)

    def head(self) -> Problem:
        """Return the same question about the first rows only, to warm up."""
        return replace(self, n_rows=WARM_UP_ROWS, n_sample=None)


@dataclass(frozen=True)
class Contender:
    """One way to answer. ``build`` and ``query`` are timed, each for itself.

    Attributes
    ----------
    distribution : str
        The installed package that it needs.
    build : callable
        ``build(problem) -> index``.
    query : callable
        ``query(index, problem) -> result``, a number for each row to measure.
    tolerance : float, optional
        How far its distances may be off, relative to them. None: they are p-values or
        labels, which are compared with such only.
    warm_up : callable, optional
        ``warm_up(problem)``, not timed. None: build and query on the first rows.
    takes_samples : bool, default=False
        Whether ``query`` can do with a sample of the rows.
    process_threads : int, default=N_THREADS
        What the environment tells OpenMP, BLAS and numba. 1 where worker processes are the
        threads.
    """

    distribution: str
    build: Callable[[Problem], Any]
    query: Callable[[Any, Problem], Array]
    tolerance: float | None = 0.0
    warm_up: Callable[[Problem], None] | None = None
    takes_samples: bool = False
    process_threads: int = N_THREADS

    def prepare(self, problem: Problem) -> None:
        """Import, compile and fill caches, so that none of it is timed."""
        if self.warm_up is not None:
            self.warm_up(problem)
        else:
            small = problem.head()
            self.query(self.build(small), small)


def installed_version(distribution: str) -> str | None:
    """Return the version of a package, which is not imported; None if it is not there."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
