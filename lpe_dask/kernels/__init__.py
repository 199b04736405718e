"""Numerical kernels: NumPy arrays in, NumPy arrays out; nothing here knows of Dask.

`ALGORITHMS` is the one table from the name a user gives to the module that searches. Every
such module offers the same contract:

``pack(rows) -> block``
    One block of the reference, of shape (n_rows, n_features), in the layout of its search;
    with ``block.rows(start, stop)`` and ``block.n_rows``.
``NearestState(queries, n_neighbors)`` and ``CountState(queries, radius)``
    What is known of some queries so far; with ``state.fold(block, self_offset)``, which
    takes one block into account (blocks may come in any order), and ``state.finish()``,
    which returns the statistic of each query.

An exact algorithm returns the float64 definition, bit for bit.
"""

from __future__ import annotations

from types import ModuleType

from lpe_dask.kernels import tiles

#: The search modules, by the name that ``algorithm=`` gives them.
ALGORITHMS: dict[str, ModuleType] = {"brute": tiles}
