"""The error of a table with invalid rows."""

from __future__ import annotations

from typing import Any

from lpe_dask.storage import redact


class TableError(ValueError):
    """Invalid content of a file, found only when its rows are read."""

    def __init__(self, message: Any) -> None:
        super().__init__(redact(str(message)))  # it leaves a task, not one of our functions


class CategoryTypeError(TableError, TypeError):
    """Values of another type than the nominal rows have in a categorical column."""


class PrecisionError(TableError):
    """A number that float64 cannot hold."""
