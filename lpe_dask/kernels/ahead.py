"""Compile before there is anything to search: for images, and for machines of a cluster."""

from __future__ import annotations

import math

import numpy as np

from lpe_dask.kernels import brute, nn_descent
from lpe_dask.kernels.accumulators import CountAccumulator, KNearestAccumulator, QueryTiles
from lpe_dask.kernels.beam_search import BeamAccumulator
from lpe_dask.kernels.block_index import Index, joined_lists
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.compilation import KERNELS, all_on_disk, compiler
from lpe_dask.kernels.exact_sums import sum_of_products
from lpe_dask.kernels.neighbor_graph import union_graph
from lpe_dask.kernels.pair_states import PairSearch

#: Rows that are searched: so many that pynndescent does not leave out a step.
N_ROWS = 200


def compile_kernels(algorithm: str = "auto") -> None:
    """Compile all that a search may need, and keep it on disk, once per machine.

    A first large search does so by itself, which takes about 20 s; small tables need
    nothing compiled, but for walks along a neighbor graph, about 5 s. Compiled code is for
    one kind of processor, one version of this package and one of Python. It is kept in the
    folder that numba chooses, or in that of the configuration key
    ``lpe-dask.cache-folder``.

    Parameters
    ----------
    algorithm : {"auto", "nn_descent"}, default="auto"
        "nn_descent" compiles pynndescent and what goes along its indexes as well, which
        takes a minute longer.

    Raises
    ------
    ValueError
        If ``algorithm`` is another one.
    OSError
        If the kernels could not be kept on disk: they are compiled in this process alone.

    Examples
    --------
    >>> import lpe_dask
    >>> lpe_dask.compile_kernels()  # doctest: +SKIP
    """
    if algorithm not in ("auto", "nn_descent"):
        raise ValueError(
            f"algorithm={algorithm!r}; it must be 'auto' or 'nn_descent': all others need "
            f"the same kernels as 'auto'."
        )
    for name in KERNELS:
        compiler.expect(name, math.inf)
    rows = np.random.default_rng(0).standard_normal((N_ROWS, 2))
    numbers, basis = np.arange(N_ROWS), brute.basis(rows)
    block = Block.build(rows, numbers, brute.arrange, basis)
    points = basis.points(rows)
    queries = QueryTiles(rows, points, brute.tile(points, N_ROWS), numbers, basis)
    nearest = KNearestAccumulator(queries, basis, 3, with_numbers=True)
    nearest.fold(block)
    PairSearch(basis, 3).within(block)
    CountAccumulator(queries, basis, 1.0).fold(block)
    distances, neighbors = nearest.neighbors()
    graph = union_graph(neighbors.astype(np.int32), distances)
    graph.walk_from_rows(numbers, most=3)
    sum_of_products(rows[:, 0], rows[:, 1])
    if algorithm == "nn_descent":
        lists = nn_descent.neighbor_lists(points, 0)
        places = numbers.astype(np.int32)
        index = Index(joined_lists(lists), places, numbers, block)
        BeamAccumulator(queries, basis, 3).fold(block, index)
    if not all_on_disk():
        raise OSError(
            "the kernels are compiled, but could not be kept on disk: each process would "
            "compile them anew. Name a folder that can be written to: configuration key "
            "lpe-dask.cache-folder, environment variable DASK_LPE_DASK__CACHE_FOLDER."
        )
