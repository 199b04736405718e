"""Blocks, and the pieces they are made of, in memory.

`spool_blocks` has the same on storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Block, Index

#: Some rows of a region with their numbers, and how many rows the whole region has.
RowsOfRegion = tuple[NDArray[np.floating], NDArray[np.int64], int]


@dataclass(frozen=True, slots=True)
class InMemoryBlock:
    """A block in memory, with a sample of its rows as another one.

    Attributes
    ----------
    block : Block
    sample : Block, optional
        Where searches will want it.
    low, high : ndarray of shape (n_features,)
        Its box in the basis.
    """

    block: Block
    sample: Block | None
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, block: Block, sample: Block | None) -> Self:
        """Return a block and its sample with the box, which every search asks for."""
        return cls(block, sample, *block.box())

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        of_sample = 0 if self.sample is None else self.sample.__sizeof__()
        return self.block.__sizeof__() + of_sample

    def load(self) -> Block:
        """Return the block."""
        return self.block

    def load_sample(self) -> Block:
        """Return the block of sampled rows."""
        assert self.sample is not None
        return self.sample


@dataclass(frozen=True, slots=True)
class InMemoryIndex:
    """The index of a block in memory.

    Attributes
    ----------
    index : Index
    """

    index: Index

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.index.__sizeof__()

    def load(self) -> Index:
        """Return the index."""
        return self.index


@dataclass(frozen=True, slots=True)
class RowsByRegion:
    """Rows of one partition, sorted by the region of the reference they belong to.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
        As prepared.
    numbers : ndarray of shape (n_rows,)
        Their numbers in the reference.
    starts : ndarray of shape (n_regions + 1,)
        Region ``p`` is the rows from ``starts[p]`` to ``starts[p + 1]``.
    """

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.rows.nbytes + self.numbers.nbytes + self.starts.nbytes

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each region."""
        return np.diff(self.starts)

    def read(self, region: int, start: int, stop: int) -> RowsOfRegion:
        """Return rows ``start`` to ``stop`` of a region; see `read_region`."""
        return read_region(self.part, region, start, stop)

    def part(self, i: int, start: int, stop: int) -> NDArray[Any]:
        """Return part of the starts, the numbers or the rows, by their place in a file."""
        return (self.starts, self.numbers, self.rows)[i][start:stop]


def read_region(
    part: Callable[[int, int, int], NDArray[Any]], region: int, start: int, stop: int
) -> RowsOfRegion:
    """Return rows ``start`` to ``stop`` of a region, or as many of them as it has.

    Parameters
    ----------
    part : callable
        Gives a part of the starts (0), the numbers (1) or the rows (2) of `RowsByRegion`.
    """
    first, last = part(0, region, region + 2).tolist()
    which = min(first + start, last), min(first + stop, last)
    return part(2, *which), part(1, *which), last - first
