from .held import HeldBlock
from .join import Search, search_blocks
from .locality import Split
from .memory import Needs, needs, plan_for, plan_for_active_workers
from .packing import Space, pack_rows
from .plan import (
    LARGEST_BLOCK,
    MAX_TASK_ROWS,
    SUMMED_BLOCKS,
    SUMMED_PIECES,
    TASKS_PER_THREAD,
    NeighborGraphParams,
    SearchPlan,
    SearchShape,
    Statistic,
    n_shares,
    sample_neighbors,
)
from .preparation import LinearMap, Preparation, Scaling
from .reference import Reference, choose_space, prepare_reference
from .spooled import handles_of
from .stored import StoredBlocks, load_blocks, load_graph, store_blocks, store_graph

__all__ = [
    "LARGEST_BLOCK",
    "MAX_TASK_ROWS",
    "SUMMED_BLOCKS",
    "SUMMED_PIECES",
    "TASKS_PER_THREAD",
    "HeldBlock",
    "LinearMap",
    "Needs",
    "NeighborGraphParams",
    "Preparation",
    "Reference",
    "Scaling",
    "Search",
    "SearchPlan",
    "SearchShape",
    "Space",
    "Split",
    "Statistic",
    "StoredBlocks",
    "choose_space",
    "handles_of",
    "load_blocks",
    "load_graph",
    "n_shares",
    "needs",
    "pack_rows",
    "plan_for",
    "plan_for_active_workers",
    "prepare_reference",
    "sample_neighbors",
    "search_blocks",
    "store_blocks",
    "store_graph",
]
