from .handles import HeldBlock, handles_of
from .held import Results
from .join import Search, search_blocks
from .locality import Split
from .packing import Space, load_blocks, pack_rows
from .plan import (
    LARGEST_BLOCK,
    MAX_TASK_ROWS,
    MIN_WORKER_BYTES,
    PROCESS_BYTES,
    SUMMED_BLOCKS,
    SUMMED_PIECES,
    TASKS_PER_THREAD,
    USABLE_SHARE,
    JoinPlan,
    NeighborGraphParams,
    Statistic,
    n_shares,
    sample_neighbors,
)
from .preparation import LinearMap, Preparation, Scaling
from .reference import (
    Reference,
    choose_space,
    plan_for,
    plan_for_workers,
    prepare_reference,
)
from .stored import load_graph, store_blocks, store_graph

__all__ = [
    "LARGEST_BLOCK",
    "MAX_TASK_ROWS",
    "MIN_WORKER_BYTES",
    "PROCESS_BYTES",
    "SUMMED_BLOCKS",
    "SUMMED_PIECES",
    "TASKS_PER_THREAD",
    "USABLE_SHARE",
    "HeldBlock",
    "JoinPlan",
    "LinearMap",
    "NeighborGraphParams",
    "Preparation",
    "Reference",
    "Results",
    "Scaling",
    "Search",
    "Space",
    "Split",
    "Statistic",
    "choose_space",
    "handles_of",
    "load_blocks",
    "load_graph",
    "n_shares",
    "pack_rows",
    "plan_for",
    "plan_for_workers",
    "prepare_reference",
    "sample_neighbors",
    "search_blocks",
    "store_blocks",
    "store_graph",
]
