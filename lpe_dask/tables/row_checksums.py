"""Rows of a table in files by their numbers, with checksums to recognise them by.

    numbers --sizes of partitions--> partition and place in it --one task each--> checksums

The checksum of a row is of its values, and not of how they are stored: it is the same for 5
and 5.0, and however the table is cut into files and partitions. So it is for CSV and
Parquet, where these have the same numbers: 0.1 in float32 is another one than 0.1 in CSV.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.tables.columns import select_columns
from lpe_dask.tables.table_files import FileTable, PartWithout
from lpe_dask.tasks import compute, new_tasks

#: Bytes of a checksum.
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Some rows of a table in files.

    Attributes
    ----------
    table : FileTable
    sizes : list of int
        Rows of its partitions.
    numbers : ndarray of shape (n,)
        Of the rows, counted from 0 in the whole table.
    """

    table: FileTable
    sizes: list[int]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, table: FileTable, numbers: Sequence[int]) -> LocatedRows:
        """Return the rows of these numbers; reads CSV files, whose rows are counted."""
        sizes = table.known_sizes
        if sizes is None:
            sizes = list(compute(*new_tasks("count", ((_count, of) for of in table.parts))))
        return cls(table, sizes, np.array(numbers, np.int64))

    def are_there(self) -> NDArray[np.bool_]:
        """Return which of the rows the table has."""
        return self.numbers < sum(self.sizes)

    def checksums(self, names: Sequence[Any]) -> list[str]:
        """Return the checksums of the rows, which the table has; computes.

        Parameters
        ----------
        names : sequence
            The columns that count, in any order.
        """
        return self._of_each(_checksums_of_part, sorted(map(str, names)))

    def values(self, names: list[str]) -> list[dict[str, Any]]:
        """Return the values of the rows in some columns; computes."""
        return self._of_each(_rows_of_part, names) if names else [{}] * len(self.numbers)

    def _of_each(self, function: Callable[..., list[Any]], names: list[str]) -> list[Any]:
        """Return what a function of a partition, names and places says of each row."""
        located = self._places()
        tasks = (
            (function, self.table.parts[part], names, places)
            for part, (_, places) in located.items()
        )
        found: list[Any] = [None] * len(self.numbers)
        computed = compute(*new_tasks("rows-at", tasks))
        for (which, _), of_part in zip(located.values(), computed, strict=True):
            for i, of_row in zip(which, of_part, strict=True):
                found[i] = of_row
        return found

    def others(self, columns: Sequence[Any]) -> tuple[Any, list[int]]:
        """Return a Dask DataFrame without these rows, and the sizes of its partitions.

        These stay as they are otherwise, also if they have no row any more.

        Parameters
        ----------
        columns : sequence
            Those of the frame.
        """
        parts, sizes = list(self.table.parts), list(self.sizes)
        for part, (_, places) in self._places().items():
            parts[part] = PartWithout(parts[part], places)
            sizes[part] -= len(places)
        return select_columns(replace(self.table, parts=parts).frame(), columns), sizes

    def _places(self) -> dict[int, tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Return which of the rows each partition has, and their places in it."""
        ends = np.cumsum(self.sizes)
        of_rows = np.searchsorted(ends, self.numbers, side="right")
        places = self.numbers - (ends - np.array(self.sizes, np.int64))[of_rows]
        chosen = {int(i): np.flatnonzero(of_rows == i) for i in np.unique(of_rows)}
        return {part: (which, places[which]) for part, which in chosen.items()}


# The functions below run inside tasks.


def _count(part: Any) -> int:
    return int(part.read([]).num_rows)


def _checksums_of_part(part: Any, names: list[str], places: NDArray[np.int64]) -> list[str]:
    return [row_checksum(row) for row in _rows_of_part(part, names, places)]


def _rows_of_part(
    part: Any, names: list[str], places: NDArray[np.int64]
) -> list[dict[str, Any]]:
    return list(part.read(names).take(places).to_pylist())


def row_checksum(row: dict[str, Any]) -> str:
    """Return the checksum of a row: values by the names of their columns, in this order.

    It begins with a letter, so that no spreadsheet takes it for a number.

    Examples
    --------
    >>> row_checksum({"x": 5}) == row_checksum({"x": 5.0})
    True
    >>> row_checksum({"x": 5}) == row_checksum({"x": "5"})
    False
    """
    text = json.dumps([[name, _canonical(value)] for name, value in row.items()])
    return f"x{blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _canonical(value: Any) -> Any:
    """Return a value of JSON, the same for equal numbers of all types, with all digits."""
    if value is None or value != value:  # NaN, NaT
        return None
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float | Decimal):
        if math.isfinite(value) and value == int(value):
            return int(value)
        number = float(value)
        # A float stands for the decimal that it is written as, as in CSV.
        if isinstance(value, Decimal) and Decimal(repr(number)) != value:
            return ["decimal", str(value.normalize())]
        return number
    return value if isinstance(value, str) else ["other", str(value)]
