"""Take rows from the user's units to the space in which distances are Euclidean.

    rows (n, d) -> widen to float64 -> scale -> map -> (n, d)
    codes of categories: as they are, after the numbers

The order and the form of this arithmetic are part of the result, because ties decide
p-values. A row's bits depend on that row alone: sums go in column order, without BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import narrow
from lpe_dask.search.knots import Knots


@dataclass(frozen=True, slots=True)
class Scaling:
    """The map ``(x - shift) * factor`` or ``(x - shift) / divisor`` of each column.

    Or a line through knots; or both forms of each column, those by knots after the others.

    Attributes
    ----------
    shift : ndarray of shape (n_features,), optional
        None: rows stay as they are, but for being widened to float64.
    factor, divisor : ndarray of shape (n_features,), optional
        One of them is set where ``shift`` is.
    knots : Knots, optional
    """

    shift: NDArray[np.float64] | None = None
    factor: NDArray[np.float64] | None = None
    divisor: NDArray[np.float64] | None = None
    knots: Knots | None = None

    def __sizeof__(self) -> int:
        """Return about the bytes of the arrays."""
        vectors = [v for v in (self.shift, self.factor, self.divisor) if v is not None]
        n_bytes = sum(vector.nbytes for vector in vectors)
        return n_bytes + (0 if self.knots is None else self.knots.__sizeof__())

    def n_scaled(self, n_features: int) -> int:
        """Return how many columns so many columns become."""
        has_both = self.knots is not None and self.shift is not None
        return 2 * n_features if has_both else n_features

    def apply(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return rows of shape (n_rows, n_features) widened to float64, then scaled.

        Their shape is (n_rows, n_scaled).
        """
        if self.knots is None:
            return self._linear(rows)
        heights = self.knots.apply(rows)
        return heights if self.shift is None else np.hstack([self._linear(rows), heights])

    def _linear(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        scaled = rows.astype(np.float64, copy=False)
        if self.shift is not None:
            scaled = scaled - self.shift
        if self.factor is not None:
            scaled = scaled * self.factor
        if self.divisor is not None:
            scaled = scaled / self.divisor
        return scaled


@dataclass(frozen=True, slots=True)
class LinearMap:
    """A map after which the metric is Euclidean; at most one of its parts is set.

    Attributes
    ----------
    factor, divisor : ndarray of shape (n_scaled,), optional
        Each row is multiplied, or divided, by these.
    matrix : ndarray of shape (n_scaled, n_scaled), optional
        Each row x becomes ``matrix.T @ x``.
    """

    factor: NDArray[np.float64] | None = None
    divisor: NDArray[np.float64] | None = None
    matrix: NDArray[np.float64] | None = None

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mapped rows, of the same shape (n_rows, n_scaled)."""
        if self.factor is not None:
            return self.factor * rows
        if self.divisor is not None:
            return rows / self.divisor
        if self.matrix is not None:
            return product(rows, self.matrix)
        return rows


def product(rows: NDArray[np.float64], matrix: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``rows @ matrix``, added in the order of the columns, without BLAS."""
    total = np.zeros_like(rows)
    for column, coefficients in zip(rows.T, matrix, strict=True):
        total += column[:, None] * coefficients
    return total


@dataclass(frozen=True, slots=True)
class Preparation:
    """Scaling and then a linear map, as learned from the nominal rows.

    Attributes
    ----------
    scaling : Scaling
    linear_map : LinearMap
        Both of the columns that are numbers.
    categorical : tuple of int
        Columns that are codes of categories, ascending. In prepared rows they come last,
        as they are; where no others are left, after a column of zeros.
    weights : ndarray of shape (n_categorical,)
        What each that differs adds to a squared distance.
    """

    scaling: Scaling = Scaling()
    linear_map: LinearMap = LinearMap()
    categorical: tuple[int, ...] = ()
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def n_prepared(self, n_features: int) -> int:
        """Return how many columns so many columns of the input become."""
        n_codes = len(self.categorical)
        return max(1, self.scaling.n_scaled(n_features - n_codes)) + n_codes

    def apply_narrow(self, rows: NDArray[np.generic]) -> NDArray[np.floating]:
        """Return prepared rows as float32 where that changes none of them.

        They may be the rows themselves.
        """
        steps = (
            self.scaling.shift, self.scaling.knots, self.linear_map.factor,
            self.linear_map.divisor, self.linear_map.matrix,
        )  # fmt: skip
        is_idle = all(step is None for step in steps) and not self.categorical
        if is_idle and np.can_cast(rows.dtype, np.float32):
            return rows.astype(np.float32, copy=False)
        return narrow(self.apply(rows))

    def apply(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return prepared rows of shape (n_rows, n_prepared).

        A finite row stays finite: what overflows becomes the largest float64, which is at
        distance inf from every row that did not. A row with NaN or inf keeps at least one.
        """
        if self.categorical:
            return self._apply_to_numbers(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            prepared = self.linear_map.apply(self.scaling.apply(rows))
        overflown = ~np.isfinite(prepared)
        if overflown.any():
            overflown[~np.isfinite(rows).all(axis=1)] = False
            prepared = np.where(overflown, np.finfo(np.float64).max, prepared)
        return prepared

    def _apply_to_numbers(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return prepared numbers, and then codes."""
        codes = rows[:, self.categorical].astype(np.float64)
        numbers = numbers_of(rows, self.categorical)
        if numbers.shape[1] == 0:  # kernels take one at least
            return np.hstack([np.zeros((len(rows), 1)), codes])
        return np.hstack([Preparation(self.scaling, self.linear_map).apply(numbers), codes])


def numbers_of(
    rows: NDArray[np.generic], categorical: tuple[int, ...]
) -> NDArray[np.generic]:
    """Return the columns of rows that are no codes of categories."""
    return np.delete(rows, categorical, axis=1)
