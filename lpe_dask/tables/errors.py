"""What is wrong with a table, as its readers say it."""

from __future__ import annotations


class TableError(ValueError):
    """What a user has to mend in a file, found only when its rows were read."""
