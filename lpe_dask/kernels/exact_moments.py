r"""Exact sums of columns and of their products, from which moments are rounded once.

    rows of a part --Moments.of--> whole numbers --Moments.add--> those of all rows
                                                  --> means, variances, covariance

The sums of all rows follow from one reading, in any order. A covariance is then a fraction
of whole numbers, ``(n sum(x y) - sum(x) sum(y)) / (n (n - ddof))``, in which no rounding
comes before the last: it is 0 for a constant column, and a variance for no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.exact_sums import LOWEST_EXPONENT, as_whole_number, sum_of_products

#: So many rows are added up as whole numbers of Python, which is then faster.
FEW = 1024

#: The exponent of the smallest float64; and about the bytes of a whole number.
_LOWEST, _WHOLE_BYTES = LOWEST_EXPONENT // 2, 72


@dataclass(frozen=True, slots=True)
class Moments:
    """Exact sums of some rows; those of parts add up to those of the whole.

    Attributes
    ----------
    n_rows : int
    n_gaps : tuple of int
        Missing values of each column, which count as 0 in the sums.
    exponent : int
        Sums are whole numbers times ``2**exponent``, and those of products times
        ``4**exponent``.
    sums : tuple of int
        Of each column.
    products : tuple of int
        Sums of its squares; or of its products with the columns up to itself, column by
        column.
    """

    n_rows: int
    n_gaps: tuple[int, ...]
    exponent: int
    sums: tuple[int, ...]
    products: tuple[int, ...]

    @classmethod
    def of(cls, rows: NDArray[np.generic], *, has_products: bool = False) -> Self:
        """Return those of rows of shape (n_rows, n_columns), without inf.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
        has_products : bool, default=False
            Whether products of different columns are added up, too.
        """
        columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        is_gap = np.isnan(columns)
        n_gaps = tuple(is_gap.sum(axis=1).tolist())
        if any(n_gaps):
            columns = np.where(is_gap, 0.0, columns)
        n_columns, n_rows = columns.shape
        firsts = [0 if has_products else i for i in range(n_columns)]
        pairs = [(i, j) for i, first in enumerate(firsts) for j in range(first, i + 1)]
        if n_rows <= FEW:
            exponent, wholes = _whole_numbers(columns)
            sums = list(map(sum, wholes))
            products = [
                sum(a * b for a, b in zip(wholes[i], wholes[j], strict=True))
                for i, j in pairs
            ]
        else:
            exponent, ones = _LOWEST, np.ones(n_rows)
            sums = [
                as_whole_number(sum_of_products(column, ones)) >> -_LOWEST
                for column in columns
            ]
            products = [
                as_whole_number(sum_of_products(columns[i], columns[j])) for i, j in pairs
            ]
        return cls(n_rows, n_gaps, *_shortened(exponent, sums, products))

    @classmethod
    def add(cls, parts: Iterable[Moments]) -> Self:
        """Return those of the rows of all parts; at least one."""
        parts = list(parts)
        lowest = min(part.exponent for part in parts)
        scaled = [part._with_exponent(lowest) for part in parts]
        n_gaps, sums, products = (
            tuple(map(sum, zip(*of_parts, strict=True)))
            for of_parts in (
                [part.n_gaps for part in scaled],
                [part.sums for part in scaled],
                [part.products for part in scaled],
            )
        )
        n_rows = sum(part.n_rows for part in parts)
        return cls(n_rows, n_gaps, *_shortened(lowest, sums, products))

    def __sizeof__(self) -> int:
        """Return about the bytes of the whole numbers."""
        return _WHOLE_BYTES * (len(self.sums) + len(self.products))

    def filled(self, values: NDArray[np.float64]) -> Self:
        """Return those of the same rows with a value of each column in its gaps.

        They must have squares only.
        """
        exponent, wholes = _whole_numbers(np.asarray(values)[:, None])
        fill = [whole for (whole,) in wholes]
        lowest = min(exponent, self.exponent)
        own = self._with_exponent(lowest)
        fill = [whole << (exponent - lowest) for whole in fill]
        filling = list(zip(fill, self.n_gaps, strict=True))
        sums = [s + n * x for s, (x, n) in zip(own.sums, filling, strict=True)]
        squares = [s + n * x * x for s, (x, n) in zip(own.products, filling, strict=True)]
        none = (0,) * len(fill)
        return type(self)(self.n_rows, none, *_shortened(lowest, sums, squares))

    def means(self) -> NDArray[np.float64]:
        """Return the mean of each column, rounded once."""
        return np.array([_rounded(of, self.exponent, self.n_rows) for of in self.sums])

    @property
    def squares(self) -> Sequence[int]:
        """Sums of the squares of each column."""
        if len(self.products) == len(self.sums):
            return self.products
        return [self.products[i * (i + 3) // 2] for i in range(len(self.sums))]

    def variances(self, ddof: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the variance of each column, rounded once, and which are constant.

        A variance is inf where it is beyond float64.
        """
        centered = [
            self.n_rows * of - s * s for s, of in zip(self.sums, self.squares, strict=True)
        ]
        variances = [self._rounded(of, ddof) for of in centered]
        return np.array(variances), np.array([of == 0 for of in centered], bool)

    def covariance(
        self, ddof: int, divisors: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the covariance of columns, rounded once, and which are constant.

        Parameters
        ----------
        ddof : int
        divisors : ndarray of shape (n_columns,), optional
            By which columns are divided before, without rounding.

        Returns
        -------
        covariance : ndarray of shape (n_columns, n_columns)
        is_constant : ndarray of shape (n_columns,)
        """
        n_columns, left = len(self.sums), iter(self.products)
        covariance = np.empty((n_columns, n_columns))
        is_constant = np.zeros(n_columns, bool)
        ratios = [(1, 1)] * n_columns
        if divisors is not None:
            ratios = [x.as_integer_ratio() for x in divisors.tolist()]
        for i, (above, below) in enumerate(ratios):
            for j in range(i + 1):
                centered = self.n_rows * next(left) - self.sums[i] * self.sums[j]
                if i == j:
                    is_constant[i] = centered == 0
                if divisors is not None:
                    centered *= below * ratios[j][1]
                divided_by = above * ratios[j][0]
                covariance[i, j] = self._rounded(centered, ddof, divided_by)
                covariance[j, i] = covariance[i, j]
        return covariance, is_constant

    def _rounded(self, centered: int, ddof: int, divided_by: int = 1) -> float:
        below = self.n_rows * max(1, self.n_rows - ddof) * divided_by
        return _rounded(centered, 2 * self.exponent, below)

    def _with_exponent(self, exponent: int) -> Self:
        """Return the same with an exponent that is as small, or smaller."""
        shift = self.exponent - exponent
        sums = tuple(whole << shift for whole in self.sums)
        products = tuple(whole << 2 * shift for whole in self.products)
        return type(self)(self.n_rows, self.n_gaps, exponent, sums, products)


def _whole_numbers(columns: NDArray[np.float64]) -> tuple[int, list[list[int]]]:
    """Return an exponent, and whole numbers that are the columns if multiplied by 2**it."""
    mantissas, exponents = np.frexp(columns)
    wholes = np.ldexp(mantissas, 53).astype(np.int64)
    lowest = int(exponents.min(where=mantissas != 0, initial=2000))
    shifts = np.where(mantissas == 0, 0, exponents - lowest)
    shifted = [
        [whole << shift for whole, shift in zip(*of, strict=True)]
        for of in zip(wholes.tolist(), shifts.tolist(), strict=True)
    ]
    return lowest - 53, shifted


def _shortened(
    exponent: int, sums: Sequence[int], products: Sequence[int]
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the same with the largest exponent, so that whole numbers are short.

    0 where all of them are, as then any one would do.
    """
    if not any((*sums, *products)):
        return 0, tuple(sums), tuple(products)
    least = chain(
        (_trailing_zeros(whole) for whole in sums if whole),
        (_trailing_zeros(whole) // 2 for whole in products if whole),
    )
    shift = min(least, default=0)
    return (
        exponent + shift,
        tuple(whole >> shift for whole in sums),
        tuple(whole >> 2 * shift for whole in products),
    )


def _trailing_zeros(whole: int) -> int:
    return (whole & -whole).bit_length() - 1


def _rounded(whole: int, exponent: int, below: int) -> float:
    """Return ``whole * 2**exponent / below``, rounded once; inf past the float64 range."""
    above = whole << max(exponent, 0)
    try:
        return above / (below << max(-exponent, 0))  # Python rounds it correctly
    except OverflowError:
        return float("inf") if whole > 0 else float("-inf")
