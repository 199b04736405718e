"""Settle how the nominal rows are searched, and put them where tasks find them.

    sample --> algorithm, frame, split    on the client; no result depends on them
    rows --> blocks                       in memory or in a spool; computed

What the sample says decides how long a search takes, never what it finds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS
from lpe_dask.kernels.choice import choose_algorithm
from lpe_dask.locality import learn_split
from lpe_dask.packing import Space, prepare_blocks
from lpe_dask.plan import JoinPlan, sample_neighbors
from lpe_dask.preparation import Preparation
from lpe_dask.spool import HeldBlocks, Spool, spool_place

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """Nominal rows, ready to be searched.

    Attributes
    ----------
    space : Space
    algorithm : str
        A name of `kernels.ALGORITHMS`.
    blocks : HeldBlocks
    """

    space: Space
    algorithm: str
    blocks: HeldBlocks

    def tasks(self) -> list[Delayed]:
        """Return tasks that give the handles of the blocks, for the active scheduler."""
        return self.blocks.tasks()


def prepare_reference(
    rows: da.Array,
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: JoinPlan,
    algorithm: str,
    radius: float | None,
) -> Reference:
    """Return nominal rows ready to be searched; computes.

    Parameters
    ----------
    rows : dask array of shape (n_reference, n_features)
        Finite, with known chunks.
    sample : ndarray of shape (n_sampled, n_features)
        Some of them.
    preparation : Preparation
    plan : JoinPlan
    algorithm : str
        A name of `kernels.ALGORITHMS`, or "auto".
    radius : float, optional
        Of the search, where it counts rows within a radius.

    Raises
    ------
    OSError
        If the rows need a spool, and none can be written that all workers see.
    """
    prepared = preparation.apply(sample)
    frame = None
    if algorithm == "auto":
        n_neighbors = None if radius is not None else plan.n_neighbors
        choice = choose_algorithm(prepared, plan.n_reference, n_neighbors, radius)
        algorithm, frame = choice.algorithm, choice.frame
        logger.info("algorithm=%s: %s", algorithm, choice.reason)
    kernel = ALGORITHMS[algorithm]
    if frame is None:
        frame = kernel.frame(prepared)
    split = None
    if kernel.KEEPS_NEAR_ROWS_TOGETHER:
        split = learn_split(frame.points(prepared), plan.n_blocks)
    is_sampled = sample_neighbors(plan.n_neighbors) is not None
    space = Space(preparation, frame, split, is_sampled)
    spool = None
    if plan.is_spooled:
        spool = Spool(spool_place())
        logger.info(
            "%d nominal rows do not fit into the memory of each worker: they are spooled "
            "to %s", plan.n_reference, spool.folder.url,
        )  # fmt: skip
    chunks = rows.rechunk((plan.block_rows, -1))
    blocks = prepare_blocks(chunks, space, algorithm, spool, plan.largest_block_rows)
    return Reference(space, algorithm, blocks)
