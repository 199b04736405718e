"""Write the rows of an output once more: to one file of CSV or of JSON lines.

    part-00000.parquet, ... --one task, some rows at a time--> OUT/_scores.csv

A task does it, as workers are near the output and see the parts, and no table passes
through the client. Each column of some rows becomes text by Arrow, with all digits; only
texts of JSON and nested values are made one by one. The name begins with an underscore, as
readers of Parquet folders would take the file for a part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.spreadsheet_text import without_formulas
from lpe_dask.batch.timing import Steps
from lpe_dask.storage import Folder, retried_until_visible
from lpe_dask.tasks import compute, new_tasks

#: Rows that are text at a time.
_BATCH_ROWS = 2**13

#: The type of all texts: one that no number of rows is too long for.
_TEXT = pa.large_string()

#: Powers of ten of the units of durations.
_EXPONENTS = {"s": 0, "ms": -3, "us": -6, "ns": -9}


@dataclass(frozen=True, slots=True)
class _Form:
    """A format: the text of values, and of rows.

    Attributes
    ----------
    name : str
        Of the file.
    missing, infinite : str
        What stands for a missing value, and for inf, as the replacement of a pattern.
    of_text, of_nested : callable
        Make values of arrays that are text, and JSON, of those.
    header : callable
        Returns what comes before the rows, by the names of the columns.
    row : callable
        Returns what comes before each value of a row and at its end, by the names.
    """

    name: str
    missing: str
    infinite: str
    of_text: Callable[[pa.Array], pa.Array]
    of_nested: Callable[[pa.Array], pa.Array]
    header: Callable[[list[str]], str]
    row: Callable[[list[str]], list[str]]


def names_of(kind: str) -> list[str]:
    """Return the names of the files that an output of a format has besides parts."""
    return [] if kind == "parquet" else [_FORMS[kind].name]


def write(folder: PartFolder, kind: str, steps: Steps) -> None:
    """Write the rows of all parts to one file, unless the format is "parquet"; computes."""
    if kind != "parquet":
        with steps.timed("export"):
            compute(*new_tasks("export", [(_write_file, folder, kind)]))


# The functions below run inside tasks.


@retried_until_visible  # other machines have written the parts
def _write_file(folder: PartFolder, kind: str) -> None:
    form = _FORMS[kind]
    with Folder(folder.url).atomic_write(form.name) as file:
        for number in range(folder.n_parts):
            with folder.open(number) as part:
                rows = pq.ParquetFile(part)
                if number == 0:
                    file.write(form.header(rows.schema_arrow.names).encode())
                for batch in rows.iter_batches(_BATCH_ROWS, use_threads=False):
                    file.write(b"".join(_lines(batch, form)))
            folder.lock.verify()


def _lines(batch: pa.RecordBatch, form: _Form) -> list[bytes]:
    """Return rows as text, each with the end of its line.

    As bytes: a Parquet file may have text that is no UTF-8, which a CSV then has, too.
    """
    *before, end = form.row(batch.schema.names)
    columns = [pc.fill_null(_texts(of, form), form.missing) for of in batch.columns]
    pieces = [of for pair in zip(before, columns, strict=True) for of in pair]
    lines: list[bytes] = _joined(*pieces, end).cast(pa.large_binary()).to_pylist()
    return lines


def _texts(column: pa.Array, form: _Form) -> pa.Array:
    """Return the values of a column as text; null for those that are missing."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _texts(column.storage, form)
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode(), form)
    if pa.types.is_nested(kind):
        return form.of_nested(_each(column, lambda value: _json(_plain(value))))
    if "string" in str(kind):  # also large ones, and views
        return form.of_text(column.cast(_TEXT))
    if "binary" in str(kind):
        return form.of_text(_each(column, _plain))
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return form.of_text(_iso(column))
    if pa.types.is_duration(kind):
        exponent = _EXPONENTS[kind.unit]
        seconds = column.cast(pa.int64())
        return _each(seconds, lambda value: str(Decimal(value).scaleb(exponent)))
    return _numbers(column, form)


def _numbers(column: pa.Array, form: _Form) -> pa.Array:
    """Return numbers and booleans as text, with all digits; null for NaN."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if not pa.types.is_floating(column.type):
        return column.cast(_TEXT)
    column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return pc.replace_substring_regex(column.cast(_TEXT), "^(-?)inf$", form.infinite)


def _iso(column: pa.Array) -> pa.Array:
    """Return dates and times as text of ISO 8601, in UTC (Z) where they have a zone.

    Others than UTC would need a database of zones on each machine.
    """
    kind, end = column.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column, end = column.cast(pa.int64()).cast(pa.timestamp(kind.unit)), "Z"
    # Not in what Arrow says of a time that is out of range, with its number.
    text = pc.replace_substring_regex(column.cast(_TEXT), r"^(\S*\d) (\d)", r"\1T\2")
    return _joined(text, end)


def _each(column: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    texts = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.array(texts, _TEXT)


def _plain(value: Any) -> Any:
    """Return a value of Arrow as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(of) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value).replace("inf", "Infinity")
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_text(texts: pa.Array) -> pa.Array:
    codes = texts.cast(pa.large_binary())
    return _each(codes, lambda value: _json(value.decode(errors="replace")))


def _csv_text(texts: pa.Array) -> pa.Array:
    """Return texts in quotes."""
    quoted = pc.replace_substring(without_formulas(texts), '"', '""')
    return _joined('"', quoted, '"')


def _joined(*pieces: Any) -> pa.Array:
    same = [pa.scalar(of, _TEXT) if isinstance(of, str) else of for of in pieces]
    return pc.binary_join_element_wise(*same, pa.scalar("", _TEXT))


def _csv_header(names: list[str]) -> str:
    return ",".join(_csv_text(pa.array(names, _TEXT)).to_pylist()) + "\n"


def _csv_row(names: list[str]) -> list[str]:
    return ["", *[","] * (len(names) - 1), "\n"]


def _json_row(names: list[str]) -> list[str]:
    keys = [f"{_json(name)}: " for name in names]
    return ["{" + keys[0], *(f", {key}" for key in keys[1:]), "}\n"]


_FORMS = {
    "csv": _Form(
        "_scores.csv", "", r"\1inf", _csv_text, _csv_text, _csv_header, _csv_row
    ),
    "jsonl": _Form(
        "_scores.jsonl", "null", r'"\1Infinity"', _json_text, lambda texts: texts,
        lambda names: "", _json_row,
    ),
}  # fmt: skip
