"""Find out when rows were: in a column of times that is carried over, or of such texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa

from lpe_dask.tables import FileTable

#: Columns of times, and of text, that are tried at most.
_MAX_TIMES, _MAX_TEXTS = 3, 5


def possible_times(
    kept: FileTable, measured: Collection[str], private: Collection[str]
) -> list[str]:
    """Return the first columns of times, and then the first columns of text.

    Parameters
    ----------
    kept : FileTable
        The columns to carry over.
    measured : collection of str
        Columns of which none of text is taken.
    private : collection of str
        Columns none of which is taken.
    """
    times, texts = [], []
    for name in [*kept.index_columns, *map(str, kept.columns)]:
        kind = kept.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if name in private:
            continue
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            times.append(name)
        elif name not in measured and (
            pa.types.is_string(kind) or pa.types.is_large_string(kind)
        ):
            texts.append(name)
    return times[:_MAX_TIMES] + texts[:_MAX_TEXTS]


def times_of(
    rows: Sequence[dict[str, Any]], names: Iterable[str]
) -> tuple[str | None, list[Any]]:
    """Return the first column all of whose values are times, or missing, and these values.

    Texts are times in a form of ISO 8601 with hyphens.
    """
    for name in names:
        try:
            times = [_time(row[name]) for row in rows]
            max(time for time in times if time is not None)  # of one kind, and not empty
        except (ValueError, TypeError):
            continue
        return name, times
    return None, [None] * len(rows)


def time_span(times: Iterable[Any]) -> dict[str, str | None]:
    """Return the first and the last time, as texts of ISO 8601, and those of most rows.

    Without a tenth at either end: false alarms are at any time.
    """
    known = sorted(time for time in times if time is not None)
    n_cut, names = len(known) // 10, ("first", "most_first", "most_last", "last")
    places = (0, n_cut, -1 - n_cut, -1) if known else ()
    return dict.fromkeys(names) | {
        name: known[place].isoformat() for name, place in zip(names, places, strict=False)
    }


def _time(value: Any) -> Any:
    """Return a time; None if it is missing. Raises ValueError for other texts."""
    if not isinstance(value, str):
        return None if value is None or value is pd.NaT else value
    if not value.strip():
        return None
    if value[4:5] != "-":  # eight digits may be any number
        raise ValueError(value)
    return datetime.fromisoformat(value)
