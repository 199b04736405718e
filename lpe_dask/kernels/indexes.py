r"""What an approximate search of a block goes along.

    lists of near rows --joined_lists--> graph: each row leads to its near rows, and back
    one of STARTS_EVERY rows           --> starts: where searches enter it
    rows --leading axes--> leads       a few coordinates, by which most rows are too far

Lists lead from a row to those near it, and a row that is near none is in no list. So the
graph leads both ways, up to so many rows from each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.basis import LEARNED_ROWS, Basis, learn_basis
from lpe_dask.kernels.blocks import Block, aligned
from lpe_dask.kernels.compiled import compiled

#: Most rows that one leads to.
DEGREE = 48

#: One of so many rows is a start, but at least so many rows are.
STARTS_EVERY, FEWEST_STARTS = 64, 64


#: Leading axes that rows are compared along first, at most; the part of all variance that
#: they have to have, and the part from which on fewer will do.
MOST_AXES, LEAST_SHARE, ENOUGH_SHARE = 64, 0.5, 0.98

#: Axes are taken by so many, and not where there are fewer columns for each.
AXES_STEP, COLUMNS_PER_AXIS = 16, 2

#: Rows that are brought to axes at a time.
TURNED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Leads:
    """The coordinates of rows along the axes on which they vary most.

    Differences of these are never larger than distances, but for rounding: what is too far
    by them is too far.

    Attributes
    ----------
    basis : Basis
        With some axes; with none where all matter about as much.
    rows : ndarray of shape (n_rows, n_axes)
        float32; a row of 16 axes is one line of memory, where rows are aligned.
    reach : float
        The largest squared length of a row in the basis.
    """

    basis: Basis
    rows: NDArray[np.float32]
    reach: float

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> Leads:
        """Return those of the rows of a block."""
        basis = _leading_axes(rows[:: -(-len(rows) // LEARNED_ROWS)])
        leads, squares = along(basis, rows)
        return cls(basis, aligned(leads.astype(np.float32)), float(squares.max()))


def along(
    basis: Basis, rows: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows along the axes of a basis, and their squared lengths in it."""
    assert basis.rotation is not None
    whole = Basis(basis.center, basis.exponent)
    leads, squares = np.empty((len(rows), basis.rotation.shape[1])), np.empty(len(rows))
    for start in range(0, len(rows), TURNED_ROWS):
        part = slice(start, start + TURNED_ROWS)
        leads[part] = basis.points(rows[part])
        points = whole.points(rows[part])
        with np.errstate(invalid="ignore"):
            squares[part] = np.einsum("ij,ij->i", points, points)
    return leads, squares


def _leading_axes(sample: NDArray[np.floating]) -> Basis:
    """Return a basis of the few axes on which some rows vary most, if few do."""
    n_features = sample.shape[1]
    basis = learn_basis(sample, rotate=True)
    none = Basis(basis.center, basis.exponent, np.empty((n_features, 0)))
    most = min(MOST_AXES, n_features // COLUMNS_PER_AXIS) // AXES_STEP * AXES_STEP
    if most == 0 or basis.rotation is None:
        return none
    shares = np.cumsum(basis.points(sample).var(axis=0))
    if shares[-1] == 0 or shares[most - 1] < LEAST_SHARE * shares[-1]:
        return none
    wanted = int(np.searchsorted(shares, ENOUGH_SHARE * shares[-1])) + 1
    n_axes = min(most, -(-wanted // AXES_STEP) * AXES_STEP)
    axes = np.ascontiguousarray(basis.rotation[:, :n_axes])
    return Basis(basis.center, basis.exponent, axes)


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
    leads : Leads
    """

    graph: NDArray[np.int32]
    order: NDArray[np.int32]
    numbers: NDArray[np.int64]
    leads: Leads

    @classmethod
    def of(cls, block: Block, graph: NDArray[np.int32]) -> Index:
        """Return the index of a block with this graph; ValueError for that of another."""
        if len(graph) != block.n_rows:  # a search would leave the graph, or the block
            raise ValueError(
                f"an index of {len(graph)} rows does not belong to a block of "
                f"{block.n_rows}"
            )
        order = np.argsort(block.numbers).astype(np.int32)
        return cls(graph, order, block.numbers[order], Leads.of(block.rows))

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[NDArray[Any]]:
        """Return all arrays, from which `index_of` makes it again."""
        basis, leads = self.leads.basis, self.leads.rows
        scalars = np.array([basis.exponent, self.leads.reach])
        assert basis.rotation is not None
        of_leads: list[NDArray[Any]] = [leads, basis.center, basis.rotation, scalars]
        return [self.graph, self.order, self.numbers, *of_leads]

    def __reduce__(self) -> tuple[object, ...]:
        """Make a copy from the arrays alone, wherever a message puts them."""
        return index_of, tuple(self.arrays())

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in the block rows of these numbers are; -1 where they are not."""
        found = np.searchsorted(self.numbers, numbers)
        found = np.minimum(found, len(self.numbers) - 1)
        is_there = self.numbers[found] == numbers
        return np.where(is_there, self.order[found], -1).astype(np.int64)


def index_of(
    graph: NDArray[np.int32],
    order: NDArray[np.int32],
    numbers: NDArray[np.int64],
    leads: NDArray[np.float32],
    center: NDArray[np.float64],
    axes: NDArray[np.float64],
    scalars: NDArray[np.float64],
) -> Index:
    """Return an index of these arrays, as `Index.arrays` gives them."""
    basis = Basis(center, int(scalars[0]), axes)
    return Index(graph, order, numbers, Leads(basis, aligned(leads), float(scalars[1])))


def start_places(n_rows: int) -> NDArray[np.int64]:
    """Return which rows of a block are starts: evenly, among rows that lie near others."""
    step = max(1, min(STARTS_EVERY, n_rows // FEWEST_STARTS))
    return np.arange(0, n_rows, step)


@compiled
def joined_lists(lists: NDArray[np.int32], degree: int = DEGREE) -> NDArray[np.int32]:
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
    n_rows, n_listed = lists.shape
    graph = np.full((n_rows, degree), np.int32(-1))
    counts = np.zeros(n_rows, np.int64)
    for i in range(n_rows):
        for j in range(n_listed):
            _lead(graph, counts, i, lists[i, j])
    for j in range(n_listed):
        for i in range(n_rows):
            if 0 <= lists[i, j] < n_rows:
                _lead(graph, counts, lists[i, j], np.int32(i))
    return graph


@compiled
def _lead(graph, counts, source, target):  # type: ignore[no-untyped-def]
    """Let one place lead to another, unless it does, or leads to enough."""
    n_rows, degree = graph.shape
    if target < 0 or target >= n_rows or target == source or counts[source] == degree:
        return
    for m in range(counts[source]):
        if graph[source, m] == target:
            return
    graph[source, counts[source]] = target
    counts[source] += 1
