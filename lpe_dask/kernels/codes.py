r"""Codes of rows: what shows that a row is too far before the row is read.

    rows --leading axes--> a few coordinates --whole steps--> codes

To bring coordinates into a range moves no two of them apart, and to round them moves each
by half a step at most. So codes are no further apart, in steps, than rows are, and
``sqrt(n_axes)``: what is too far by its codes is too far. How often they show it is all
that depends on how axes and steps were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.basis import LEARNED_ROWS, Basis, learn_basis
from lpe_dask.kernels.blocks import aligned
from lpe_dask.kernels.compiled import inlined

#: Leading axes at most; the part of all variance that they have to have, and the part from
#: which on fewer will do.
MOST_AXES, LEAST_SHARE, ENOUGH_SHARE = 64, 0.5, 0.98

#: Axes are taken by so many, and not where there are fewer columns for each.
AXES_STEP, COLUMNS_PER_AXIS = 16, 2

#: The largest code: 64 squares of twice as much are within int32.
LARGEST_CODE = 2047

#: The part of the rows that is below the range of an axis, and above it.
BEYOND_RANGE = 0.001

#: Rows that are coded at a time.
CODED_ROWS = 1024

#: Numbers in a line of memory, and bytes of one.
LINE_CODES, CODE_BYTES = 32, 2


@dataclass(frozen=True, slots=True)
class Codes:
    """The rows of a block, in whole steps along the axes on which they vary most.

    Attributes
    ----------
    basis : Basis
        With these axes; with none where all matter about as much.
    middle : ndarray of shape (n_axes,)
        Of the range of each axis.
    step : float
    rows : ndarray of shape (n_rows, n_axes)
        int16, from ``-LARGEST_CODE`` to `LARGEST_CODE`.
    reach : float
        The largest squared length of a row in the basis.
    """

    basis: Basis
    middle: NDArray[np.float64]
    step: float
    rows: NDArray[np.int16]
    reach: float

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> Codes:
        """Return those of the rows of a block."""
        sample = rows[:: -(-len(rows) // LEARNED_ROWS)]
        basis = _leading_axes(sample)
        middle, step = _range(basis.points(sample))
        if step == 0:
            basis, middle, step = _without_axes(basis), middle[:0], 1.0
        codes, squares = _coded(rows, basis, middle, step)
        return cls(basis, middle, step, aligned(codes), float(squares.max()))

    def coded(
        self, queries: NDArray[np.float64]
    ) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
        """Return the codes of other rows, and their squared lengths in the basis."""
        return _coded(queries, self.basis, self.middle, self.step)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all arrays, from which `codes_of` makes them again."""
        basis, scalars = self.basis, [self.basis.exponent, self.step, self.reach]
        assert basis.rotation is not None
        return [self.rows, basis.center, basis.rotation, self.middle, np.array(scalars)]


def codes_of(
    rows: NDArray[np.int16],
    center: NDArray[np.float64],
    axes: NDArray[np.float64],
    middle: NDArray[np.float64],
    scalars: NDArray[np.float64],
) -> Codes:
    """Return codes of these arrays, as `Codes.arrays` gives them."""
    exponent, step, reach = map(float, scalars)
    return Codes(Basis(center, int(exponent), axes), middle, step, aligned(rows), reach)


def _coded(
    rows: NDArray[np.floating], basis: Basis, middle: NDArray[np.float64], step: float
) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
    whole = Basis(basis.center, basis.exponent)
    codes, squares = np.empty((len(rows), len(middle)), np.int16), np.empty(len(rows))
    for start in range(0, len(rows), CODED_ROWS):
        part = slice(start, start + CODED_ROWS)
        with np.errstate(over="ignore", invalid="ignore"):
            steps = (basis.points(rows[part]) - middle) / step
            codes[part] = np.rint(np.clip(steps, -LARGEST_CODE, LARGEST_CODE))
            points = whole.points(rows[part])
            squares[part] = np.einsum("ij,ij->i", points, points)
    return codes, squares


def _leading_axes(sample: NDArray[np.floating]) -> Basis:
    """Return a basis of the few axes on which some rows vary most, if few do."""
    n_features = sample.shape[1]
    basis = learn_basis(sample, rotate=True)
    most = min(MOST_AXES, n_features // COLUMNS_PER_AXIS) // AXES_STEP * AXES_STEP
    if most == 0 or basis.rotation is None:
        return _without_axes(basis)
    shares = np.cumsum(basis.points(sample).var(axis=0))
    if shares[-1] == 0 or shares[most - 1] < LEAST_SHARE * shares[-1]:
        return _without_axes(basis)
    wanted = int(np.searchsorted(shares, ENOUGH_SHARE * shares[-1])) + 1
    n_axes = min(most, -(-wanted // AXES_STEP) * AXES_STEP)
    axes = np.ascontiguousarray(basis.rotation[:, :n_axes])
    return Basis(basis.center, basis.exponent, axes)


def _without_axes(basis: Basis) -> Basis:
    return Basis(basis.center, basis.exponent, np.empty((len(basis.center), 0)))


def _range(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the middle of the range of each axis, and a step by which all have room."""
    if points.shape[1] == 0:
        return np.empty(0), 0.0
    low, high = np.quantile(points, [BEYOND_RANGE, 1 - BEYOND_RANGE], axis=0)
    return low + (high - low) / 2, float((high - low).max()) / (2 * LARGEST_CODE)


@inlined
def square_of_codes(one, other):  # type: ignore[no-untyped-def]
    """Return the squared distance of two codes, in steps."""
    square = np.int32(0)
    for k in range(len(one)):  # int32 throughout: numba would take int64
        difference = np.int32(np.int32(one[k]) - np.int32(other[k]))
        square = np.int32(square + np.int32(difference * difference))
    return square
