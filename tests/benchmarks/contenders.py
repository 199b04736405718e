"""The one table of contenders, by the name that a case gives them.

Peers are other libraries' ways to the K-th distance of every row, left out. Each gets
float32 rows and is used as its documentation proposes, with all else at its defaults. Where
a search cannot leave a row out, it looks for K + 1 neighbors, the first of which is the row
itself or an equal one.

Nothing is imported before a contender's own process needs it: every library brings its own
OpenMP or BLAS, and they would share what one of them sets.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache, partial
from multiprocessing.util import Finalize
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from benchmarks.contract import N_THREADS, Array, Contender, Problem

#: What float32 sums of squared differences can be off by, relative to a distance: half of
#: d + 2 roundings of 6e-8, at the eight features that trees are given at most. Sums in
#: float64 that are rounded to float32 at the end are closer.
DIFFERENCES = 1e-6

#: The same for ``|x|^2 - 2 x.y + |y|^2`` in float32. Its error is absolute, some 1e-7 of
#: the squared norms, so the densest rows are the worst: a K-th distance of 0.03 at norms of
#: 1 (two features, 100,000 rows) may be off by 1e-4, and a few by more.
PRODUCTS = 1e-3

#: Warmed up one by one, since "auto" may choose otherwise for few rows than for many.
EXACT_ALGORITHMS = ("auto", "brute", "pruned")

# Peers


def _measured(problem: Problem) -> Array:
    if problem.n_sample is None:
        return problem.rows
    return problem.rows[problem.numbers]


def _faiss_rows(problem: Problem) -> Array:
    import faiss

    faiss.omp_set_num_threads(N_THREADS)
    return problem.rows  # it searches the rows as they are


def _faiss_radii(rows: Array, problem: Problem) -> Array:
    import faiss

    squares, _ = faiss.knn(_measured(problem), rows, problem.n_neighbors + 1)
    return np.sqrt(np.maximum(squares[:, -1], 0))  # a product may come out below zero


def _sklearn_index(problem: Problem) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=problem.n_neighbors, n_jobs=N_THREADS).fit(
        problem.rows
    )


def _sklearn_radii(index: Any, problem: Problem) -> Array:
    if problem.n_sample is None:
        distances, _ = index.kneighbors()
    else:
        distances, _ = index.kneighbors(_measured(problem), problem.n_neighbors + 1)
    return distances[:, -1]


def _pykdtree_index(problem: Problem) -> Any:
    from pykdtree.kdtree import KDTree

    return KDTree(problem.rows)  # its threads are those of OMP_NUM_THREADS


def _tree_radii(index: Any, problem: Problem) -> Array:
    distances, _ = index.query(_measured(problem), k=problem.n_neighbors + 1)
    return distances[:, -1]


def _pyod_model(problem: Problem) -> Any:
    from pyod.models.knn import KNN

    return KNN(n_neighbors=problem.n_neighbors, method="largest", n_jobs=N_THREADS).fit(
        problem.rows
    )


def _pyod_radii(model: Any, problem: Problem) -> Array:
    return model.decision_scores_


# Ours: the public face on threads and on processes, and the kernel below it


def _on_threads() -> Any:
    return dask.config.set(scheduler="threads", num_workers=N_THREADS)


def _fit(problem: Problem) -> Any:
    import lpe_dask

    return lpe_dask.LPE(problem.n_neighbors, **dict(problem.arguments)).fit(problem.rows)


def _fit_on_threads(problem: Problem) -> Any:
    with _on_threads():
        return _fit(problem)


def _nominal_radii(model: Any, problem: Problem) -> NDArray[np.float64]:
    return model.statistic_


def _warm_up_fit(problem: Problem) -> None:
    for algorithm in EXACT_ALGORITHMS:
        arguments = dict(problem.arguments) | {"algorithm": algorithm}
        _fit_on_threads(replace(problem.head(), arguments=tuple(arguments.items())))


@cache
def _client(n_workers: int) -> Any:
    """Return the client of worker processes of one thread each, which end with this one.

    It becomes Dask's scheduler for all that this process computes.
    """
    from distributed import Client, LocalCluster

    from lpe_dask.cli.cluster import kept_memory

    with dask.config.set(kept_memory()):  # as docs/guide/cluster.md says
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
    client = Client(cluster)
    # Before the processes of its workers, which end with this one anyway.
    Finalize(None, client.shutdown, exitpriority=1)
    return client


def _fit_on_processes(n_workers: int, problem: Problem) -> Any:
    _client(n_workers)
    return _fit(problem)


def _warm_up_processes(n_workers: int, problem: Problem) -> None:
    # In every worker, since few rows may be work for one of them only.
    _client(n_workers).run(_warm_up_fit, problem)
    _fit_on_processes(n_workers, problem.head())


def _processes(n_workers: int) -> Contender:
    return Contender(
        "lpe-dask",
        partial(_fit_on_processes, n_workers),
        _nominal_radii,
        warm_up=partial(_warm_up_processes, n_workers),
        process_threads=1,
    )


def _rows(problem: Problem) -> Array:
    return problem.rows


def _bare_radii(rows: Array, problem: Problem) -> NDArray[np.float64]:
    from benchmarks.bare import bare_kernel

    return bare_kernel(rows, problem.n_neighbors, N_THREADS)


@lru_cache(maxsize=1)
def _fitted(problem: Problem) -> Any:
    """Return the fitted model: one for all that is asked of it."""
    return _fit_on_threads(problem)


def _score_samples(model: Any, problem: Problem) -> Array:
    with _on_threads():
        return model.score_samples(problem.queries)


def _predict(model: Any, problem: Problem) -> Array:
    with _on_threads():
        return model.predict(problem.queries)


def _warm_up_queries(problem: Problem) -> None:
    model = _fitted(problem)
    _score_samples(model, problem.head())
    _predict(model, problem.head())


def _score(problem: Problem) -> NDArray[np.float64]:
    import lpe_dask

    with _on_threads():
        return lpe_dask.score(
            problem.rows, n_neighbors=problem.n_neighbors, **dict(problem.arguments)
        )


def _scored(p_values: NDArray[np.float64], problem: Problem) -> NDArray[np.float64]:
    return p_values


PEERS = {
    "faiss": Contender(
        "faiss-cpu", _faiss_rows, _faiss_radii, PRODUCTS, takes_samples=True
    ),
    "scikit-learn": Contender(
        "scikit-learn", _sklearn_index, _sklearn_radii, DIFFERENCES, takes_samples=True
    ),
    "pykdtree": Contender(
        "pykdtree", _pykdtree_index, _tree_radii, DIFFERENCES, takes_samples=True
    ),
    "PyOD": Contender("pyod", _pyod_model, _pyod_radii, DIFFERENCES),
}

_PREDICT = Contender(
    "lpe-dask", _fitted, _predict, tolerance=None, warm_up=_warm_up_queries
)

CONTENDERS = {
    "fit": Contender("lpe-dask", _fit_on_threads, _nominal_radii, warm_up=_warm_up_fit),
    "fit on 1 process": _processes(1),
    "fit on 2 processes": _processes(2),
    "bare kernel": Contender("lpe-dask", _rows, _bare_radii),
    "predict": _PREDICT,
    "score_samples": replace(_PREDICT, query=_score_samples),
    "score": replace(_PREDICT, build=_score, query=_scored, warm_up=_warm_up_fit),
} | PEERS
