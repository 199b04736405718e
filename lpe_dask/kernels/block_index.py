"""What an approximate search of a block goes along.

    lists of near rows --joined_lists--> graph: each row leads to its near rows, and back
    one of STARTS_EVERY rows           --> starts: where searches enter it

Lists lead from a row to those near it, and a row that is near none is in no list. So the
graph leads both ways, up to so many rows from each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import read_only
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.compilation import run

#: One of so many rows is a start, but at least so many rows are.
STARTS_EVERY, MIN_STARTS = 64, 64


@dataclass(frozen=True, slots=True)
class Index:
    """The graph of a block.

    Attributes
    ----------
    graph : ndarray of shape (n_rows, n_led_to)
        The places in the block that each row leads to, the nearest first; then -1.
    order : ndarray of shape (n_rows,)
        Places, by the numbers of their rows.
    numbers : ndarray of shape (n_rows,)
        These numbers, ascending.
    starts : Block
        The rows where searches enter the graph.
    """

    #: Most rows that one leads to.
    DEGREE: ClassVar[int] = 48

    graph: NDArray[np.int32]
    order: NDArray[np.int32]
    numbers: NDArray[np.int64]
    starts: Block

    @classmethod
    def of(cls, block: Block, graph: NDArray[np.int32], pack: Callable[..., Block]) -> Self:
        """Return the index of a block with this graph.

        Parameters
        ----------
        block : Block
        graph : ndarray of shape (n_rows, n_led_to)
        pack : callable
            Makes a block of rows and their numbers.
        """
        order = np.argsort(block.numbers).astype(np.int32)
        starts = start_places(order)
        entered = pack(block.rows[starts], block.numbers[starts])
        return cls(graph, order, block.numbers[order], entered)

    @classmethod
    def of_lists(
        cls, block: Block, lists: NDArray[np.int32], pack: Callable[..., Block]
    ) -> Self:
        """Return the index of a block whose near rows are listed, as for `joined_lists`."""
        return cls.of(block, joined_lists(lists), pack)

    @staticmethod
    def from_arrays(
        graph: NDArray[np.int32],
        order: NDArray[np.int32],
        numbers: NDArray[np.int64],
        *of_starts: NDArray[Any],
    ) -> Index:
        """Return an index of these arrays, as `arrays` gives them."""
        return Index(graph, order, numbers, Block.from_arrays(*of_starts))

    @staticmethod
    def row_bytes(start_bytes: float) -> int:
        """Return the bytes of a row: what it leads to, its place, its number and its start.

        ``start_bytes`` are those of a row among the starts.
        """
        return math.ceil((Index.DEGREE + 1) * 4 + 8 + start_bytes / STARTS_EVERY)

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[NDArray[Any]]:
        """Return all arrays, from which `from_arrays` makes it again."""
        return [self.graph, self.order, self.numbers, *self.starts]

    def __reduce__(self) -> tuple[object, ...]:
        """Make a copy from the arrays alone, wherever a message puts them."""
        return Index.from_arrays, tuple(self.arrays())

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in the block rows of these numbers are; -1 where they are not."""
        found = np.searchsorted(self.numbers, numbers)
        found = np.minimum(found, len(self.numbers) - 1)
        is_there = self.numbers[found] == numbers
        return np.where(is_there, self.order[found], -1).astype(np.int64)


def start_places(order: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return which places of a block are starts: evenly, by the numbers of their rows.

    So they do not depend on how the rows are arranged.
    """
    n_rows = len(order)
    return order[:: max(1, min(STARTS_EVERY, n_rows // MIN_STARTS))]


def joined_lists(lists: NDArray[np.int32], degree: int = Index.DEGREE) -> NDArray[np.int32]:
    """Return which places lead to which: to those listed, then back, the nearest first.

    Each place at most once, and never to itself; whatever is no place is left out.

    Parameters
    ----------
    lists : ndarray of shape (n_rows, n_listed)
    degree : int

    Returns
    -------
    graph : ndarray of shape (n_rows, degree)
    """
    graph = np.full((len(lists), degree), np.int32(-1))
    run("join_lists", math.inf, read_only(np.ascontiguousarray(lists)), graph)
    return graph
