"""Give reasons for the most anomalous rows of an output, from the rows that were scored.

places --one task a partition--> rows, columns to carry over
       --explain--> OUT/_reasons.pqt, and the section of the summary
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.batch.taken import take
from lpe_dask.model import Explanation, Fitted, explain_rows, reference_numbers
from lpe_dask.tables import FileTable, tasks_of_frame
from lpe_dask.tasks import compute, new_tasks

#: Columns of a row in the summary, and characters of a text there.
MOST_COLUMNS, MOST_CHARACTERS = 20, 200

#: What the summary says of such a column.
_OF_COLUMN = ["column", "value", "usual", "nominal_value", "share", "typical_share"]

#: Why there are no reasons where nothing may be shown.
ALL_PRIVATE = "all measured columns are private"

#: What pandas calls the levels of an index without names, in files.
_UNNAMED_INDEX = re.compile(r"^__index_level_(\d+)__$")

#: Columns to carry over that tell which row it is, in the summary.
MOST_KEPT = 3


@dataclass(frozen=True, slots=True)
class ExplanationInput:
    """Rows that were scored, and where they are.

    Attributes
    ----------
    rows : dask DataFrame
        The columns to measure.
    kept : FileTable
        The columns to carry over, in the same partitions.
    labels : sequence of tuple
        What the partitions are in the output: the name of a file, and which of its rows is
        the first one.
    sizes : sequence of int, optional
        Rows of the parts, where the rows are the nominal ones, too; else None.
    private : sequence of str
        Columns that are not shown.
    """

    rows: Any
    kept: FileTable
    labels: Sequence[tuple[str, int]]
    sizes: Sequence[int] | None
    private: Sequence[str]

    def explain(
        self, model: Fitted, top: pd.DataFrame, q_values: NDArray[np.float64] | None
    ) -> tuple[dict[str, Any], bytes]:
        """Return the reasons of some rows for the summary, and for a file; computes.

        Parameters
        ----------
        model : Fitted
            With the offset that decides.
        top : DataFrame of n rows
            As `top_anomalies` gives them.
        q_values : ndarray of shape (n,), optional
        """
        values, kept = self._select(top, model.minima.places)
        parts, places = top["part"].to_numpy(), top["place"].to_numpy()
        numbers = None
        if self.sizes is not None:
            numbers = reference_numbers(model, np.cumsum([0, *self.sizes])[parts] + places)
        names = list(self.rows.columns)
        hidden = np.isin(list(map(str, names)), self.private)
        known = top["p_value"].to_numpy(), top["statistic"].to_numpy()
        explanation = explain_rows(model, values, known, numbers, hidden, names)
        is_flagged = known[0] < model.offset
        rows = [
            {
                "part": self.labels[part][0], "row": self.labels[part][1] + int(place),
                "kept": {_label(k): _plain(value) for k, value in kept[i].items()},
                "q_value": None if q_values is None else _plain(q_values[i]),
                "is_anomaly": bool(is_flagged[i]),
                **of_row,
            }
            for i, (part, place, of_row) in enumerate(
                zip(parts, places, _row_sections(explanation), strict=True)
            )
        ]  # fmt: skip
        first = Counter(
            row["columns"][0]["column"]
            for row in rows
            if row["is_anomaly"] and row["columns"] and row["note"] is None
        )
        section = no_reasons(model, self.private, None) | {
            "rows": rows,
            "flagged_rows": int(is_flagged.sum()),
            "first_reasons": [
                {"column": name, "rows": n} for name, n in first.most_common()
            ],
        }
        return section, reasons_file(explanation, rows)

    def _select(
        self, top: pd.DataFrame, exact: Sequence[int]
    ) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
        """Return the rows and what tells which they are, in the order of the places.

        Columns at the places in ``exact`` are objects: no partition makes floats of others.
        """
        keys, frame = tasks_of_frame(self.rows)
        names = self._telling_columns()
        chosen = dict(iter(top.groupby("part")["place"]))
        tasks = (
            (take, keys[i], self.kept.parts[i], places.to_numpy(), names)
            for i, places in chosen.items()
        )
        frames, lists = zip(*compute(*new_tasks("take", tasks, [frame])), strict=True)
        objects = dict.fromkeys(self.rows.columns[list(exact)], object)
        values = pd.concat([of.astype(objects) for of in frames], ignore_index=True)
        kept = [*chain(*lists)]
        order = np.argsort(np.concatenate([places.index for places in chosen.values()]))
        return values.iloc[order].reset_index(drop=True), [kept[i] for i in order]

    def _telling_columns(self) -> list[str]:
        """Return the first columns to carry over that are neither measured nor private."""
        measured = {*map(str, self.rows.columns), *self.private}
        names = [*self.kept.index_columns, *map(str, self.kept.columns)]
        return [name for name in names if name not in measured][:MOST_KEPT]


def no_reasons(model: Fitted, private: Sequence[str], why: str | None) -> dict[str, Any]:
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
        "n_columns": model.n_features, "private": len(private),
        "private_columns": list(private), "reason": why, "rows": [], "flagged_rows": 0,
        "first_reasons": [],
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
    names["kept"] = [", ".join(f"{k}={v}" for k, v in row["kept"].items()) for row in rows]
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
    lines = explanation.table(MOST_COLUMNS)[_OF_COLUMN]
    lines["column"] = lines["column"].map(str)
    for i in range(len(explanation.shares)):
        note = None
        if np.isnan(explanation.shares[i]).any():
            note = f"no shares: the distance is {explanation.distances[i]:g}"
        elif explanation.is_spread[i]:
            note = "spread over many columns"
        yield {
            "p_value": _plain(explanation.p_values[i]),
            "statistic": _plain(explanation.statistic[i]),
            "note": note,
            "columns": [
                {name: _plain(value) for name, value in of_column.items()}
                for of_column in lines.loc[[i]].to_dict("records")
            ],
        }


def _label(name: str) -> str:
    """Return what to call a column to carry over: an index without a name has none."""
    found = _UNNAMED_INDEX.match(name)
    if found is None:
        return name
    return "index" if found[1] == "0" else f"index {found[1]}"


def _plain(value: Any) -> Any:
    """Return a value of a table as JSON has it: a finite number, or a short text."""
    if value is None or value is pd.NA:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = _text(value)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[: MOST_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text(value: Any) -> str:
    # A lone surrogate is text to Python, and to no file.
    return str(value).encode(errors="replace").decode()
