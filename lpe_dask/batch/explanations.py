"""Give reasons for the most anomalous rows of an output, from the rows that were scored.

places --one task a partition--> rows, columns to carry over
       --explain--> OUT/_reasons.pqt, and the section of the summary

A run explains 50 rows, or 200 where rows are scored against each other; `explain_output`
shows them, or works out more from the output, or lists them for a person to confirm.
"""

from __future__ import annotations

import io
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import PathLike, fspath
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.batch.fingerprint import read_fingerprint
from lpe_dask.batch.output import (
    REASONS_NAME,
    RESULT_COLUMNS,
    ROW_NUMBER,
    reserved_output,
)
from lpe_dask.batch.part_stats import N_EXPLAINED, top_anomalies
from lpe_dask.batch.reason_texts import id_text
from lpe_dask.batch.row_selection import take
from lpe_dask.batch.summary import read_summary
from lpe_dask.model import Explanation, Fitted, ModelFolder
from lpe_dask.storage import (
    MASK,
    Folder,
    Lock,
    Url,
    redact_errors,
    sibling_url,
    with_options,
)
from lpe_dask.tables import FileTable
from lpe_dask.tasks import call_options, compute, frame_tasks, new_tasks

logger = logging.getLogger(__name__)

#: Columns of a row in the summary, and characters of a text there.
MAX_COLUMNS, MAX_CHARACTERS = 20, 200

#: What the summary says of such a column.
_OF_COLUMN = ["column", "value", "usual", "nominal_value", "share", "typical_share"]

#: Why there are no reasons where nothing may be shown.
ALL_PRIVATE = "all measured columns are private"

#: What pandas calls the levels of an index without names, in files.
_UNNAMED_INDEX = re.compile(r"^__index_level_(\d+)__$")

#: Columns that are carried over into the summary, to identify a row.
MAX_ID_COLUMNS = 3


