r"""One block of the reference in the layout that kernels search.

    rows (n, d), numbers (n,) --arranged in cells--> rows, numbers  in their order
                                                     groups         int16, from the
                                                     norms          centers of cells

A cell is a run of rows with one center and one box. Each starts at a group of its own, so
that row ``i`` of the block is lane ``i % 64`` of group ``i // 64``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.aligned_arrays import aligned, empty_aligned
from lpe_dask.kernels.arrays import LANES, are_finite, read_only
from lpe_dask.kernels.basis import FAR_SQUARE, Basis
from lpe_dask.kernels.rounding import rounded_offsets, steps_of

#: Rows that are laid out at a time, if they have no more numbers, so that they stay in a
#: core's cache; but whole cells.
LAID_OUT_ROWS, LAID_OUT_NUMBERS = 4096, 2**15


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the rows of a block, or of some queries, are ordered and cut into cells.

    Attributes
    ----------
    order : ndarray of shape (n_rows,)
        ``rows[order]`` has each cell in one run.
    starts : ndarray of shape (n_cells + 1,)
        Cell ``j`` is the rows from ``starts[j]`` to ``starts[j + 1]`` of these. In a block
        all starts but the last are multiples of 64.
    bounded : bool
        Whether cells have boxes that say where their rows are; otherwise rows of one cell
        may be anywhere, and all cells have one center.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    bounded: bool

    def sample_cells(self, n_chosen: int) -> Arrangement:
        """Return up to so many of the cells, evenly, as they are."""
        n_cells = len(self.starts) - 1
        chosen = np.unique(np.arange(n_chosen) * n_cells // n_chosen)
        runs = [self.order[slice(*self.starts[i : i + 2])] for i in chosen]
        starts = np.cumsum([0, *map(len, runs)])
        return Arrangement(np.concatenate(runs), starts, self.bounded)


class Block(NamedTuple):
    """Some rows of the reference, laid out for the kernels, which take it as it is.

    It has no array that kernels do not need: every call within them passes all on, which
    takes time. No array can be written to: what came in a message is read-only, what was
    made here is not, and kernels would be compiled for either.

    Attributes
    ----------
    single_rows, double_rows : ndarray of shape (n_rows, n_features) or (0, n_features)
        As prepared: the first where float32 holds them exactly, else the second; the other
        one has no row. Codes of categories are the last columns, here and in all that
        follows.
    numbers : ndarray of shape (n_rows,)
        The number of each row in the whole reference.
    starts : ndarray of shape (n_cells + 1,)
        As in `Arrangement`.
    centers : ndarray of shape (n_cells, n_features)
        In the basis.
    lows, highs : ndarray of shape (n_cells, n_features)
        The box of each cell from its center, float32, rounded outward; infinite where
        cells are not bounded. The center of codes is 0, and their box is exact.
    reaches : ndarray of shape (n_cells,)
        Squared distance from the origin of the basis to the furthest point of the cell.
    longest : ndarray of shape (n_groups,)
        Upper bound of the squared lengths of the points of each group from their center,
        float32.
    groups : ndarray of shape (n_groups * n_pairs * 64 * 2,)
        For each group and two columns of numbers, those of 64 points in twos: from the
        center of their cell, as whole numbers of 16 bits (see `rounding`); 0 where there is
        no second column.
    code_groups : ndarray of shape (n_groups * n_codes * 64,)
        Likewise the codes, one by one, float32, in the steps of the basis.
    steps, roundings, spans : ndarray of shape (n_groups,)
        The step of these whole numbers, how far a point is from them at most, and how far
        from the center, float32, rounded up.
    norms : ndarray of shape (64 * n_groups,)
        Lower bounds of their squared lengths, float32; NaN where a group has no row, or one
        that is not measured, -inf where a row is too far out for float32 and always looked
        at.
    group_lows, group_highs : ndarray of shape (n_groups, n_features) or (0, n_features)
        The box of each group in the basis, float32, rounded outward; none where cells are
        not bounded, or are groups themselves.
    """

    single_rows: NDArray[np.float32]
    double_rows: NDArray[np.float64]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    centers: NDArray[np.float64]
    lows: NDArray[np.float32]
    highs: NDArray[np.float32]
    reaches: NDArray[np.float64]
    longest: NDArray[np.float32]
    groups: NDArray[np.int16]
    code_groups: NDArray[np.float32]
    steps: NDArray[np.float32]
    roundings: NDArray[np.float32]
    spans: NDArray[np.float32]
    norms: NDArray[np.float32]
    group_lows: NDArray[np.float32]
    group_highs: NDArray[np.float32]

    @staticmethod
    def from_arrays(*arrays: NDArray[Any]) -> Block:
        """Return a block of these arrays, the groups and norms copied if not aligned."""
        block = Block(*arrays)
        block = block._replace(
            groups=aligned(block.groups), code_groups=aligned(block.code_groups),
            norms=aligned(block.norms),
        )  # fmt: skip
        return Block(*map(read_only, block))

    @classmethod
    def build(
        cls,
        rows: NDArray[np.floating],
        numbers: NDArray[np.int64],
        arrange: Callable[[NDArray[np.float64]], Arrangement],
        basis: Basis,
        slab_rows: int | None = None,
    ) -> Block:
        """Return rows of the reference as a block.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            At least one; near a row with NaN is nothing.
        numbers : ndarray of shape (n_rows,)
            Their numbers in the reference.
        arrange : callable
            ``arrange(points) -> Arrangement``.
        basis : Basis
        slab_rows : int, optional
            Rows that are arranged at a time, a multiple of 64: points take twice the memory
            of rows, and new memory takes longer to get than to fill. None: all.
        """
        n_rows, n_features = rows.shape
        rows = as_float32_if_exact(rows)
        # A search along a graph reads rows from anywhere: each in as few lines as can be.
        arranged = empty_aligned(rows.shape, rows.dtype)
        arranged_numbers = np.empty_like(numbers)
        groups = _Groups.empty(-(-n_rows // LANES), len(basis.center), n_features)
        cells = []
        for first in range(0, n_rows, slab_rows or n_rows):
            slab = slice(first, min(n_rows, first + (slab_rows or n_rows)))
            points = basis.points(rows[slab])
            is_measured = are_finite(points[:, : groups.n_numbers])
            if not is_measured.all():  # of groups of which nothing is known
                points[~is_measured, : groups.n_numbers] = 0.0
            arrangement = arrange(points)
            order, starts = arrangement.order, arrangement.starts
            # With mode="raise" NumPy fills a buffer first, as large as the rows.
            np.take(rows[slab], order, axis=0, out=arranged[slab], mode="clip")
            np.take(numbers[slab], order, out=arranged_numbers[slab], mode="clip")
            of_slab = groups.of(slab.start, slab.stop)
            of_cells = _fill_slab(points, arrangement, basis.relative_error, of_slab)
            of_slab.norms[: len(order)][~is_measured[order]] = np.nan
            cells.append((first + starts[:-1], *of_cells))
        starts, centers, lows, highs, reaches = map(
            np.concatenate, zip(*cells, strict=True)
        )
        starts = np.append(starts, n_rows)
        is_single = rows.dtype == np.float32
        no_row = np.empty((0, n_features), np.float64 if is_single else np.float32)
        group_boxes = groups.boxes
        if not arrangement.bounded or len(centers) == len(groups.longest):
            group_boxes = group_boxes[:, :0]
        return cls.from_arrays(
            *((arranged, no_row) if is_single else (no_row, arranged)), arranged_numbers,
            starts, centers, lows, highs, reaches, groups.longest,
            groups.pairs.reshape(-1), groups.codes.reshape(-1), *groups.roundings,
            groups.norms, *group_boxes,
        )  # fmt: skip

    @staticmethod
    def whole_groups(n_rows: int) -> int:
        """Return the rows of as many whole groups."""
        return -(-n_rows // LANES) * LANES

    @staticmethod
    def row_bytes(n_features: int, n_codes: int = 0) -> float:
        """Return the bytes of a row, with its share of cells of the fewest rows.

        The row in float64, its offset from the center of its cell in twos, its number and
        its norm; what is known of its group; centers and boxes of cells. Boxes of groups
        take less than those of such cells.
        """
        offsets = 2 * (n_features - n_codes + 1) + 4 * n_codes
        shared = 16 + _cell_bytes(n_features)
        return 8 * (n_features + 1) + offsets + 4 + shared / LANES

    @staticmethod
    def extra_bytes(n_features: int) -> int:
        """Return the bytes beside its rows: partly filled groups, and smaller cells."""
        return 2 * LANES * 4 * (n_features + 1) + 4 * _cell_bytes(n_features)

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers: Dask's measure of what a worker holds."""
        return sum(array.nbytes for array in self)

    def __reduce__(self) -> tuple[object, ...]:
        """Make a copy from the arrays alone, wherever a message puts them."""
        return Block.from_arrays, tuple(self)

    @property
    def rows(self) -> NDArray[np.floating]:
        """The rows, of whichever kind."""
        return self.single_rows if len(self.single_rows) > 0 else self.double_rows

    def box(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the box of all rows in the basis; infinite where cells are not bounded."""
        lows, highs = self.centers + self.lows, self.centers + self.highs
        return lows.min(axis=0), highs.max(axis=0)

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return len(self.numbers)


class _Groups(NamedTuple):
    """What a block has of its groups of 64 rows, to be filled: see there."""

    pairs: NDArray[np.int16]
    codes: NDArray[np.float32]
    roundings: NDArray[np.float32]
    norms: NDArray[np.float32]
    longest: NDArray[np.float32]
    boxes: NDArray[np.float32]

    @staticmethod
    def empty(n_groups: int, n_numbers: int, n_features: int) -> _Groups:
        """Return room for so many groups."""
        n_codes = n_features - n_numbers
        return _Groups(
            empty_aligned((n_groups, -(-n_numbers // 2), LANES, 2), np.int16),
            empty_aligned((n_groups, n_codes, LANES)),
            np.empty((3, n_groups), np.float32),
            empty_aligned((n_groups * LANES,)),
            np.empty(n_groups, np.float32),
            np.empty((2, n_groups, n_features), np.float32),
        )

    @property
    def n_numbers(self) -> int:
        """Columns that are no codes."""
        return int(self.boxes.shape[2] - self.codes.shape[1])

    def of(self, start: int, stop: int) -> _Groups:
        """Return the groups of the rows from ``start``, where one begins, to ``stop``."""
        some = slice(start // LANES, -(-stop // LANES))
        return _Groups(
            self.pairs[some], self.codes[some], self.roundings[:, some],
            self.norms[some.start * LANES : some.stop * LANES], self.longest[some],
            self.boxes[:, some],
        )  # fmt: skip


def _fill_slab(
    points: NDArray[np.float64],
    arrangement: Arrangement,
    relative_error: float,
    groups: _Groups,
) -> tuple[NDArray[Any], ...]:
    """Fill the groups of points; return centers, lows, highs and reaches of the cells."""
    n_features, starts = points.shape[1], arrangement.starts
    n_cells, n_numbers = len(starts) - 1, groups.n_numbers
    laid_out_rows = min(LAID_OUT_ROWS, LAID_OUT_NUMBERS // n_features)
    centers = np.zeros((n_cells, n_features))
    lows = np.full((n_cells, n_features), -np.inf, np.float32)
    highs = np.full((n_cells, n_features), np.inf, np.float32)
    reaches = np.empty(n_cells)
    for some in _runs_of_cells(starts, laid_out_rows):
        first, stop = starts[some.start], starts[some.stop]
        own, of_run = points[arrangement.order[first:stop]], groups.of(first, stop)
        firsts = starts[some] - first
        if arrangement.bounded:
            _fill_boxes(own, n_numbers, firsts, centers[some], lows[some], highs[some])
            _fill_group_boxes(own, n_numbers, of_run.boxes)
        _fill_groups(own, firsts, centers[some], relative_error, of_run, reaches[some])
    return centers, lows, highs, reaches


def _cell_bytes(n_features: int) -> int:
    """Return the bytes of the center, box and start of a cell."""
    return 16 * n_features + 24


def _runs_of_cells(starts: NDArray[np.int64], least_rows: int) -> Iterator[slice]:
    """Give runs of cells with at least so many rows each, but for the last one."""
    first, n_cells = 0, len(starts) - 1
    while first < n_cells:
        stop = int(np.searchsorted(starts, starts[first] + least_rows))
        stop = max(first + 1, min(stop, n_cells))
        yield slice(first, stop)
        first = stop


def as_float32_if_exact(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the rows as float32 where that changes none of them."""
    if rows.dtype == np.float32:
        return rows
    with np.errstate(over="ignore"):
        single = rows.astype(np.float32)
    return single if np.array_equal(single, rows) else rows


def _fill_boxes(
    points: NDArray[np.float64],
    n_numbers: int,
    firsts: NDArray[np.int64],
    centers: NDArray[np.float64],
    lows: NDArray[np.float32],
    highs: NDArray[np.float32],
) -> None:
    """Fill the means of cells, which start at ``firsts``, and their boxes from there."""
    sizes = np.diff(np.append(firsts, len(points)))
    # Not the middles of boxes: one row far out would make all others long.
    means = np.add.reduceat(points, firsts) / sizes[:, None]
    centers[:, :n_numbers] = means[:, :n_numbers]
    lows[...] = np.minimum.reduceat(points, firsts) - centers
    highs[...] = np.maximum.reduceat(points, firsts) - centers
    _round_outward(lows[:, :n_numbers], highs[:, :n_numbers])


def _fill_group_boxes(
    points: NDArray[np.float64], n_numbers: int, boxes: NDArray[np.float32]
) -> None:
    """Fill the lows and highs of groups of points."""
    firsts = np.arange(0, len(points), LANES)
    boxes[0] = np.minimum.reduceat(points, firsts)
    boxes[1] = np.maximum.reduceat(points, firsts)
    _round_outward(*boxes[:, :, :n_numbers])


def _round_outward(lows: NDArray[np.float32], highs: NDArray[np.float32]) -> None:
    """Widen boxes by what rounding to float32 may have taken from them."""
    for of_numbers, outward in ((lows, -1), (highs, 1)):
        margin = np.abs(of_numbers) * np.float32(2.0**-22) + np.float32(1e-37)
        of_numbers += outward * margin


def _fill_groups(
    points: NDArray[np.float64],
    firsts: NDArray[np.int64],
    centers: NDArray[np.float64],
    relative_error: float,
    filled: _Groups,
    reaches: NDArray[np.float64],
) -> None:
    """Fill the groups of some cells, which start at ``firsts``, and what goes with them."""
    groups, code_groups, roundings, norms, longest, _ = filled
    n_numbers = filled.n_numbers
    n_rows, n_features = points.shape
    sizes = np.diff(np.append(firsts, n_rows))
    with np.errstate(over="ignore", invalid="ignore"):
        offsets = (points - np.repeat(centers, sizes, axis=0)).astype(np.float32)
        numbers = offsets[:, :n_numbers].astype(np.float64)
        squares = np.einsum("ij,ij->i", numbers, numbers)
    is_far = ~(squares < FAR_SQUARE)
    offsets[is_far, :n_numbers] = 0.0
    # Rounding to float32 may go up by a part of 2**-24.
    norms[:n_rows] = np.where(
        is_far,
        -np.inf,
        np.minimum(squares, FAR_SQUARE) * (1 - relative_error) * (1 - 2.0**-23),
    )
    norms[n_rows:] = np.nan
    own = points[:, :n_numbers]
    own_reaches = np.where(is_far, 0.0, np.einsum("ij,ij->i", own, own))
    reaches[:] = np.maximum.reduceat(own_reaches, firsts)
    of_groups = np.arange(0, n_rows, LANES)
    largest = np.maximum.reduceat(np.where(is_far, np.inf, squares), of_groups)
    longest[:] = largest * (1 + 2.0**-22)
    near = np.where(is_far, 0.0, squares)
    steps = steps_of(np.maximum.reduceat(near, of_groups))
    whole, off = rounded_offsets(offsets[:, :n_numbers], np.repeat(steps, LANES)[:n_rows])
    roundings[0] = steps
    for most, of_rows in zip(roundings[1:], (off, np.sqrt(near)), strict=True):
        most[:] = np.maximum.reduceat(of_rows, of_groups) * (1 + 2.0**-20)
    n_pairs = groups.shape[1]
    padded = np.zeros((len(groups) * LANES, 2 * n_pairs), np.int16)
    padded[:n_rows, :n_numbers] = whole
    in_twos = padded.reshape(-1, LANES, n_pairs, 2)
    groups[:] = in_twos.swapaxes(1, 2)
    codes = np.zeros((len(groups) * LANES, n_features - n_numbers), np.float32)
    codes[:n_rows] = offsets[:, n_numbers:]
    code_groups[:] = codes.reshape(len(groups), LANES, n_features - n_numbers).swapaxes(
        1, 2
    )
