"""The nominal rows of a model as the user gave them, for as long as the user has them."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pandas as pd


class Origin:
    """What `LPE.fit` was given, where it can still be had.

    An array or frame in memory stays the user's: a model that held it would double its own
    memory. It is not pickled either. Dask collections and paths are held, which takes none.

    Parameters
    ----------
    X : object
        None: nothing is known.
    """

    def __init__(self, X: Any) -> None:
        self._is_held = not isinstance(X, np.ndarray | pd.DataFrame)
        self._reference = X if self._is_held else weakref.ref(X)

    def rows(self) -> Any:
        """Return what was given, or None where it is gone."""
        return self._reference if self._is_held else self._reference()

    def __reduce__(self) -> tuple[Any, ...]:
        return Origin, (self._reference if self._is_held else None,)

    def __dask_tokenize__(self) -> str:
        """Return the same for all: no result depends on it."""
        return "lpe-origin"
