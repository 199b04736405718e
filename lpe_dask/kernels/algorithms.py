"""The order in which rows are searched, one module for each name of ``algorithm=``.

`ALGORITHMS` is the one table from the name a user gives to the module that says how rows
are ordered. Every such module offers the same contract:

``basis(sample, weights, n_codes, separates) -> Basis``
    In which rows like those of a sample, of shape (n_rows, n_columns), are filtered, with
    the weights of their columns, the last ``n_codes`` of which are codes of categories; the
    last one may separate rows.
``arrange(points, cell_rows) -> Arrangement``
    In which order points in that basis are searched, and what runs of them are cells.
``tile(points, tile_rows, of_block) -> Arrangement``
    The same for queries, in tiles; as they came, if they come in the order of a block.
``SLAB_ROWS``
    Rows that are arranged at a time; None: all.
``KEEPS_NEAR_ROWS_TOGETHER``
    Whether the order pays only for blocks of near rows.
``SUMS_PAIRS``
    Whether all cells have their center in the origin, as `pairs` needs it.
``neighbor_lists(points, seed) -> places``
    About the nearest points of each, for searches along an index that may miss neighbors.
    None: there is no index, and no search misses any.

All else is shared. Distances are the float64 definition, bit for bit, and so are results
where nothing is missed.
"""

from __future__ import annotations

from types import ModuleType

from lpe_dask.kernels import brute, nn_descent, pruned

#: The modules that order rows, by the name that ``algorithm=`` gives them.
ALGORITHMS: dict[str, ModuleType] = {
    "brute": brute,
    "pruned": pruned,
    "nn_descent": nn_descent,
}
