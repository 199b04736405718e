"""Say of each row whether it is measured, and if not, why."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class RowStatus:
    """The statuses of rows, which are numbered in tasks.

    Attributes
    ----------
    NAMES : tuple of str
        By number: a row that is measured; one with a missing value; one with an infinite
        value, also beside a missing one; and, of rows without these, one without a group,
        of a group that no nominal row has, and of a group that is too small.
    COLUMN : str
        Name of a column of them.
    TYPE : CategoricalDtype
        Of such a column in pandas.
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "ok", "missing value", "infinite value", "no group", "unknown group", "small group",
    )  # fmt: skip
    COLUMN: ClassVar[str] = "p_value_status"
    TYPE: ClassVar[pd.CategoricalDtype] = pd.CategoricalDtype([*NAMES])

    @classmethod
    def column(cls, codes: NDArray[np.int8]) -> pd.Categorical:
        """Return numbers of statuses as a column of a frame."""
        return pd.Categorical.from_codes(codes, dtype=cls.TYPE)

    @classmethod
    def count(cls, codes: NDArray[np.int8]) -> NDArray[np.int64]:
        """Return how many rows have each status, of shape (n_statuses,)."""
        return np.bincount(codes, minlength=len(cls.NAMES))


# The functions below run inside tasks: NumPy in, NumPy out.


def status_codes(
    rows: NDArray[np.generic],
    is_small: NDArray[np.bool_] | None = None,
    *,
    measures_gaps: bool = False,
    has_groups: bool = False,
) -> NDArray[np.int8]:
    """Return the number of the status of each row, of shape (n_rows,).

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Numbers, and codes of categories.
    is_small : ndarray of shape (n_groups,), optional
        Which groups are small. None: none is, as far as is known.
    measures_gaps : bool, default=False
        Whether rows with missing values are measured.
    has_groups : bool, default=False
        Whether the last column has the numbers of groups.
    """
    if has_groups:
        of_groups = _group_status(rows[:, -1], is_small)
        codes = status_codes(rows[:, :-1], measures_gaps=measures_gaps)
        return np.where(codes == 0, of_groups, codes)
    codes = np.zeros(len(rows), np.int8)
    is_finite = np.isfinite(rows)
    if not is_finite.all():  # by row it takes several times as long
        if not measures_gaps:
            codes[~is_finite.all(axis=1)] = RowStatus.NAMES.index("missing value")
        codes[np.isinf(rows).any(axis=1)] = RowStatus.NAMES.index("infinite value")
    return codes


def _group_status(
    numbers: NDArray[np.generic], is_small: NDArray[np.bool_] | None
) -> NDArray[np.int8]:
    """Return the number of the status of each row by that of its group alone."""
    names = RowStatus.NAMES
    is_missing, is_unknown = np.isnan(numbers), np.less(numbers, 0)
    codes = np.zeros(len(numbers), np.int8)
    if is_small is not None:
        which = np.where(is_missing | is_unknown, 0, numbers).astype(np.int64)
        codes[is_small[which]] = names.index("small group")
    codes[is_unknown] = names.index("unknown group")
    codes[is_missing] = names.index("no group")
    return codes


def status_names(codes: NDArray[np.int8]) -> NDArray[np.object_]:
    """Return the statuses of these numbers as text."""
    return np.array(RowStatus.NAMES, object)[codes]
