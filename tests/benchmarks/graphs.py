"""What finds neighbors approximately: ours, and the peers' graphs and cells, one table.

Each contender gets nominal rows and new ones and returns what it has found out, in a
process of its own. Peers return K-th distances; the caller makes p-values of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
from dask.diagnostics import Profiler
from numpy.typing import NDArray

from benchmarks.contract import N_THREADS

N_NEIGHBORS = 20

#: At most; half of the rows where these are fewer.
CALIBRATION_ROWS = 20_000


@dataclass(slots=True)
class Found:
    """What a contender has found out, and what it took.

    Attributes
    ----------
    own, new : ndarray of shape (n_rows,) or (n_new,)
        P-values, or K-th distances where ``is_radii``; a nominal row leaves itself out.
    seconds : dict
        ``build``, ``own`` and ``new``; ``audit`` is the part of ``build`` and ``own`` that
        goes into a certificate, ``audit of new`` that of ``new``.
    is_radii : bool
    calibration : ndarray of shape (m,), optional
        Ascending, of the exact search.
    told : dict of str to str
        What else it says.
    """

    own: NDArray[np.generic]
    new: NDArray[np.generic]
    seconds: dict[str, float]
    is_radii: bool = True
    calibration: NDArray[np.float64] | None = None
    told: dict[str, str] = field(default_factory=dict)


Rows = NDArray[np.float32]
Search = Callable[[Rows, Rows], Found]


class _Clock:
    """Seconds of one step after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, step: str) -> None:
        """Give the time since the last step to this one."""
        now = time.perf_counter()
        self.seconds[step] = now - self._last
        self._last = now


def _audit_seconds(profiler: Profiler) -> float:
    """Return the time between the first row that is audited and the last verdict."""
    spans = [
        task
        for task in profiler.results
        if str(task.key[0] if isinstance(task.key, tuple) else task.key).startswith(
            ("lpe-audited", "lpe-judge")
        )
    ]
    if not spans:
        return 0.0
    return max(s.end_time for s in spans) - min(s.start_time for s in spans)


def _ours(algorithm: str) -> Search:
    def search(rows: Rows, new: Rows) -> Found:
        import lpe_dask

        with dask.config.set(scheduler="threads", num_workers=N_THREADS):
            clock = _Clock()
            with Profiler() as of_own:
                model = lpe_dask.LPE(
                    N_NEIGHBORS,
                    algorithm=algorithm,
                    calibration_size=min(CALIBRATION_ROWS, len(rows) // 2),
                    random_state=0,
                ).fit(rows)
                clock.stop("build")
                own = np.asarray(model.p_values_)
            clock.stop("own")
            with Profiler() as of_new:
                answers = model.score_samples(new)
            clock.stop("new")
        clock.seconds["audit"] = _audit_seconds(of_own)
        clock.seconds["audit of new"] = _audit_seconds(of_new)
        told = {"algorithm": model.algorithm_}
        if algorithm == "nn_descent":
            told["certificate"] = str(model.certificate_)
        return Found(own, answers, clock.seconds, False, model.calibration_, told)

    return search


def _chosen(rows: Rows, new: Rows) -> Found:
    """Fit with "auto" where it may search approximately; no row is scored."""
    import lpe_dask

    none = np.empty(0)
    with dask.config.set(scheduler="threads", num_workers=N_THREADS):
        clock = _Clock()
        model = lpe_dask.LPE(
            N_NEIGHBORS,
            allow_approximate=True,
            calibration_size=min(CALIBRATION_ROWS, len(rows) // 2),
            random_state=0,
        ).fit(rows)
        clock.stop("build")
    return Found(none, none, clock.seconds, False, None, {"algorithm": model.algorithm_})


def _pynndescent(rows: Rows, new: Rows) -> Found:
    from pynndescent import NNDescent

    clock = _Clock()
    index = NNDescent(rows, n_neighbors=30, n_jobs=N_THREADS, random_state=0)
    clock.stop("build")
    # The first of the 30 is the row itself.
    own = index.neighbor_graph[1][:, N_NEIGHBORS]
    clock.stop("own")
    answers = index.query(new, k=N_NEIGHBORS, epsilon=0.2)[1][:, -1]
    clock.stop("new")
    return Found(own, answers, clock.seconds)


def _hnswlib(rows: Rows, new: Rows) -> Found:
    import hnswlib

    clock = _Clock()
    index = hnswlib.Index(space="l2", dim=rows.shape[1])
    index.init_index(len(rows), M=16, ef_construction=100, random_seed=0)
    index.set_num_threads(N_THREADS)
    index.add_items(rows)
    index.set_ef(100)
    clock.stop("build")
    own = index.knn_query(rows, N_NEIGHBORS + 1)[1][:, -1]
    clock.stop("own")
    answers = index.knn_query(new, N_NEIGHBORS)[1][:, -1]
    clock.stop("new")
    return Found(np.sqrt(own), np.sqrt(answers), clock.seconds)


def _faiss(build: Callable[[Any, Rows], Any]) -> Search:
    def search(rows: Rows, new: Rows) -> Found:
        import faiss

        faiss.omp_set_num_threads(N_THREADS)
        clock = _Clock()
        index = build(faiss, rows)
        index.add(rows)
        clock.stop("build")
        own = index.search(rows, N_NEIGHBORS + 1)[0][:, -1]
        clock.stop("own")
        answers = index.search(new, N_NEIGHBORS)[0][:, -1]
        clock.stop("new")
        own, answers = (np.sqrt(np.maximum(found, 0)) for found in (own, answers))
        return Found(own, answers, clock.seconds)

    return search


def _faiss_cells(faiss: Any, rows: Rows) -> Any:
    n_rows, n_features = rows.shape
    n_cells = int(4 * n_rows**0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(n_features), n_features, n_cells)
    index.train(rows)
    index.nprobe = n_cells // 12
    return index


def _faiss_graph(faiss: Any, rows: Rows) -> Any:
    index = faiss.IndexHNSWFlat(rows.shape[1], 16)
    index.hnsw.efConstruction = 100
    index.hnsw.efSearch = 100
    return index


#: Label -> distribution it needs, and how it searches. The first is what all are judged by.
SEARCHES: dict[str, tuple[str, Search]] = {
    "exact": ("lpe-dask", _ours("auto")),
    "nn_descent": ("lpe-dask", _ours("nn_descent")),
    "auto": ("lpe-dask", _chosen),
    "pynndescent": ("pynndescent", _pynndescent),
    "hnswlib": ("hnswlib", _hnswlib),
    "faiss HNSW": ("faiss-cpu", _faiss(_faiss_graph)),
    "faiss IVF": ("faiss-cpu", _faiss(_faiss_cells)),
}
