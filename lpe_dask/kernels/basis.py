r"""The space in which pairs are filtered, and what the filter may get wrong.

    prepared rows x (n, d) --shift, scale by 2**p, rotate--> points z (n, d), float64

A filter never supplies a distance; it only says which pairs cannot matter. It works in
float32 on points z moved to the center c of a cell of the reference, where numbers are
small: ``a = float32(z_x - c)`` for a query, ``b = float32(z_y - c)`` for a reference row.
With ``u = 2**-24``, ``S = |a|**2 + |b|**2`` and d features, the squared distance D2 of the
two rows, in units of the basis, differs from the computed ``|a|**2 + |b|**2 - 2 a.b`` by

- at most ``4.2 u S``, because a and b are rounded to float32;
- at most ``(d + 2) u (|a|**2 + 2 |b|**2)``, the roundings of the product and ``|b|**2``;
- at most ``2 u S + (e_x + e_y)**2 / u``, where ``e = (d + 4) sqrt(d) 2**-52 |z|`` bounds
  the rounding of z itself (shift and rotation, in float64), for
  ``2 e D <= u D**2 + e**2 / u``;
- less than ``u S`` and what underflows, for the float64 sum that is the definition.

Together that is below ``c S + A`` with `relative_error` c and `absolute_error` A, and so::

    |a|**2 (1 - c) + |b|**2 (1 - c) - 2 a.b - A  <=  D2  <=  the same + 2 c S + 2 A

A pair whose lower bound exceeds the upper bounds of K others is no neighbor, strictly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from lpe_dask.kernels.compiled import compiled

#: A point further than this from its center is not filtered but always looked at: float32
#: would overflow. The rows that a basis is learned from have coordinates of at most 1.
FAR_SQUARE = 2.0**80

#: Rows of a sample that a basis is learned from, and those of them that its center is.
LEARNED_ROWS, CENTER_ROWS = 1024, 256

#: Coordinates of points end here, so that those far out can be rotated.
FURTHEST = 2.0**100

_one_at_a_time = Lock()


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
    """

    center: NDArray[np.float64]
    exponent: int
    rotation: NDArray[np.float64] | None = None

    @property
    def relative_error(self) -> float:
        """The share c of ``|a|**2 + |b|**2`` that a filtered square may be off."""
        return (2 * len(self.center) + 20) * 2.0**-24

    @property
    def rounding(self) -> float:
        """The error A of points at distance 1 from the center, underflow aside."""
        n_features = len(self.center)
        e = (n_features + 4) * math.sqrt(n_features) * 2.0**-52
        return e * e * 2.0**26

    @property
    def underflow(self) -> float:
        """What underflow may add to A: of squares in the rows' units, and of the filter."""
        n_features = len(self.center)
        return self.squares(n_features * 2.0**-1072) + n_features * 2.0**-140

    def squares(self, square: float) -> float:
        """Return a squared distance of the rows' units in units of the basis."""
        factor = math.ldexp(1.0, max(-1000, min(1000, self.exponent)))
        return square * factor * factor

    def points(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return rows of shape (n_rows, n_features), finite or not, as points."""
        factor = 2.0**self.exponent  # exact: the exponent is from -1000 to 1000
        with np.errstate(over="ignore"):
            shifted = rows.astype(np.float64)
            shifted *= factor
        shifted -= self.center * factor
        np.clip(shifted, -FURTHEST, FURTHEST, out=shifted)
        if self.rotation is None:
            return shifted
        rotated: NDArray[np.float64] = _rotated(shifted, self.rotation)
        return rotated


def learn_basis(sample: NDArray[np.floating], *, rotate: bool) -> Basis:
    """Return a basis around about the median of some rows.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
        Finite, at least one row, in no particular order.
    rotate : bool
        Along the principal axes of the sample, where its covariance is finite.
    """
    sample = sample[:: -(-len(sample) // LEARNED_ROWS)]
    few = sample[:: -(-len(sample) // CENTER_ROWS)]
    halves = np.ascontiguousarray(few.T, np.float64) / 2  # so that no sum overflows
    center = 2 * np.median(halves, axis=1)
    reach = float(np.abs(np.multiply(sample, 0.5, dtype=np.float64) - center / 2).max())
    exponent = 0 if reach == 0 else -1 - math.frexp(reach)[1]
    # A center far out beside rows close together must not overflow.
    most = 1000 - max(0, math.frexp(float(np.abs(center).max()))[1])
    exponent = max(-1000, min(most, exponent))
    basis = Basis(center, exponent)
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
    return Basis(center, exponent, np.ascontiguousarray(axes[:, ::-1]))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@compiled
def _rotated(points, rotation):  # type: ignore[no-untyped-def]
    n_rows, n_features = points.shape
    n_axes = rotation.shape[1]
    rotated = np.zeros((n_rows, n_axes))
    n_by_fours = n_features - n_features % 4
    for i in range(n_rows):
        row, turned = points[i], rotated[i]
        # Four at a time, so that sums are loaded and stored a fourth as often.
        for k in range(0, n_by_fours, 4):
            a, b, c, d = row[k], row[k + 1], row[k + 2], row[k + 3]
            for j in range(n_axes):
                first = turned[j] + a * rotation[k, j] + b * rotation[k + 1, j]
                turned[j] = first + c * rotation[k + 2, j] + d * rotation[k + 3, j]
        for k in range(n_by_fours, n_features):
            for j in range(n_axes):
                turned[j] += row[k] * rotation[k, j]
    return rotated
