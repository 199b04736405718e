"""Leave out of the nominal rows those that a person has confirmed as anomalies.

FILE, as confirmation_list.py writes it, with marks --read--> numbers, checksums
nominal table --rows of these numbers, recognised by their checksums--> the others
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from lpe_dask.batch.errors import JobKeyError
from lpe_dask.batch.fingerprint import digest
from lpe_dask.batch.placeholders import shorten
from lpe_dask.storage import Folder, like, redact
from lpe_dask.tables import FileTable, LocatedRows

logger = logging.getLogger(__name__)

#: Columns that are read: the number of a row, its checksum, and the mark.
ROW, CHECKSUM, MARK = "row", "checksum", "is_anomaly_confirmed"

#: What a mark may be, in small letters.
_MARKS = dict.fromkeys(("true", "yes", "1", "x"), True) | dict.fromkeys(
    ("", "false", "no", "0"), False
)

#: The number of a row, which an integer of 64 bits holds.
_NUMBER = re.compile("[0-9]{1,18}")

#: Separators of columns that spreadsheets write.
_SEPARATORS = ",;\t"

#: Rows that a message names.
_MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class ConfirmedRows:
    """Rows of the nominal table that are anomalies.

    Attributes
    ----------
    file : str
        That marks them.
    numbers : list of int
        Of the rows in the table, from 0, ascending.
    checksums : list of str
        As `LocatedRows.checksums` has them.
    """

    file: str
    numbers: list[int]
    checksums: list[str]

    @classmethod
    def read(cls, file: str) -> ConfirmedRows:
        """Return the rows that a file marks; a log line says if it marks none.

        Raises
        ------
        JobKeyError
            If there is no such file, or for its content.
        """
        seen: dict[int, int] = {}
        marked: dict[int, str] = {}
        for line, number, checksum, is_marked in _lines(file, _content(file)):
            if number in seen:
                raise _refusal(
                    f"lines {seen[number]} and {line} of {redact(file)} are about the same "
                    f"row, {number}. Keep one of them."
                )
            seen[number] = line
            if is_marked:
                marked[number] = checksum
        if not marked:
            logger.warning(
                "%s marks no row (%s): no nominal row is left out", redact(file), MARK
            )
        numbers = sorted(marked)
        return cls(file, numbers, [marked[number] for number in numbers])

    def without(
        self, table: FileTable, measured: Sequence[Any], columns: Sequence[Any]
    ) -> tuple[Any, list[int]]:
        """Return the other rows of a table, and how many each partition has; computes.

        Parameters
        ----------
        table : FileTable
            The nominal rows.
        measured : sequence
            The columns that checksums are of.
        columns : sequence
            Those of the rows that are returned.

        Raises
        ------
        JobKeyError
            If a row is not there, or another one is in its place.
        """
        rows = LocatedRows.of(table, self.numbers)
        n_rows, file = sum(rows.sizes), redact(self.file)
        if not (are_there := rows.are_there()).all():
            unknown = list(compress(self.numbers, ~are_there))
            raise _refusal(
                f"{file} marks {_named(unknown)}, but {table.place} has {n_rows} rows, 0 "
                f"to {n_rows - 1}. {_REMEDY}"
            )
        found = zip(self.numbers, rows.checksums(measured), self.checksums, strict=True)
        changed = [number for number, *checksums in found if len({*checksums}) > 1]
        if changed:
            raise _refusal(
                f"{len(changed)} of the {len(self.numbers)} rows that {file} marks have "
                f"other values in {table.place}, by their checksums: {_named(changed)}. "
                f"The list is of other measured columns than now "
                f"({shorten(', '.join(map(str, measured)), 150)}), rows have changed or "
                f"moved, or files have come or gone. {_REMEDY}"
            )
        logger.info(
            "left out %d of %d nominal rows, as confirmed anomalies (%s)",
            len(self.numbers), n_rows, file,
        )  # fmt: skip
        return rows.others(columns)

    @property
    def digest(self) -> str:
        """Identifies these rows, whatever the file is called."""
        return digest([self.numbers, self.checksums])


_REMEDY = (
    "Give the columns (columns=, --columns, exclude, categorical) and files that the list "
    "was made from, or make it again: lpe-dask score NOMINAL --output OUT, then lpe-dask "
    "explain OUT --confirm FILE.csv."
)


def _content(file: str) -> str:
    folder, slash, name = file.rpartition("/")
    content = Folder(like(file, folder + slash or ".")).read(name)
    if content is None:
        raise _refusal(
            f"there is no list of confirmed rows at {redact(file)}. Give one that "
            f"`lpe-dask explain OUT --confirm FILE.csv` has written, or leave it out "
            f"(without_rows=, --without-rows)."
        )
    # Texts for people may be in the encoding of a spreadsheet; what is read here is ASCII.
    return content.decode("utf-8-sig", errors="replace")


def _lines(file: str, content: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield the line, number, checksum and mark of each row."""
    first = content.partition("\n")[0].strip()
    separator = max(_SEPARATORS, key=first.count)
    reader = csv.DictReader(io.StringIO(content, newline=""), delimiter=separator)
    missing = [name for name in (ROW, CHECKSUM, MARK) if name not in _names(reader)]
    if missing:
        raise _refusal(
            f"{redact(file)} lacks the columns {', '.join(missing)}; its first line is "
            f"{first[:80]!r}. Give a list that `lpe-dask explain OUT --confirm "
            f"FILE.csv` has written, with all its columns, as CSV."
        )
    for line in reader:
        where = f"{redact(file)}, line {reader.line_num}"
        number, checksum, mark = ((line[n] or "").strip() for n in (ROW, CHECKSUM, MARK))
        if not (number or checksum or mark):
            continue  # below the last row of a spreadsheet
        if not _NUMBER.fullmatch(number):
            raise _refusal(
                f"{where}: {ROW}={number[:80]!r} must be the number of a row, a whole "
                f"number of at least 0, as it was written. Correct it."
            )
        if mark.lower() not in _MARKS:
            raise _refusal(
                f"{where}: {MARK}={mark[:80]!r} must be true, yes, 1 or x for an anomaly, "
                f"and false, no, 0 or nothing for any other row. Correct it."
            )
        yield reader.line_num, int(number), checksum, _MARKS[mark.lower()]


def _names(reader: csv.DictReader[str]) -> Sequence[str]:
    return reader.fieldnames or ()


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_NAMED]))
    n_more = len(numbers) - _MAX_NAMED
    return f"row{'s' * (len(numbers) > 1)} {shown}" + (
        f" and {n_more} more" if n_more > 0 else ""
    )


def _refusal(message: str) -> JobKeyError:
    return JobKeyError(message, "nominal", "without_rows")