class ReadRows(NamedTuple):
    """Rows that have been read.

    Attributes
    ----------
    places : MultiIndex of n rows
        The part and the place of each.
    values : DataFrame of n rows
        The columns to measure, and those that divide rows.
    kept : list of dict
        Columns of each that are carried over.
    """

    places: pd.MultiIndex
    values: pd.DataFrame
    kept: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ExplanationInput:
    """Rows that were scored, and where they are.

    Attributes
    ----------
    rows : dask DataFrame
        The columns to measure; after them those that divide rows into groups.
    kept : FileTable
        The columns to carry over, in the same partitions.
    labels : sequence of tuple
        What the partitions are in the output: the name of a file, and which of its rows is
        the first one.
    sizes : sequence of int, optional
        Rows of the parts, where the rows are the nominal ones, too; else None.
    private : sequence of str
        Columns that are not shown.
    read : ReadRows, optional
        Rows that are not read again. None: all are.
    """

    rows: Any
    kept: FileTable
    labels: Sequence[tuple[str, int]]
    sizes: Sequence[int] | None
    private: Sequence[str]
    read: ReadRows | None = None

    def reading(self, model: Fitted, some: pd.DataFrame, names: list[str]) -> Self:
        """Return this with some rows, each of which is there once; computes.

        Parameters
        ----------
        model : Fitted
        some : DataFrame of n rows
            Columns part and place.
        names : list of str
            Columns to carry over that will be needed.
        """
        places = pd.MultiIndex.from_frame(some[["part", "place"]])
        return replace(self, read=ReadRows(places, *self._select(some, model, names)))

    def explain(
        self, model: Fitted, top: pd.DataFrame, q_values: NDArray[np.float64] | None
    ) -> tuple[dict[str, Any], bytes]:
        """Return the reasons of some rows for the summary, and for a file; computes.

        Parameters
        ----------
        model : Fitted
        top : DataFrame of n rows
            As `top_anomalies` gives them.
        q_values : ndarray of shape (n,), optional
        """
        names = self.identifying_columns(model.n_features)
        explanation, _, kept = self.explained(model, top, names, self.private)
        parts = top["part"].to_numpy()
        is_flagged = top["is_flagged"].to_numpy()
        rows = [
            {
                **self.place(part, row), "id_columns": id_columns(kept[i]),
                "q_value": None if q_values is None else plain_value(q_values[i]),
                "is_anomaly": bool(is_flagged[i]),
                **of_row,
            }
            for i, (part, row, of_row) in enumerate(
                zip(parts, top["row"], _row_sections(explanation), strict=True)
            )
        ]  # fmt: skip
        shown = rows[:N_EXPLAINED]
        first = Counter(
            row["columns"][0]["column"]
            for row in shown
            if row["is_anomaly"] and row["columns"] and row["note"] is None
        )
        section = empty_section(model, self.private, None) | {
            "rows": shown,
            "flagged_rows": sum(row["is_anomaly"] for row in shown),
            "top_columns": [{"column": name, "rows": n} for name, n in first.most_common()],
        }
        return section, reasons_file(explanation, rows)

    def explained(
        self,
        model: Fitted,
        some: pd.DataFrame,
        names: list[str],
        hidden: Sequence[str] = (),
        *,
        with_typical: bool = True,
    ) -> tuple[Explanation, pd.DataFrame, list[dict[str, Any]]]:
        """Return why some rows are so, the rows, and other columns of them; computes.

        Parameters
        ----------
        model : Fitted
        some : DataFrame of n rows
            As `top_anomalies` gives them.
        names : list of str
            The other columns, which are carried over.
        hidden : sequence of str
            Columns that the explanation leaves out.
        with_typical : bool, default=True
            As for `Explanation.of`.
        """
        values, kept = self._select(some, model, names)
        parts, places = some["part"].to_numpy(), some["place"].to_numpy()
        fitted = None
        if self.sizes is not None:
            fitted = np.cumsum([0, *self.sizes])[parts] + places
        columns = list(self.rows.columns)
        is_hidden = np.isin(list(map(str, columns)), hidden)
        known = some["p_value"].to_numpy(), some["statistic"].to_numpy()
        explanation = Explanation.of(
            model, values, known, fitted, is_hidden, columns, with_typical=with_typical
        )
        return explanation, values, kept

    def _select(
        self, top: pd.DataFrame, model: Fitted, names: list[str]
    ) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
        """Return the rows and other columns of them, in the order of the places.

        Columns with minima are objects: no partition makes floats of others.
        """
        if self.read is not None:
            places, values, kept = self.read
            where = places.get_indexer(pd.MultiIndex.from_frame(top[["part", "place"]]))
            others = [{name: kept[i][name] for name in names} for i in where]
            return values.iloc[where].reset_index(drop=True), others
        keys, frame = frame_tasks(self.rows)
        chosen = dict(iter(top.groupby("part")["place"]))
        tasks = (
            (take, keys[i], self.kept.parts[i], places.to_numpy(), names)
            for i, places in chosen.items()
        )
        frames, lists = zip(*compute(*new_tasks("take", tasks, [frame])), strict=True)
        exact = list(model.minima.places)
        objects = dict.fromkeys(self.rows.columns[exact], object)
        values = pd.concat([of.astype(objects) for of in frames], ignore_index=True)
        kept = [*chain(*lists)]
        order = np.argsort(np.concatenate([places.index for places in chosen.values()]))
        return values.iloc[order].reset_index(drop=True), [kept[i] for i in order]

    def place(self, part: int, row: int) -> dict[str, Any]:
        """Return where a row of a part is in the output."""
        file, first = self.labels[part]
        return {"part": file, "row": first + int(row)}

    def identifying_columns(self, n_features: int) -> list[str]:
        """Return the first columns to carry over that are neither measured nor private."""
        measured = map(str, self.rows.columns[:n_features])
        return first_identifying(self.kept, {*measured, *self.private})


def first_identifying(kept: FileTable, hidden: set[str]) -> list[str]:
    """Return the first columns to carry over that are not hidden."""
    names = [*kept.index_columns, *map(str, kept.columns)]
    return [name for name in names if name not in hidden][:MAX_ID_COLUMNS]


def empty_section(model: Fitted, private: Sequence[str], why: str | None) -> dict[str, Any]:
    """Return the section of a summary about reasons, without any.

    Parameters
    ----------
    model : Fitted
    private : sequence of str
        Columns that are not shown.
    why : str, optional
        Why there are none.
    """
    return {
        "n_columns": model.n_features, "n_private_columns": len(private),
        "private_columns": list(private), "reason": why, "rows": [], "flagged_rows": 0,
        "top_columns": [],
    }  # fmt: skip


