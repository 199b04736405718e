"""Show the reasons for the most anomalous rows of an output, or work out those of more."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any

import numpy as np
import pandas as pd

from lpe_dask.batch.fingerprint import read_fingerprint
from lpe_dask.batch.inputs import tables_to_score
from lpe_dask.batch.output import REASONS_NAME, RESULT_COLUMNS, reserved_output
from lpe_dask.batch.part_stats import top_anomalies
from lpe_dask.batch.parts import Q_VALUE
from lpe_dask.batch.reasons import ALL_PRIVATE, ExplanationInput
from lpe_dask.batch.summary import read_summary
from lpe_dask.model import Fitted, load_fitted
from lpe_dask.pvalues import threshold
from lpe_dask.storage import MASK, Folder, Lock, check_token, printable, redact_errors
from lpe_dask.tables import FileTable, path_of
from lpe_dask.tasks import compute, new_tasks


@redact_errors()
def explain_output(output: str | PathLike[str], top: int = 50) -> pd.DataFrame:
    """Return the reasons for the most anomalous rows of an output, which it then has.

    A run gives those of 50 rows. For more, the model has to be saved, and the columns that
    are measured have to be in the output; computes then, with the scheduler that is active.

    Parameters
    ----------
    output : str or path
        Folder or fsspec URL that a run has written.
    top : int, default=50
        How many rows, at least 1.

    Returns
    -------
    reasons : DataFrame
        A line for each row and column: part and row, the file and the place in it; kept,
        the first columns that were carried over, as a text; and what `LPE.explain` tells.

    Raises
    ------
    FileNotFoundError
        If there is no finished run.
    ValueError
        If the reasons of so many rows cannot be worked out from the output.
    """
    if type(top) is not int or top < 1:
        raise ValueError(f"top={top!r} must be a whole number of at least 1.")
    url = fspath(output)
    if not knows_reasons(url, top):
        with reserved_output(url) as lock:
            _work_out(url, read_summary(url), top, lock)
    reasons = _stored(url)
    assert reasons is not None
    number = reasons.groupby(["part", "row"], sort=False).ngroup()
    return reasons[number < top]


def knows_reasons(output: str, top: int) -> bool:
    """Return whether an output has the reasons of so many rows, if it has so many rows."""
    summary = read_summary(output)
    reasons = _stored(output)
    if summary["reasons"]["reason"] == ALL_PRIVATE:
        raise ValueError(f"no reasons of {output} can be shown: {ALL_PRIVATE}.")
    n_measured = summary["rows"] - summary["rows_nan"]
    if n_measured == 0:
        raise ValueError(f"no row of {output} has a p-value: there is nothing to explain.")
    if reasons is None:
        return False
    return reasons.groupby(["part", "row"]).ngroups >= min(top, n_measured)


def _stored(output: str) -> pd.DataFrame | None:
    content = Folder(output).read(REASONS_NAME)
    return None if content is None else pd.read_parquet(io.BytesIO(content))


def reason_lines(reasons: pd.DataFrame) -> str:
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
        place = (part, row, printable(str(first.kept)))
        lines.append((*place, first.p_value, first.statistic, "; ".join(texts)))
    names = ["part", "row", "kept", "p_value", "statistic", "reasons"]
    table = pd.DataFrame(lines, columns=names)
    if not table["kept"].any():  # nothing was carried over
        del table["kept"]
    return table.to_string(index=False, justify="left", float_format="{:.4g}".format)


def _value(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else printable(str(value))[:40]


def _work_out(url: str, summary: dict[str, Any], top: int, lock: Lock) -> None:
    """Write the reasons of so many rows into an output; computes."""
    fingerprint, path = read_fingerprint(url), summary["model"]
    if path is None or MASK in path or fingerprint is None:
        raise ValueError(
            f"{url} has the reasons of {len(summary['reasons']['rows'])} rows, and its "
            f"model was not saved, or at a URL with a password. Lower top (--top), or run "
            f"the job with a saved model (--model)."
        )
    model = load_fitted(path)
    if model.source != fingerprint.settings["model"]:
        raise ValueError(
            f"the model at {path} is not the one that {url} was scored with. Lower top "
            f"(--top), or score the rows again."
        )
    table, rows = tables_to_score(model, url, fingerprint.settings["columns"])
    level = summary["alpha"] if summary["fdr"] is None else summary["fdr_cut_off"]
    model = replace(model, offset=0.0 if level is None else threshold(level))
    hidden = {*RESULT_COLUMNS, Q_VALUE}
    kept = table.select([name for name in table.columns if name not in hidden])
    private = summary["reasons"]["private_columns"]
    scored = ExplanationInput(rows, kept, labels_of(table), None, private)
    _, file = scored.explain(model, _top_anomalies(table, model, top), None)
    check_token(lock.url, lock.token)
    Folder(url).write(REASONS_NAME, file)


def labels_of(table: FileTable) -> list[tuple[str, int]]:
    """Return the file of each partition, and which of its rows comes first."""
    starts: dict[str, int] = {}
    for part in table.parts:
        starts.setdefault(part.name, part.first)
    return [
        (path_of(part.name).rsplit("/", 1)[-1], part.first - starts[part.name])
        for part in table.parts
    ]


def _top_anomalies(table: FileTable, model: Fitted, n_rows: int) -> pd.DataFrame:
    """Return the most anomalous rows of an output; computes."""
    graph = model.calibration.graph
    look = partial(_top_of_part, graph=graph, n_rows=n_rows)
    of_parts = compute(*new_tasks("top", ((look, *of) for of in enumerate(table.parts))))
    return top_anomalies(pd.concat(of_parts, ignore_index=True), graph, n_rows)


# The function below runs inside tasks.


def _top_of_part(number: int, part: Any, *, graph: str, n_rows: int) -> pd.DataFrame:
    columns = part.read(list(RESULT_COLUMNS[:2])).to_pandas()
    columns = columns.astype(float).assign(part=number, place=np.arange(len(columns)))
    return top_anomalies(columns, graph, n_rows)
