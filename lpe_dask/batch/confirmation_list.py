"""Write the most anomalous rows of an output into a list, for a person to mark.

    OUT --most anomalous rows--> numbers in the input --input, read again--> checksums
    OUT --columns carried over, reasons--> what a person sees            --> FILE

The list is of flagged rows only where no others were written; these have their numbers.
What is marked is left out of a fit by confirmed_rows.py, by the number and the checksum.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from lpe_dask.batch.confirmed_rows import CHECKSUM, MARK, ROW
from lpe_dask.batch.explanations import (
    first_identifying,
    first_reasons,
    has_explanations,
    id_columns,
    n_explainable,
    stored_reasons,
    top_rows,
    work_out,
)
from lpe_dask.batch.inputs import input_of
from lpe_dask.batch.output import RESULT_COLUMNS, ROW_NUMBER, overlaps, reserved_output
from lpe_dask.batch.reason_texts import id_text, reasons_text
from lpe_dask.batch.spreadsheet_text import without_formulas
from lpe_dask.batch.summary import read_summary
from lpe_dask.storage import (
    MASK,
    Folder,
    Lock,
    like,
    printable,
    redact,
    sibling_url,
    single_line,
)
from lpe_dask.tables import FileTable, LocatedRows, open_features

logger = logging.getLogger(__name__)


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
    def at(cls, file: str, output: str, inputs: Sequence[str]) -> ConfirmationList:
        """Return the list at ``file``, where there is nothing yet.

        Parameters
        ----------
        file, output : str
        inputs : sequence of str
            URLs of the tables that the output was made from.

        Raises
        ------
        FileExistsError
            If there is a file: it may have marks.
        ValueError
            If it would be a part of the output, or of such a table.
        """
        above, slash, name = file.rpartition("/")
        folder = Folder(like(file, above + slash or "."))
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
        given = [sibling_url(output, of) for of in inputs if MASK not in of]
        if among := [of for of in given if overlaps(file, of)]:
            raise ValueError(
                f"{redact(file)} would be among the rows at {among[0]}, where later runs "
                f"take it for some. Give a file elsewhere (confirm=, --confirm)."
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


def write_confirmation_list(
    url: str, top: int, workers: AbstractContextManager[None] | None, file: str
) -> pd.DataFrame:
    """Write the list for a person to mark, and return the reasons that it has; computes.

    Parameters
    ----------
    url : str
        Of the output.
    top, workers
        As for `explain_output`, which says what is raised.
    file : str
        To write.
    """
    summary = read_summary(url)
    to_write = ConfirmationList.at(file, url, summary.get("inputs", ()))
    n_explainable(url, summary)  # or there is nothing to list
    with reserved_output(url) as lock, workers or nullcontext():
        _try_to_explain(url, summary, top, lock)
        table, _ = open_features(url, [RESULT_COLUMNS[0]])
        rows = top_rows(table, summary["parameters"]["graph"], top)
        lines = _lines(url, summary, table, rows)
    labels = table.part_labels()
    places = [
        (labels[part][0], labels[part][1] + place)
        for part, place in zip(rows["part"], rows["place"], strict=True)
    ]
    stored = stored_reasons(url)
    texts = {} if stored is None else _texts(stored)
    lines["reasons"] = _cells([texts.get(place, "") for place in places])
    to_write.write(lines.assign(**{MARK: ""}))
    return pd.DataFrame() if stored is None else first_reasons(stored, top)


def _try_to_explain(url: str, summary: dict[str, Any], top: int, lock: Lock) -> None:
    try:
        if not has_explanations(url, top):
            work_out(url, summary, top, lock)
    except (ValueError, OSError) as error:
        logger.info("some rows are listed without reasons: %s", single_line(error))


def _lines(
    url: str, summary: dict[str, Any], table: FileTable, rows: pd.DataFrame
) -> pd.DataFrame:
    """Return the lines of rows of an output, but for reasons and marks; computes."""
    given, measured = input_of(url, summary)
    starts = np.cumsum([0, *(table.known_sizes or ())])
    places = (starts[rows["part"].to_numpy()] + rows["place"]).tolist()
    scored, of_reasons = LocatedRows.of(table, places), summary["reasons"]
    kept = table.select(table.columns[: table.columns.index(RESULT_COLUMNS[0])])
    hidden = {*map(str, measured), *of_reasons["private_columns"]}
    numbers, n_rows = places, sum(scored.sizes)
    if summary.get("output_rows") == "flagged":
        hidden.add(ROW_NUMBER)
        numbers = [int(of[ROW_NUMBER]) for of in scored.values([ROW_NUMBER])]
        n_rows = summary["rows"]
    in_input = LocatedRows.of(given, numbers)
    if sum(in_input.sizes) != n_rows:
        raise ValueError(
            f"{url} has {n_rows} rows, and its input {sum(in_input.sizes)}, so it is "
            f"unknown which are which. Score the rows again, all of them."
        )
    ids = scored.values(first_identifying(kept, hidden))
    return pd.DataFrame(
        {
            ROW: numbers,
            CHECKSUM: in_input.checksums(measured),
            "p_value": rows["p_value"].tolist(),
            "id_columns": _cells([id_text(id_columns(of)) for of in ids]),
        }
    )


def _texts(reasons: pd.DataFrame) -> dict[Any, str]:
    groups = reasons.groupby(["part", "row"], sort=False)
    return {place: reasons_text(of_row) for place, of_row in groups}


def _cells(texts: Sequence[str]) -> list[str]:
    cells: list[str] = without_formulas(
        pa.array(map(printable, texts), pa.string())
    ).to_pylist()
    return cells
