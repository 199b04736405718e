"""The nominal rows of a model as the user gave them, to judge it by."""

from __future__ import annotations

from typing import Any

from lpe_dask.tables.files import is_paths


class Origin:
    """What `LPE.fit` was given, where it can still be had.

    A copy of a model has no more than paths of it: rows would be sent along with it.

    Parameters
    ----------
    rows : object
        None: nothing is known.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Origin, (self.rows if is_paths(self.rows) else None,)

    def __dask_tokenize__(self) -> str:
        """Return the same for all: no result depends on it."""
        return "lpe-origin"
