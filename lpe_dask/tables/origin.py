"""The nominal rows of a model as the user gave them, to check the model with them."""

from __future__ import annotations

from typing import Any

from lpe_dask.tables.files import is_paths


class Origin:
    """The input of `LPE.fit`, if it is still available.

    A copy of a model keeps paths only: rows would be sent along with it.

    Parameters
    ----------
    rows : object
        None: not available.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Origin, (self.rows if is_paths(self.rows) else None,)

    def __dask_tokenize__(self) -> str:
        """Return the same value for all: no result depends on it."""
        return "lpe-origin"
