"""Our own entries: the public face on threads and on processes, and the kernel below it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from benchmarks import checks
from benchmarks.contract import N_THREADS, WARM_UP_ROWS, Contender, Problem

#: Warmed up one by one, since "auto" may choose otherwise for few rows than for many.
EXACT_ALGORITHMS = ("auto", "brute", "pruned")


def _on_threads() -> Any:
    return dask.config.set(scheduler="threads", num_workers=N_THREADS)


def _fit(problem: Problem) -> Any:
    import lpe_dask

    return lpe_dask.LPE(problem.n_neighbors, **problem.arguments).fit(problem.rows)


def _fit_on_threads(problem: Problem) -> Any:
    with _on_threads():
        return _fit(problem)


def _nominal_radii(
    model: Any, problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.float64]:
    with _on_threads():
        return model.statistic_


def _warm_up_fit(problem: Problem) -> None:
    for algorithm in EXACT_ALGORITHMS:
        arguments = {**problem.arguments, "algorithm": algorithm}
        small = replace(problem.head(WARM_UP_ROWS), arguments=arguments)
        with contextlib.suppress(ValueError):  # not every version has all of them
            _nominal_radii(_fit_on_threads(small), small, None)


@cache
def _client(n_workers: int) -> Any:
    """Return the client of worker processes of one thread each, which end with this one.

    It becomes Dask's scheduler for all that this process computes.
    """
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    )
    return Client(cluster)


def _processes(n_workers: int) -> Contender:
    def build(problem: Problem) -> Any:
        _client(n_workers)
        return _fit(problem)

    def query(
        model: Any, problem: Problem, sample: NDArray[np.integer] | None
    ) -> NDArray[np.float64]:
        return model.statistic_

    def warm_up(problem: Problem) -> None:
        small = problem.head(WARM_UP_ROWS)
        # In every worker, since few rows may be work for one of them only.
        _client(n_workers).run(_warm_up_fit, small)
        query(build(small), small, None)

    return Contender(
        "lpe-dask",
        f"{n_workers} workers",
        build,
        query,
        checks.equal_radii,
        warm_up=warm_up,
        keeps_process=False,
        process_threads=1,
    )


def _rows(problem: Problem) -> NDArray[np.generic]:
    return problem.rows


def _bare_radii(
    rows: NDArray[np.generic], problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.float64]:
    from benchmarks.bare import bare_kernel

    return bare_kernel(rows, problem.n_neighbors, N_THREADS)


@lru_cache(maxsize=1)
def _fitted(problem: Problem) -> Any:
    """Return the fitted model: one for all that is asked of it."""
    return _fit_on_threads(problem)


def _asking(method: str) -> Callable[..., NDArray[np.generic]]:
    """Return the ``query`` that calls this method of a model with the queries."""

    def query(
        model: Any, problem: Problem, sample: NDArray[np.integer] | None
    ) -> NDArray[np.generic]:
        with _on_threads():
            return getattr(model, method)(problem.queries)

    return query


def _warm_up_queries(problem: Problem) -> None:
    small = replace(problem, queries=problem.queries[:WARM_UP_ROWS])
    for method in ("score_samples", "predict"):
        _asking(method)(_fitted(problem), small, None)


def _score(problem: Problem) -> NDArray[np.float64]:
    import lpe_dask

    with _on_threads():
        return lpe_dask.score(
            problem.rows, n_neighbors=problem.n_neighbors, **problem.arguments
        )


def _scored(
    p_values: NDArray[np.float64], problem: Problem, sample: NDArray[np.integer] | None
) -> NDArray[np.float64]:
    return p_values


OURS = {
    "fit": Contender(
        "lpe-dask",
        "lpe_dask",
        _fit_on_threads,
        _nominal_radii,
        checks.equal_radii,
        warm_up=_warm_up_fit,
    ),
    "fit on 1 process": _processes(1),
    "fit on 2 processes": _processes(2),
    "bare kernel": Contender(
        "lpe-dask", "bare kernel", _rows, _bare_radii, checks.equal_radii
    ),
    "predict": Contender(
        "lpe-dask",
        "queries",
        _fitted,
        _asking("predict"),
        checks.falling_with_radii,
        warm_up=_warm_up_queries,
        gives_radii=False,
        keeps_process=False,
    ),
    "score_samples": Contender(
        "lpe-dask",
        "queries",
        _fitted,
        _asking("score_samples"),
        checks.p_values_of_labels,
        warm_up=_warm_up_queries,
        gives_radii=False,
        keeps_process=False,
    ),
    "score": Contender(
        "lpe-dask",
        "score",
        _score,
        _scored,
        checks.falling_with_radii,
        warm_up=_warm_up_fit,
        gives_radii=False,
        keeps_process=False,  # its peak of memory is that of this case alone
    ),
}
