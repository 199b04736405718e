"""Take rows from the user's units to those in which distances are measured.

    rows (n, d) -> fill gaps -> widen to float64 -> forms of a scale -> times powers of two
                                                 or scale -> matrix
    codes of categories: as they are, after the numbers
    gaps: where numbers are missing, as codes 0 and 1, after those

A squared distance is the sum of ``w_k (x_k - y_k)**2`` over prepared columns: a range, a
deviation, a variance or a weight is a weight w, so that equal differences stay equal. Only
quantiles and a matrix change the numbers themselves.

The order and the form of this arithmetic are part of the result, because ties decide
p-values. A row's bits depend on that row alone: sums go in column order, without BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.json_arrays import Elsewhere, Floats
from lpe_dask.kernels import as_float32_if_exact
from lpe_dask.search.quantile_scale import QuantileKnots

#: The code of a missing category where it is a level: none of others.
MISSING_CODE = -2.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """The forms of each column: as it is, a line through knots, or both.

    Before a matrix a column as it is becomes ``(x - shift) * factor`` or ``(x - shift) /
    divisor``. Where there are both forms, those by knots come after all others.

    Attributes
    ----------
    shift : ndarray of shape (n_features,), optional
    factor, divisor : ndarray of shape (n_features,), optional
        One of them is set where ``shift`` is.
    knots : QuantileKnots, optional
    has_both : bool, default=False
        Whether there are both forms where there are knots.
    """

    shift: Floats | None = None
    factor: Floats | None = None
    divisor: Floats | None = None
    knots: QuantileKnots | None = None
    has_both: bool = False

    def __sizeof__(self) -> int:
        """Return about the bytes of the arrays."""
        vectors = [v for v in (self.shift, self.factor, self.divisor) if v is not None]
        n_bytes = sum(vector.nbytes for vector in vectors)
        return n_bytes + (0 if self.knots is None else self.knots.__sizeof__())

    def n_scaled(self, n_features: int) -> int:
        """Return how many columns so many columns become."""
        return 2 * n_features if self.has_both else n_features

    def apply(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return rows of shape (n_rows, n_features) widened to float64, in their forms.

        Their shape is (n_rows, n_scaled).
        """
        if self.knots is None:
            return self._linear(rows)
        heights = self.knots.apply(rows)
        return np.hstack([self._linear(rows), heights]) if self.has_both else heights

    def _linear(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        scaled = rows.astype(np.float64, copy=False)
        if self.shift is not None:
            scaled = scaled - self.shift
        if self.factor is not None:
            scaled = scaled * self.factor
        if self.divisor is not None:
            scaled = scaled / self.divisor
        return scaled


def product(rows: NDArray[np.float64], matrix: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``rows @ matrix``, added in the order of the columns, without BLAS."""
    total = np.zeros_like(rows)
    for column, coefficients in zip(rows.T, matrix, strict=True):
        total += column[:, None] * coefficients
    return total


@dataclass(frozen=True, slots=True)
class Preparation:
    """Scaling, and then a matrix or weights, as given or learned from the nominal rows.

    Attributes
    ----------
    scaling : Scaling
        Of the columns that are numbers.
    matrix : ndarray of shape (n_scaled, n_scaled), optional
        Each scaled row x becomes ``matrix.T @ x``.
    factor : ndarray of shape (n_scaled,), optional
        Powers of two, by which columns are multiplied, which is exact; 0 for a column of
        weight 0, which is left out.
    categorical : tuple of int
        Columns that are codes of categories, ascending. In prepared rows they come last,
        as they are; where no others are left, after a column of zeros.
    weights : ndarray of shape (n_prepared,), optional
        By which squared differences of prepared columns are multiplied, and what each code
        that differs adds to a squared distance. None: all are 1.
    fill : ndarray of shape (n_numbers,), optional
        What is measured in the place of a missing number, in the units of the input; that
        it is missing is a code, too, of which prepared rows have one for each column of
        numbers. A missing category is a level. None: rows with gaps are not measured.
    separates : bool, default=False
        Whether the last one of the categorical columns separates rows: those with another
        code are at distance inf, and those without a code, or with one below 0, are not
        measured. In prepared rows it is the last column.
    drops_group : bool, default=False
        Whether prepared rows are without the last one of the categorical columns, as groups
        are searched together. Rows without a code, or with one below 0, are not measured.
    groups : GroupPreparations, optional
        Where numbers are prepared as was learned of their groups, by the last one of the
        categorical columns. If that separates rows, other attributes say which columns
        there are; else groups are only scaled, and the metric is that of all of them.
    """

    scaling: Scaling = Scaling()
    matrix: Floats | None = None
    factor: Floats | None = None
    categorical: tuple[int, ...] = ()
    weights: Floats | None = None
    fill: Floats | None = None
    separates: bool = False
    drops_group: bool = False
    groups: Elsewhere = None

    @property
    def n_codes(self) -> int:
        """How many prepared columns are codes, of categories and of gaps."""
        n_categorical = len(self.categorical) - self.drops_group
        return n_categorical + (0 if self.fill is None else len(self.fill))

    def parted(
        self, codes: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the codes of prepared rows: of categorical columns, and of gaps.

        The first have zeros for a column that is dropped.
        """
        n_categorical = len(self.categorical) - (self.separates or self.drops_group)
        stop = codes.shape[1] - int(self.separates)
        last = codes[:, stop:]
        if self.drops_group:
            last = np.zeros((len(codes), 1))
        return np.hstack([codes[:, :n_categorical], last]), codes[:, n_categorical:stop]

    def n_numbers(self, n_features: int) -> int:
        """Return how many prepared columns of so many of the input are numbers."""
        n_scaled = self.scaling.n_scaled(n_features - len(self.categorical))
        n_left = n_scaled if self.factor is None else np.count_nonzero(self.factor)
        return max(1, int(n_left))

    def n_prepared(self, n_features: int) -> int:
        """Return how many columns so many columns of the input become."""
        return self.n_numbers(n_features) + self.n_codes

    def number_places(self, n_features: int) -> NDArray[np.int64]:
        """Return which of so many columns of the input are numbers."""
        return np.delete(np.arange(n_features), self.categorical)

    def is_weighted(self, n_features: int) -> NDArray[np.bool_]:
        """Return which columns of the input are measured: those with a weight above 0."""
        is_measured, n_prepared = np.ones(n_features, bool), self.n_prepared(n_features)
        of_codes = self.weights_of(n_prepared)[None, n_prepared - self.n_codes :]
        is_measured[list(self.categorical)] = self.parted(of_codes)[0][0] != 0
        if self.factor is not None:
            numbers = self.number_places(n_features)
            of_forms = (self.factor != 0).reshape(-1, len(numbers))
            is_measured[numbers] = of_forms.any(axis=0)
        return is_measured

    def group_codes(self, prepared: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the codes of the groups of prepared rows, of shape (n_rows,).

        Where rows have some: those of the last one of the categorical columns. NaN where
        nothing was learned of the group.
        """
        of_columns, _ = self.parted(prepared[:, prepared.shape[1] - self.n_codes :])
        codes: NDArray[np.float64] = of_columns[:, -1].astype(np.float64)
        if self.groups is not None:
            is_known = np.isfinite(codes) & (codes >= 0)
            which = np.where(is_known, codes, 0).astype(np.int64)
            codes[~(is_known & self.groups.is_known[which])] = np.nan
        return codes

    def of_group(self, group: int) -> Preparation:
        """Return the preparation of the rows of a group, as if there were no others."""
        if self.groups is None:
            return self
        fill = None if self.fill is None else self.groups.vectors["fill"][group]
        own, weights = self.groups.of(group), self.groups.weights[group]
        if not self.separates:  # the metric is that of all groups
            return replace(self, scaling=own.scaling, fill=fill, groups=None)
        n_prepared = len(weights) + self.n_codes
        return replace(
            self,
            scaling=own.scaling,
            matrix=own.matrix,
            factor=own.factor,
            weights=np.append(weights, self.weights_of(n_prepared)[len(weights) :]),
            fill=fill,
            groups=None,
        )

    def weights_of(self, n_prepared: int) -> NDArray[np.float64]:
        """Return the weights of all so many prepared columns."""
        return np.ones(n_prepared) if self.weights is None else self.weights

    def apply_float32(self, rows: NDArray[np.generic]) -> NDArray[np.floating]:
        """Return prepared rows as float32 where that changes none of them.

        They may be the rows themselves.
        """
        steps = self.scaling.shift, self.scaling.knots, self.matrix, self.factor
        is_idle = all(step is None for step in steps) and not self.categorical
        is_idle &= self.fill is None
        if is_idle and np.can_cast(rows.dtype, np.float32):
            return rows.astype(np.float32, copy=False)
        return as_float32_if_exact(self.apply(rows))

    def apply(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return prepared rows of shape (n_rows, n_prepared).

        A finite row stays finite: what overflows becomes the largest float64, which is at
        distance inf from every row that did not. A row with inf keeps at least one, and so
        does one with NaN, unless gaps are filled.
        """
        numbers = np.delete(rows, self.categorical, axis=1) if self.categorical else rows
        codes = rows[:, self.categorical].astype(np.float64)
        stop = codes.shape[1] - int(self.separates or self.drops_group)
        codes, last = codes[:, :stop], codes[:, stop:]
        last[last < 0] = np.nan
        if self.groups is not None:
            return self._of_groups(numbers, codes, last)
        if self.fill is None:
            parts = [self.apply_to_numbers(numbers), codes]
        else:
            gaps = np.isnan(numbers)
            codes[np.isnan(codes)] = MISSING_CODE
            filled = np.where(gaps, self.fill, numbers)
            parts = [self.apply_to_numbers(filled), codes, gaps]
        if self.drops_group:
            parts[0][np.isnan(last[:, 0])] = np.nan
        elif self.separates:
            parts.append(last)
        return np.hstack(parts) if self.n_codes > 0 else parts[0]

    def _of_groups(
        self,
        numbers: NDArray[np.generic],
        codes: NDArray[np.float64],
        last: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the result of `apply` where numbers are prepared by groups.

        ``last`` has the codes of groups, if they separate rows, which else are the last of
        ``codes``.
        """
        of_groups = last[:, 0] if self.separates else codes[:, -1]
        known = np.isfinite(of_groups) & (of_groups >= 0)
        which = np.where(known, of_groups, 0).astype(np.int64)
        gaps = np.empty((len(numbers), 0))
        if self.fill is not None:
            gaps = np.isnan(numbers)
            numbers = self.groups.filled(numbers, which)
            codes[np.isnan(codes)] = MISSING_CODE
        prepared = self.groups.apply(numbers, which)
        prepared[~known] = np.nan
        if not self.separates:  # the metric is that of all groups
            metric = Preparation(matrix=self.matrix, factor=self.factor)
            prepared = metric.apply_to_numbers(prepared)
        return np.hstack([prepared, codes, gaps, last])

    def apply_to_numbers(self, numbers: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return prepared rows of columns that are numbers only, without codes."""
        with np.errstate(over="ignore", invalid="ignore"):
            prepared = self.scaling.apply(numbers)
            if self.matrix is not None:
                prepared = product(prepared, self.matrix)
            if self.factor is not None:
                is_kept = self.factor != 0
                prepared = prepared[:, is_kept] * self.factor[is_kept]
        leaves_out = self.factor is not None and not self.factor.all()
        return clip_overflow(prepared, numbers, leaves_out=leaves_out)


def clip_overflow(
    prepared: NDArray[np.float64], numbers: NDArray[np.generic], *, leaves_out: bool
) -> NDArray[np.float64]:
    """Return prepared numbers, those that overflowed as the largest float64.

    See `Preparation.apply`; at least one column, of zeros if need be.

    Parameters
    ----------
    prepared : ndarray of shape (n_rows, n_prepared)
        Of these numbers; changed.
    numbers : ndarray of shape (n_rows, n_features)
    leaves_out : bool
        Whether some of their columns are not measured.
    """
    if prepared.shape[1] == 0:  # kernels take one at least
        prepared = np.zeros((len(numbers), 1))
    overflown = ~np.isfinite(prepared)
    if overflown.any():
        overflown[~np.isfinite(numbers).all(axis=1)] = False
        prepared = np.where(overflown, np.finfo(np.float64).max, prepared)
    if leaves_out:  # a gap stays one anywhere
        prepared[~np.isfinite(numbers).all(axis=1), 0] = np.nan
    return prepared
