"""The error of a table with invalid rows."""

from __future__ import annotations


class TableError(ValueError):
    """Invalid content of a file, found only when its rows are read."""


class CategoryTypeError(TableError, TypeError):
    """Values of another type than the nominal rows have in a categorical column."""


class PrecisionError(TableError):
    """A number that float64 cannot hold."""