def reasons_file(explanation: Explanation, rows: Sequence[dict[str, Any]]) -> bytes:
    """Return a file of the reasons of rows: a line for each row and column.

    Parameters
    ----------
    explanation : Explanation
    rows : sequence of dict
        As the section of the summary has them.
    """
    n_columns = len(explanation.columns)
    lines = explanation.table(n_columns).reset_index(drop=True)
    names = pd.DataFrame([{name: row[name] for name in ("part", "row")} for row in rows])
    names["id_columns"] = [id_text(row["id_columns"]) for row in rows]
    names = names.loc[names.index.repeat(n_columns)].reset_index(drop=True)
    lines["column"] = lines["column"].map(str)
    for name in ("value", "nominal_value"):
        if lines[name].dtype == object:  # a column of a file has one type
            lines[name] = lines[name].map(_text, na_action="ignore")
    file = io.BytesIO()
    pd.concat([names, lines], axis=1).to_parquet(file, index=False)
    return file.getvalue()


def _row_sections(explanation: Explanation) -> Iterator[dict[str, Any]]:
    """Yield the reasons of each row for the summary."""
    lines = explanation.table(MAX_COLUMNS)[_OF_COLUMN]
    lines["column"] = lines["column"].map(str)
    for i in range(len(explanation.shares)):
        yield {
            "p_value": plain_value(explanation.p_values[i]),
            "statistic": plain_value(explanation.statistic[i]),
            "note": explanation.note(i),
            "columns": [
                {name: plain_value(value) for name, value in of_column.items()}
                for of_column in lines.loc[[i]].to_dict("records")
            ],
        }


