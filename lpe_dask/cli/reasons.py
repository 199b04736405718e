"""The reasons for anomalous rows, as a command prints them."""

from __future__ import annotations

import pandas as pd

from lpe_dask.batch import reasons_text
from lpe_dask.storage import printable


def format_reasons(reasons: pd.DataFrame) -> str:
    """Return reasons as a table: a line for each row, with its first three columns."""
    lines = []
    for (part, row), of_row in reasons.groupby(["part", "row"], sort=False):
        first = of_row.iloc[0]
        place = (part, row, printable(str(first.id_columns)))
        lines.append((*place, first.p_value, first.statistic, reasons_text(of_row)))
    names = ["part", "row", "id_columns", "p_value", "statistic", "reasons"]
    table = pd.DataFrame(lines, columns=names)
    if not table["id_columns"].any():  # nothing was carried over
        del table["id_columns"]
    return table.to_string(index=False, justify="left", float_format="{:.4g}".format)


def list_text(file: str) -> str:
    """Return what to do with the list of rows that was written to a file."""
    return (
        f"the rows are in {file}: mark the anomalies (x in is_anomaly_confirmed), and "
        f"leave them out of a fit: lpe-dask fit NOMINAL --model MODEL --without-rows {file}"
    )
