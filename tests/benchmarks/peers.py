"""The peers: other libraries' ways to the K-th distance of every row, left out.

Each gets float32 rows and is used as its documentation proposes, with all else at its
defaults. Where a search cannot leave a row out, it looks for K + 1 neighbors, the first of
which is the row itself or an equal one.

Nothing is imported before a contender's own process asks for it: every one of these brings
its own OpenMP or BLAS, and they would share what one of them sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import checks
from benchmarks.contract import N_THREADS, Contender, Problem


def _queries(problem: Problem, sample: NDArray[np.integer] | None) -> NDArray[np.generic]:
    return problem.rows if sample is None else problem.rows[sample]


def _faiss_rows(problem: Problem) -> NDArray[np.generic]:
    import faiss

    faiss.omp_set_num_threads(N_THREADS)
    return problem.rows  # it searches the rows as they are


def _faiss_radii(
    rows: NDArray[np.generic], problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.generic]:
    import faiss

    squares, _ = faiss.knn(_queries(problem, sample), rows, problem.n_neighbors + 1)
    return np.sqrt(np.maximum(squares[:, -1], 0))  # a product may come out below zero


def _sklearn_index(problem: Problem) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=problem.n_neighbors, n_jobs=N_THREADS).fit(
        problem.rows
    )


def _sklearn_radii(
    index: Any, problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.generic]:
    if sample is None:
        distances, _ = index.kneighbors()
    else:
        distances, _ = index.kneighbors(problem.rows[sample], problem.n_neighbors + 1)
    return distances[:, -1]


def _ckdtree_index(problem: Problem) -> Any:
    from scipy.spatial import cKDTree

    return cKDTree(problem.rows)


def _ckdtree_radii(
    index: Any, problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.generic]:
    distances, _ = index.query(
        _queries(problem, sample), k=problem.n_neighbors + 1, workers=N_THREADS
    )
    return distances[:, -1]


def _pykdtree_index(problem: Problem) -> Any:
    from pykdtree.kdtree import KDTree

    return KDTree(problem.rows)  # its threads are those of OMP_NUM_THREADS


def _pykdtree_radii(
    index: Any, problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.generic]:
    distances, _ = index.query(_queries(problem, sample), k=problem.n_neighbors + 1)
    return distances[:, -1]


def _pyod_model(problem: Problem) -> Any:
    from pyod.models.knn import KNN

    return KNN(n_neighbors=problem.n_neighbors, method="largest", n_jobs=N_THREADS).fit(
        problem.rows
    )


def _pyod_radii(
    model: Any, problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.generic]:
    return model.decision_scores_


PEERS = {
    "faiss": Contender(
        "faiss-cpu",
        "faiss",
        _faiss_rows,
        _faiss_radii,
        checks.close_radii(checks.PRODUCTS),
        takes_queries=True,
    ),
    "scikit-learn": Contender(
        "scikit-learn",
        "scikit-learn",
        _sklearn_index,
        _sklearn_radii,
        checks.close_radii(checks.DIFFERENCES),
        takes_queries=True,
    ),
    "cKDTree": Contender(
        "scipy",
        "cKDTree",
        _ckdtree_index,
        _ckdtree_radii,
        checks.close_radii(checks.DIFFERENCES),
        takes_queries=True,
    ),
    "pykdtree": Contender(
        "pykdtree",
        "pykdtree",
        _pykdtree_index,
        _pykdtree_radii,
        checks.close_radii(checks.DIFFERENCES),
        takes_queries=True,
    ),
    "PyOD": Contender(
        "pyod",
        "PyOD",
        _pyod_model,
        _pyod_radii,
        checks.close_radii(checks.DIFFERENCES),
    ),
}
