"""Write the most anomalous rows of an output into a list, for a person to mark.

    OUT --most anomalous rows--> numbers in the input --input, read again--> checksums
    OUT --columns carried over, reasons--> what a person sees            --> FILE

What is marked is left out of a fit by confirmed_rows.py, by the number and the checksum.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lpe_dask.batch.confirmed_rows import CHECKSUM, MARK, ROW
from lpe_dask.batch.fingerprint import changed_files, read_fingerprint
from lpe_dask.storage import MASK, Folder, printable, redact
from lpe_dask.tables import FileTable, open_features, with_csv

#: Before what a spreadsheet would run as a formula: the start of a cell, or a separator,
#: which may be another one for the spreadsheet than for us. A frequent number is none.
_FORMULA = re.compile(r"(^|[,;\t])(\s*)(?=[=+\-@])(?!-[\d.e+-]+ \d+%)")


@dataclass(frozen=True, slots=True)
class ConfirmationList:
    """A file to write.

    Attributes
    ----------
    folder : Folder
    name : str
    """

    folder: Folder
    name: str

    @classmethod
    def at(cls, file: str, output: str) -> ConfirmationList:
        """Return the list at ``file``, where there is nothing yet.

        Raises
        ------
        FileExistsError
            If there is a file: it may have marks.
        ValueError
            If it would be a part of the output.
        """
        above, slash, name = file.rpartition("/")
        folder = Folder(above + slash or ".")
        if not name:
            raise ValueError(
                f"confirm={file!r} must be the name of a file to write, such as list.csv "
                f"(confirm=, --confirm)."
            )
        if f"{folder.full_url()}/".startswith(f"{Folder(output).full_url()}/"):
            raise ValueError(
                f"{redact(file)} would be in the output {redact(output)}, where readers "
                f"take it for rows. Give a file elsewhere (confirm=, --confirm)."
            )
        found = cls(folder, name)
        if folder.exists(name):
            found._refuse()
        return found

    def write(self, lines: pd.DataFrame) -> None:
        """Write it, as spreadsheets read it; FileExistsError if it is there by now."""
        text = lines.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
        self.folder.make()
        if not self.folder.create(self.name, text.encode("utf-8-sig")):
            self._refuse()

    def _refuse(self) -> None:
        raise FileExistsError(
            f"{redact(self.folder.full_url(self.name))} exists, and may have marks. Give "
            f"another name (confirm=, --confirm), or move it away."
        )


def lines_to_confirm(
    numbers: Sequence[int],
    checksums: Sequence[str],
    p_values: Sequence[float],
    ids: Sequence[str],
    reasons: Sequence[str],
) -> pd.DataFrame:
    """Return the lines of a list; all arguments have an item for each row."""
    return pd.DataFrame(
        {
            ROW: numbers,
            CHECKSUM: checksums,
            "p_value": p_values,
            "id_columns": list(map(_as_text, ids)),
            "reasons": list(map(_as_text, reasons)),
            MARK: "",
        }
    )


def _as_text(text: str) -> str:
    return _FORMULA.sub(r"\1\2'", printable(text))


def input_of(output: str, summary: dict[str, Any]) -> tuple[FileTable, list[Any]]:
    """Return the table that an output was made from, and its columns that were measured.

    After these come those that divide rows into groups.

    Raises
    ------
    FileNotFoundError
        If its files are not there any more.
    ValueError
        If they have changed, or are at URLs with passwords.
    """
    made_from = read_fingerprint(output)
    assert made_from is not None  # it is in the summary
    names, settings = [name for name, *_ in made_from.data], made_from.settings
    if any(MASK in name for name in names):
        raise ValueError(
            f"{redact(output)} was made from URLs with passwords, which it does not keep, "
            f"so its rows cannot be read again. Score the rows at a URL without one."
        )
    parameters = summary["parameters"]
    table, frame = open_features(
        with_csv(names, settings.get("csv")), settings["columns"],
        categorical=parameters["categorical"], by=parameters["by"] or (),
    )  # fmt: skip
    if changed := changed_files(made_from.data, table.files.stamps):
        raise ValueError(
            f"{redact(output)} was made from other rows: {changed[0]}. Score the rows "
            f"again."
        )
    return table, list(frame.columns)
