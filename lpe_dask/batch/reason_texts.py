"""What identifies an anomalous row, and the reasons for it, as short texts for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lpe_dask.storage import printable


def id_text(values: Mapping[str, Any]) -> str:
    """Return the values that identify a row, by column, as a text."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def reasons_text(of_row: pd.DataFrame) -> str:
    """Return the three columns that say most about a row, with their usual values.

    Parameters
    ----------
    of_row : DataFrame
        The lines of one row, as `explain_output` has them.
    """
    shown = of_row.head(3)
    texts = [
        f"{printable(str(line.column))}={_value(line.value)} ({line.share:.0%}, usual "
        f"{printable(str(line.usual))})"
        for line in shown.itertuples()
    ]
    if shown["share"].isna().any():
        texts = ["no shares: the distance is 0 or inf"]
    elif of_row.iloc[0].is_spread:
        texts.insert(0, "spread over many columns")
    return "; ".join(texts)


def _value(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    return f"{value:.15g}" if isinstance(value, float) else printable(str(value))[:40]
