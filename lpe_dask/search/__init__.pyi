from .blocks import StoredBlocks
from .join import Search
from .locality import Split
from .memory import Needs, plan_for, plan_for_active_workers
from .packing import Space
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
from .reference import Reference, prepare_reference
from .spooled import handles_of
from .stored import load_blocks, load_graph, store_blocks, store_graph
from .trial import Cost, SampledRows, Trial, choose_space

__all__ = [
    "LARGEST_BLOCK",
    "MAX_TASK_ROWS",
    "SUMMED_BLOCKS",
    "SUMMED_PIECES",
    "TASKS_PER_THREAD",
    "Cost",
    "LinearMap",
    "Needs",
    "NeighborGraphParams",
    "Preparation",
    "Reference",
    "SampledRows",
    "Scaling",
    "Search",
    "SearchPlan",
    "SearchShape",
    "Space",
    "Split",
    "Statistic",
    "StoredBlocks",
    "Trial",
    "choose_space",
    "handles_of",
    "load_blocks",
    "load_graph",
    "n_shares",
    "plan_for",
    "plan_for_active_workers",
    "prepare_reference",
    "sample_neighbors",
    "store_blocks",
    "store_graph",
]