def id_columns(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that identify a row, by column, for the summary."""
    return {column_label(name): plain_value(value) for name, value in kept.items()}


def column_label(name: str) -> str:
    """Return the name of a column to carry over: an index may have none."""
    found = _UNNAMED_INDEX.match(name)
    if found is None:
        return name
    return "index" if found[1] == "0" else f"index {found[1]}"


def plain_value(value: Any) -> Any:
    """Return a value of a table as JSON has it: a finite number, or a short text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = _text(value)
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text(value: Any) -> str:
    # A lone surrogate is text to Python, and to no file.
    return str(value).encode(errors="replace").decode()


# Reasons that an output has, or is to have


@redact_errors()
def explain_output(
    output: str | PathLike[str],
    top: int = 50,
    workers: AbstractContextManager[None] | None = None,
    confirm: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return the reasons for the most anomalous rows of an output, which it then has.

    A run gives those of 50 rows, or 200 where rows are scored against each other. For more,
    the model has to be saved, and the columns that are measured have to be in the output;
    computes then.

    Parameters
    ----------
    output : str or path
        Folder or fsspec URL that a run has written.
    top : int, default=50
        How many rows, at least 1.
    workers : context manager, optional
        Entered, once the output is locked, to compute inside; not entered where the
        output has the reasons. None: computes with the scheduler that is active.
    confirm : str or path, optional
        A new CSV file for a person to mark which of the rows are anomalies, also of those
        without reasons: ``row``, the number of the row in the input from 0; ``checksum``,
        of its measured columns; ``p_value``, ``id_columns``, ``reasons``, and an empty
        ``is_anomaly_confirmed``. `score_files` and fits leave out what is marked
        (``without_rows``). Reads the input of the run.
    storage_options : dict, optional
        How the URLs of output, model, input and list open: see `score_files`. Those of
        model and input are in the output. An output on this machine is taken for one of
        the user; one at a URL gets no keys for other storages than its own.

    Returns
    -------
    reasons : DataFrame
        A line for each row and column: part and row, the file and the place in it;
        id_columns, the first columns that were carried over, as a text; and what
        `LPE.explain` has.

    Raises
    ------
    FileNotFoundError
        If there is no finished run, or for ``confirm`` its input is gone.
    FileExistsError
        If ``confirm`` exists.
    ValueError
        If the reasons of so many rows cannot be worked out from the output; for ``confirm``
        if its input has changed, or would be given this file, too.
    """
    if type(top) is not int or top < 1:
        raise ValueError(f"top={top!r} must be a whole number of at least 1.")
    options = call_options(storage_options)
    # They also open what an output on this machine names.
    url = Url(fspath(output), options) if options else fspath(output)
    if confirm is not None:  # which takes what is here
        from lpe_dask.batch.confirmation_list import write_confirmation_list

        return write_confirmation_list(url, top, workers, with_options(confirm, options))
    if not has_explanations(url, top):
        with reserved_output(url) as lock, workers or nullcontext():
            work_out(url, read_summary(url), top, lock)
    return first_reasons(stored_reasons(url), top)


def first_reasons(reasons: pd.DataFrame | None, top: int) -> pd.DataFrame:
    """Return the reasons of the first rows."""
    assert reasons is not None
    number = reasons.groupby(["part", "row"], sort=False).ngroup()
    return reasons[number < top]


def has_explanations(output: str, top: int) -> bool:
    """Return whether an output has the reasons of so many rows, if it has so many rows."""
    summary = read_summary(output)
    reasons = stored_reasons(output)
    if summary["reasons"]["reason"] == ALL_PRIVATE:
        raise ValueError(f"no reasons of {output} can be shown: {ALL_PRIVATE}.")
    n_written = n_explainable(output, summary)
    if reasons is None:
        return False
    return reasons.groupby(["part", "row"]).ngroups >= min(top, n_written)


def n_explainable(output: str, summary: dict[str, Any]) -> int:
    """Return how many rows of an output have a p-value; ValueError for none."""
    n_rows = int(summary.get("written_rows", summary["rows"]) - summary["rows_nan"])
    if n_rows == 0:
        why = f"no row in {output} has a p-value"
        if summary["rows"] > summary["rows_nan"]:
            why = f"no row in {output} is flagged, and others were not written"
        raise ValueError(f"{why}: there is nothing to explain.")
    return n_rows


def stored_reasons(output: str) -> pd.DataFrame | None:
    """Return the reasons that an output has; None without any."""
    content = Folder(output).read(REASONS_NAME)
    return None if content is None else pd.read_parquet(io.BytesIO(content))


def work_out(url: str, summary: dict[str, Any], top: int, lock: Lock) -> None:
    """Write the reasons of so many rows into an output; computes."""
    fingerprint, path = read_fingerprint(url), summary["model"]
    if path is None or MASK in path or fingerprint is None:
        stored = stored_reasons(url)
        n_rows = 0 if stored is None else stored.groupby(["part", "row"]).ngroups
        raise ValueError(
            f"{url} has the reasons of {n_rows} rows, and its model was not saved, or at a "
            f"URL with a password. Lower top (--top), or run the job with a saved model "
            f"(--model)."
        )
    model = ModelFolder(sibling_url(url, path)).load()
    if model.source != fingerprint.settings["model"]:
        raise ValueError(
            f"the model at {path} is not the one that {url} was scored with. Lower top "
            f"(--top), or score the rows again."
        )
    table, frame = model.open_table(url, fingerprint.settings["columns"])
    names = table.columns[: table.columns.index(RESULT_COLUMNS[0])]
    if summary.get("output_rows") == "flagged":
        names.remove(ROW_NUMBER)
    kept = table.select(names)
    private = summary["reasons"]["private_columns"]
    scored = ExplanationInput(frame, kept, table.part_labels(), None, private)
    rows = top_rows(table, model.calibration.graph, top)
    _, file = scored.explain(model, rows, None)
    lock.verify()
    Folder(url).write(REASONS_NAME, file)


def top_rows(table: FileTable, graph: str, n_rows: int) -> pd.DataFrame:
    """Return the most anomalous rows of an output; computes."""
    look = partial(_top_of_part, graph=graph, n_rows=n_rows)
    of_parts = compute(*new_tasks("top", ((look, *of) for of in enumerate(table.parts))))
    return top_anomalies(pd.concat(of_parts, ignore_index=True), graph, n_rows)


# The function below runs inside tasks.


def _top_of_part(number: int, part: Any, *, graph: str, n_rows: int) -> pd.DataFrame:
    columns = part.read(list(RESULT_COLUMNS)).to_pandas()
    is_flagged = columns.pop(RESULT_COLUMNS[2]).fillna(False).astype(bool)
    places = np.arange(len(columns))
    columns = columns.astype(float).assign(part=number, place=places, row=places)
    columns["is_flagged"] = is_flagged
    return top_anomalies(columns, graph, n_rows)
