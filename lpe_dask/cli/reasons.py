"""The reasons for anomalous rows, as a command prints them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lpe_dask.storage import printable


def format_reasons(reasons: pd.DataFrame) -> str:
    """Return reasons as a table: a line for each row, with its first three columns."""
    lines = []
    for (part, row), of_row in reasons.groupby(["part", "row"], sort=False):
        first, shown = of_row.iloc[0], of_row.head(3)
        texts = [
            f"{printable(str(line.column))}={_value(line.value)} ({line.share:.0%}, usual "
            f"{printable(str(line.usual))})"
            for line in shown.itertuples()
        ]
        if shown["share"].isna().any():
            texts = ["no shares: the distance is 0 or inf"]
        elif first.is_spread:
            texts.insert(0, "spread over many columns")
        place = (part, row, printable(str(first.id_columns)))
        lines.append((*place, first.p_value, first.statistic, "; ".join(texts)))
    names = ["part", "row", "id_columns", "p_value", "statistic", "reasons"]
    table = pd.DataFrame(lines, columns=names)
    if not table["id_columns"].any():  # nothing was carried over
        del table["id_columns"]
    return table.to_string(index=False, justify="left", float_format="{:.4g}".format)


def _value(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    return f"{value:.15g}" if isinstance(value, float) else printable(str(value))[:40]
