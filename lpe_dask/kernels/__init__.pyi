from .algorithms import ALGORITHMS
from .basis import Basis
from .blocks import Arrangement, Block, block_of, build_block, narrow
from .bounds import TILE_ROWS
from .exact_sums import Totals, add_totals, join_totals, sum_of_products, totals_of
from .factors import cholesky, cholesky_of_inverse, dependent_columns
from .paths import GRAPHS, NeighborGraph, walk_from_points, walk_from_rows
from .pruned import FLAT_CELL_ROWS
from .simd import LANES
from .states import CountState, NearestState, QueryTiles

__all__ = [
    "ALGORITHMS",
    "FLAT_CELL_ROWS",
    "GRAPHS",
    "LANES",
    "TILE_ROWS",
    "Arrangement",
    "Basis",
    "Block",
    "CountState",
    "NearestState",
    "NeighborGraph",
    "QueryTiles",
    "Totals",
    "add_totals",
    "block_of",
    "build_block",
    "cholesky",
    "cholesky_of_inverse",
    "dependent_columns",
    "join_totals",
    "narrow",
    "sum_of_products",
    "totals_of",
    "walk_from_points",
    "walk_from_rows",
]
