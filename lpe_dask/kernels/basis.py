r"""The space in which pairs are filtered, and what the filter may get wrong.

    prepared rows x (n, d) --shift, scale by 2**p, times the root of the weights, rotate-->
                                                             points z (n, d), float64
    codes of categories (n, m) --times a power of 2-->       codes    (n, m), float64

A filter never supplies a distance; it only says which pairs cannot matter. It works on
points z moved to the center c of a cell of the reference, where numbers are small:
``a = float32(z_x - c)`` for a query, ``b = float32(z_y - c)`` for a reference row. Their
product is that of whole numbers, which is off by up to ``E / 2`` (see `rounding`). With
``u = 2**-24``, ``S = |a|**2 + |b|**2`` and d features, the squared distance D2 of the two
rows, in units of the basis, differs from the computed ``|a|**2 + |b|**2 - 2 a.b``, E aside,
by

- at most ``4.2 u S``, because a and b are rounded to float32;
- at most ``2 u S`` for ``|a|**2`` and ``|b|**2``, and ``3 u S`` for each 256 features,
  whose products are converted to float32 and added up;
- at most ``2 u S + (e_x + e_y)**2 / u``, where ``e = (d + 4) sqrt(d) 2**-52 |z|`` bounds
  the rounding of z itself (shift, weights and rotation, in float64), for
  ``2 e D <= u D**2 + e**2 / u``;
- less than ``u S`` and what underflows, for the float64 sum that is the definition.

Together that is below ``c S + A`` with `relative_error` c and `absolute_error` A, and so::

    |a|**2 (1 - c) + |b|**2 (1 - c) - 2 a.b - A - E  <=  D2
    D2  <=  the same + 2 c S + 2 A + 2 E

A pair whose lower bound exceeds the upper bounds of K others is no neighbor, strictly.

Codes that differ add weights, of W together; there are m codes. Where none differ, all is
as above. In the filter they add weights that are lowered by a part of ``(m + 9) 2**-23``,
which is more than what rounding these m additions may add to W; the part of S that it may
add, ``2 m u S``, is in `relative_error`, where d counts numbers and codes. So what the
filter adds up is no more than it should be, and the upper bound times
``stretch = 1 + (m + 10) 2**-21`` no less.

A last code may separate rows: those that differ in it are at distance inf. In the filter it
adds `SEPARATE`, which nothing else adds up to, so that such pairs are left out also where
no other rows are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from lpe_dask.forks import ForkSafeLock
from lpe_dask.json_arrays import Elsewhere, Floats

#: A point further than this from its center is not filtered but always looked at: float32
#: would overflow. The rows that a basis is learned from have coordinates of at most 1.
FAR_SQUARE = 2.0**80

#: Rows of a sample that a basis is learned from, and those of them that its center is.
LEARNED_ROWS, CENTER_ROWS = 1024, 256

#: Weights in the basis that the filter can add: a smaller one counts as an error, and where
#: one is larger, upper bounds are not used.
MIN_WEIGHT, MAX_WEIGHT = 2.0**-100, 2.0**100

#: What the filter adds for a code that separates rows, and the largest sum without it: more
#: than `FAR_SQUARE` and the weights of 2**16 codes.
SEPARATE, LARGEST_SUM = 2.0**120, 2.0**118

#: Step of such a code: rows are ordered by it before all other columns. float32 has codes
#: up to 2**24 with it.
SEPARATE_STEP = 2.0**60

#: Coordinates of points end here, so that those far out can be rotated.
FURTHEST = 2.0**100

#: Rows that are rotated at a time: they stay in a core's cache.
ROTATED_ROWS = 512

_Squares = TypeVar("_Squares", float, NDArray[np.float64])

_one_at_a_time = ForkSafeLock()


@dataclass(frozen=True, slots=True)
class Basis:
    """A shift, a scale and a rotation that rows are filtered in; one for a whole reference.

    Attributes
    ----------
    center : ndarray of shape (n_features,)
        In the units of the rows; finite.
    exponent : int
        Coordinates are multiplied by ``2**exponent``, which is exact.
    rotation : ndarray of shape (n_features, n_features), optional
        Orthonormal columns; None: the coordinates of the rows.
    weights : ndarray of shape (n_columns,), optional
        By which squared differences of numbers are multiplied, from 1 to 4, and what each
        code that differs adds to a squared distance, in the units of the rows. Codes are
        the last columns of rows and points, after ``len(center)`` numbers. None: all are 1.
    steps : ndarray of shape (n_codes,)
        Codes of points are those of the rows times these powers of 2: about as far apart as
        their weights say, so that rows can be ordered by all columns alike.
    separates : bool, default=False
        Whether the last code separates rows, whatever its weight is.
    groups : GroupPoints, optional
        Where the numbers of points are moved and weighted by the last code.
    """

    center: Floats
    exponent: int
    rotation: Floats | None = None
    weights: Floats | None = None
    steps: Floats = field(default_factory=lambda: np.empty(0))
    separates: bool = False
    groups: Elsewhere = None

    @staticmethod
    def training_rows(sample: NDArray[Any]) -> NDArray[Any]:
        """Return those of some rows that a basis is learned from."""
        return sample[:: -(-len(sample) // LEARNED_ROWS)]

    @property
    def n_columns(self) -> int:
        """Numbers and codes of a row."""
        return len(self.center) + len(self.steps)

    @property
    def all_weights(self) -> NDArray[np.float64]:
        """The weights of all columns, of shape (n_columns,); inf for what separates."""
        weights = np.ones(self.n_columns) if self.weights is None else self.weights
        return np.append(weights[:-1], np.inf) if self.separates else weights

    @property
    def _code_weights(self) -> NDArray[np.float64]:
        """The weights of codes, in units of the basis, but for one that separates."""
        stop = self.n_columns - int(self.separates)
        return self.squares(self.all_weights[len(self.center) : stop])

    @property
    def relative_error(self) -> float:
        """The share c of ``|a|**2 + |b|**2`` that a filtered square may be off."""
        return (2 * len(self.steps) + 24 + len(self.center) // 64) * 2.0**-24

    @property
    def rounding(self) -> float:
        """The error A of points at distance 1 from the center, underflow aside."""
        n_features = len(self.center)
        e = (n_features + 4) * math.sqrt(n_features) * 2.0**-52
        return e * e * 2.0**26

    @property
    def underflow(self) -> float:
        """What underflow may add to A: of squares in the rows' units, and of the filter."""
        n_columns, weights = self.n_columns, self._code_weights
        lost = float(weights[weights < MIN_WEIGHT].sum())
        return self.squares(n_columns * 2.0**-1070) + n_columns * 2.0**-140 + lost

    @property
    def stretch(self) -> float:
        """The factor of upper bounds that makes up for lowered weights; 1 without codes."""
        if (self._code_weights > MAX_WEIGHT).any():
            return math.inf
        n_codes = len(self.steps)
        return 1.0 + (n_codes + 10) * 2.0**-21 if n_codes > 0 else 1.0

    @property
    def lowered(self) -> NDArray[np.float32]:
        """What the filter adds for codes that differ: not more than the weights."""
        weights = self._code_weights
        lowered = np.minimum(weights, MAX_WEIGHT)
        lowered *= 1 - (len(self.steps) + 9) * 2.0**-23
        lowered[weights < MIN_WEIGHT] = 0.0
        last = [SEPARATE] if self.separates else []
        return np.append(lowered, last).astype(np.float32)

    def squares(self, square: _Squares) -> _Squares:
        """Return squared distances of the rows' units in units of the basis."""
        factor = math.ldexp(1.0, max(-1000, min(1000, self.exponent)))
        with np.errstate(over="ignore"):
            return square * factor * factor

    def points(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return rows of shape (n_rows, n_columns), finite or not, as points."""
        n_numbers = len(self.center)
        if len(self.steps) > 0:
            of_numbers = None if self.weights is None else self.weights[:n_numbers]
            numbers, own = rows[:, :n_numbers], rows[:, -1]
            if self.groups is not None:
                numbers, of_numbers = self.groups.moved(numbers, own), None
            basis = Basis(self.center, self.exponent, self.rotation, of_numbers)
            codes = rows[:, n_numbers:] * self.steps
            return np.hstack([basis.points(numbers), codes])
        factor = 2.0**self.exponent  # exact: the exponent is from -1000 to 1000
        with np.errstate(over="ignore"):
            shifted = rows.astype(np.float64)
            shifted *= factor
        shifted -= self.center * factor
        if self.weights is not None:
            shifted *= np.sqrt(self.weights)
        np.clip(shifted, -FURTHEST, FURTHEST, out=shifted)
        if self.rotation is None:
            return shifted
        return _rotated(shifted, self.rotation)


@dataclass(frozen=True, slots=True, eq=False)
class GroupPoints:
    """Where the points of each group are: near 0, so that float32 has their differences.

    Attributes
    ----------
    centers : ndarray of shape (n_groups, n_features)
        In the units of the rows, which are moved by them.
    weights : ndarray of shape (n_groups, n_features)
        By which squared differences of rows of a group are multiplied.
    """

    centers: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return self.centers.nbytes + self.weights.nbytes

    def moved(
        self, numbers: NDArray[np.floating], codes: NDArray[np.floating]
    ) -> NDArray[np.float64]:
        """Return numbers of rows, moved and weighted by the codes of their groups."""
        which = np.where(np.isfinite(codes), codes, 0).astype(np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            moved: NDArray[np.float64] = numbers - self.centers[which]
            moved *= np.sqrt(self.weights[which])
        return moved


def learn_basis(
    sample: NDArray[np.floating],
    weights: NDArray[np.float64] | None = None,
    n_codes: int = 0,
    *,
    rotate: bool,
    separates: bool = False,
) -> Basis:
    """Return a basis around about the median of some rows.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_columns)
        Finite, at least one row, in no particular order.
    weights : ndarray of shape (n_columns,), optional
        As in `Basis`.
    n_codes : int, default=0
        How many of the last columns are codes.
    rotate : bool
        Along the principal axes of the sample, where its covariance is finite.
    separates : bool, default=False
        As in `Basis`.
    """
    if n_codes > 0:
        n_numbers = sample.shape[1] - n_codes
        numbers = None if weights is None else weights[:n_numbers]
        rotates = rotate and n_numbers > 1
        of_numbers = learn_basis(sample[:, :n_numbers], numbers, rotate=rotates)
        of_codes = np.ones(n_codes) if weights is None else weights[n_numbers:]
        steps = _steps(sample[:, n_numbers:], of_numbers.squares(of_codes))
        if separates:
            steps[-1] = SEPARATE_STEP
        return replace(of_numbers, weights=weights, steps=steps, separates=separates)
    sample = Basis.training_rows(sample)
    few = sample[:: -(-len(sample) // CENTER_ROWS)]
    halves = np.ascontiguousarray(few.T, np.float64) / 2  # so that no sum overflows
    center = 2 * np.median(halves, axis=1)
    reach = float(np.abs(np.multiply(sample, 0.5, dtype=np.float64) - center / 2).max())
    exponent = 0 if reach == 0 else -1 - math.frexp(reach)[1]
    if weights is not None:  # roots of up to 2
        exponent -= 1
    # A center far out beside rows close together must not overflow.
    most = 1000 - max(0, math.frexp(float(np.abs(center).max()))[1])
    exponent = max(-1000, min(most, exponent))
    basis = Basis(center, exponent, None, weights)
    if not rotate:
        return basis
    # Rows far out would decide the axes alone: each counts with a length of at most 1 in
    # units of the median length.
    points = basis.points(sample)
    lengths = np.sqrt((points * points).sum(axis=1))
    typical = np.median(lengths)
    if typical > 0:
        points *= (1 / np.maximum(lengths, typical))[:, None]
    # Threads of BLAS that are done wait in a loop for more, for a while, on cores we need.
    # One fit at a time: the number before is put back, which another one must not have set.
    with _one_at_a_time, _libraries().limit(limits=1, user_api="blas"):
        _, axes = np.linalg.eigh(points.T @ points)
    return Basis(center, exponent, np.ascontiguousarray(axes[:, ::-1]), weights)


def _steps(
    codes: NDArray[np.floating], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return steps with which the levels of each column are as wide as its weight."""
    lengths = np.sqrt(np.clip(weights, MIN_WEIGHT, MAX_WEIGHT))
    n_levels = codes.max(axis=0).astype(np.float64) + 2.0  # one may be -1
    steps: NDArray[np.float64] = np.exp2(np.round(np.log2(lengths / n_levels)))
    return steps


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _rotated(
    points: NDArray[np.float64], rotation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``points @ rotation`` without BLAS, whose threads take cores that we need."""
    rotated = np.empty((len(points), rotation.shape[1]))
    for start in range(0, len(points), ROTATED_ROWS):
        part = slice(start, start + ROTATED_ROWS)
        np.einsum("ik,kj->ij", points[part], rotation, out=rotated[part])
    return rotated
