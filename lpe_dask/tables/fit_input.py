"""The nominal rows of a model as the user gave them, to check the model with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection, tokenize

from lpe_dask.tables.table_files import as_paths, is_path_like


class FitInput:
    """The input of `LPE.fit`, if it is still available.

    A copy of a model keeps paths only: rows would be sent along with it.

    Parameters
    ----------
    rows : object
        None: not available.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def is_input(self, X: Any) -> bool:
        """Return whether ``X`` is the input, or equal to it; computes nothing of Dask."""
        rows = self.rows
        if rows is None or type(X) is not type(rows):
            return False
        if is_path_like(X):
            return as_paths(X) == as_paths(rows)
        if is_dask_collection(X):
            return bool(tokenize(X) == tokenize(rows))
        if isinstance(X, pd.DataFrame):
            return X.equals(rows)
        return X is rows or (isinstance(X, np.ndarray) and np.array_equal(X, rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return FitInput, (self.rows if is_path_like(self.rows) else None,)

    def __dask_tokenize__(self) -> str:
        """Return the same value for all: no result depends on it."""
        return "lpe-origin"
