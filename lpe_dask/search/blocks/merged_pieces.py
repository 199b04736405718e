r"""Merge pieces in a spool, so that blocks of many of them are made by fewer readings.

    regions     0..1  2..3        a reading each of every piece and region: pieces x regions
    pieces      p0    p0
                p1    p1          runs of regions and of pieces: a file each, of no more
                  \     \         rows than a piece
    merged      m0    m1
                p2    p2
                p3    p3
                  \     \
                m2    m3

A block is then made of the pieces of its run. With n regions and as many pieces there are
about ``2 n ** 1.5`` readings rather than ``n ** 2``, and all rows are written once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.search.blocks.in_memory import RowsByRegion
from lpe_dask.search.blocks.spool_blocks import Handles, SpoolFolder, handles_of
from lpe_dask.search.plan import SUMMED_PIECES
from lpe_dask.tasks import SpoolEntry, compute, new_tasks, to_task

#: Readings of a piece by a task, in all, up to which nothing is merged: each takes 0.05 ms
#: on a disk of the machine, and may take a tenth of a second elsewhere.
MAX_PIECE_READS = 2**18


#: What their files are called.
MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Run:
    """Regions that follow each other, and the pieces that have their rows.

    Attributes
    ----------
    first, stop : int
        The first region, and the first of the next run.
    pieces : slice
    """

    first: int
    stop: int
    pieces: slice


def merged_pieces(
    pieces: list[Delayed], n_pieces: int, n_regions: int, entry: SpoolEntry
) -> tuple[list[Delayed], list[Run]]:
    """Return the pieces to make blocks of, and where each region is; computes.

    Parameters
    ----------
    pieces : list of Delayed
        Of `Handles` of pieces in a spool.
    n_pieces, n_regions : int
    entry : SpoolEntry
        Of the spool.
    """
    if n_pieces * n_regions <= MAX_PIECE_READS:
        return pieces, [Run(0, n_regions, slice(None))]
    keys, edges = [piece.key for piece in pieces], run_edges(n_regions)
    starts = range(0, n_pieces, SUMMED_PIECES)
    counts = ((_rows_of_runs, keys, i, i + SUMMED_PIECES, edges) for i in starts)
    n_rows = np.concatenate(compute(*new_tasks("sizes", counts, pieces)))
    together = [cut_pieces(of_run, n_rows.sum(axis=1).max()) for of_run in n_rows.T]
    folder = SpoolFolder(entry.url)
    merges = (
        (_merge, keys, *some, *run, folder)
        for run, cuts in zip(pairwise(edges), together, strict=True)
        for some in pairwise(cuts)
    )
    merged = compute(*new_tasks("merge-pieces", merges, pieces))
    places = np.cumsum([0, *(len(cuts) - 1 for cuts in together)]).tolist()
    runs = [
        Run(*of_run, slice(*of_pieces))
        for of_run, of_pieces in zip(pairwise(edges), pairwise(places), strict=True)
    ]
    return [to_task(Handles(merged, entry), "lpe-pieces")], runs


def run_edges(n_regions: int) -> list[int]:
    """Return where runs of so many regions begin and end: about the root of them each."""
    return [*range(0, n_regions, math.isqrt(n_regions)), n_regions]


def cut_pieces(n_rows: NDArray[np.int64], most: int) -> list[int]:
    """Return where to cut pieces that follow each other, so that few rows are together.

    Parameters
    ----------
    n_rows : ndarray of shape (n_pieces,)
        Of each piece.
    most : int
        Rows together, if there are several pieces; no piece has more.

    Examples
    --------
    >>> cut_pieces(np.array([3, 3, 3, 9, 1]), 9)
    [0, 3, 4, 5]
    """
    cuts, together = [0], 0
    for i, n in enumerate(n_rows.tolist()):
        if together + n > most:
            cuts.append(i)
            together = 0
        together += n
    return [*cuts, len(n_rows)]


# The functions below run inside tasks: files in, files out.


def _rows_of_runs(
    pieces: list[Any], start: int, stop: int, edges: list[int]
) -> NDArray[np.int64]:
    """Return the rows of each run of regions in some pieces."""
    sizes = [piece.sizes() for piece in handles_of(pieces)[start:stop]]
    return np.add.reduceat(sizes, edges[:-1], axis=1)


def _merge(
    pieces: list[Any], start: int, stop: int, first: int, last: int, folder: SpoolFolder
) -> Any:
    """Write the rows that some pieces have of a run of regions, by region."""
    read = [piece.read_run(first, last) for piece in handles_of(pieces)[start:stop]]
    sizes = np.array([of.sizes() for of in read])
    regions = np.tile(np.arange(last - first), len(read)).repeat(sizes.ravel())
    order = np.argsort(regions, kind="stable")
    rows = np.concatenate([of.rows for of in read])[order]
    numbers = np.concatenate([of.numbers for of in read])[order]
    starts = np.append(0, np.cumsum(sizes.sum(axis=0)))
    return folder.write_pieces(RowsByRegion(rows, numbers, starts), MERGED)
