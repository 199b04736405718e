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
        By number: a row that is measured, one with a missing value, and one with an
        infinite value, also beside a missing one.
    COLUMN : str
        Name of a column of them.
    TYPE : CategoricalDtype
        Of such a column in pandas.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("ok", "missing value", "infinite value")
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
    rows: NDArray[np.generic], *, measures_gaps: bool = False
) -> NDArray[np.int8]:
    """Return the number of the status of each row, of shape (n_rows,).

    ``measures_gaps``: whether rows with missing values are measured.
    """
    codes = np.zeros(len(rows), np.int8)
    is_finite = np.isfinite(rows)
    if not is_finite.all():  # by row it takes several times as long
        if not measures_gaps:
            codes[~is_finite.all(axis=1)] = RowStatus.NAMES.index("missing value")
        codes[np.isinf(rows).any(axis=1)] = RowStatus.NAMES.index("infinite value")
    return codes


def status_names(codes: NDArray[np.int8]) -> NDArray[np.object_]:
    """Return the statuses of these numbers as text."""
    return np.array(RowStatus.NAMES, object)[codes]
