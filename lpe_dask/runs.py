"""Score a table from files to files, as one run.

    DATA, NOMINAL --read--> frames --fit, measure--> statistic, p-value      (lazy)
    one task a partition --write--> OUT/part-00000.parquet ... --> OUT/_summary.json

A part is written under another name and then moved, and the summary comes last: whatever is
visible in OUT is whole. No table passes through the client.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from os import PathLike, fspath
from typing import Any

import dask
import fsspec
import pandas as pd

import lpe_dask
from lpe_dask.calibration import BAND_LEVEL, band_half_width
from lpe_dask.detector import LPE, measure_blocks
from lpe_dask.files import read_frame
from lpe_dask.inputs import check_numeric, select_columns
from lpe_dask.messages import brief
from lpe_dask.outputs import (
    RESULT_COLUMNS,
    SUMMARY_NAME,
    check_output,
    check_parts,
    empty_folder,
    part_writes,
    reserved,
    whole_file,
)
from lpe_dask.parameters import check_parameters
from lpe_dask.resources import peak_worker_bytes

logger = logging.getLogger(__name__)

#: Packages that the summary names the version of.
_PACKAGES = ("dask", "distributed", "numpy", "numba", "pandas", "pyarrow")


class RunError(RuntimeError):
    """A run that failed after its tasks had started, rather than on what it was given."""


def score_table(
    data: str | PathLike[str],
    output: str | PathLike[str],
    *,
    nominal: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    overwrite: bool = False,
    **arguments: Any,
) -> dict[str, Any]:
    """Score the rows of a table in files, write them with their p-values, return a summary.

    Computes, with the scheduler that is active.

    Parameters
    ----------
    data : str or path
        Rows to score: Parquet or CSV; file, folder or glob; local or an fsspec URL.
    output : str or path
        Folder to make, one that all workers see: ``part-00000.parquet`` and so on in input
        order, and ``_summary.json``.
    nominal : str or path, optional
        Nominal rows, as ``data``. None: each row is scored against all others.
    columns : sequence of str, optional
        Columns to measure; None: all columns of the nominal rows.
    keep : sequence of str, optional
        Columns of ``data`` to carry over; None: all.
    overwrite : bool, default=False
        Replace the output of an earlier run, once the nominal rows are fitted.
    **arguments
        Of `LPE`.

    Returns
    -------
    summary : dict
        What ``_summary.json`` holds: rows, rows_nan, flagged, flagged_share and so on.

    Raises
    ------
    ValueError, TypeError, OSError
        For what was given: files, columns, parameters, rows, the output folder.
    MemoryError
        If the nominal rows do not fit the workers.
    RunError
        If the run failed after that; finished parts stay.
    """
    run = prepare_run(
        data,
        output,
        nominal=nominal,
        columns=columns,
        keep=keep,
        overwrite=overwrite,
        **arguments,
    )
    return run.execute()


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose arguments, files and columns have been checked; nothing is computed yet.

    Attributes
    ----------
    model : LPE
        Not fitted.
    nominal : dask DataFrame, optional
        The columns to measure of the nominal rows; None: those of ``rows``.
    rows : dask DataFrame
        The columns to measure of the rows to score.
    kept : dask DataFrame
        The columns to carry over, in the same partitions.
    output : str
        URL of the output folder.
    """

    model: LPE
    nominal: Any | None
    rows: Any
    kept: Any
    output: str

    def execute(self) -> dict[str, Any]:
        """Fit, measure and write, and return the summary; raises as `score_table`."""
        began = time.perf_counter()
        with reserved(self.output), _telling_input_from_run():
            self.model.fit(self.rows if self.nominal is None else self.nominal)
            rows = None if self.nominal is None else self.rows
            statistic, p_values = measure_blocks(self.model, rows)
        try:
            empty_folder(self.output)
            offset = self.model.offset_
            writes = part_writes(self.kept, statistic, p_values, offset, self.output)
            counts = pd.DataFrame(dask.compute(*writes)).sum()
            check_parts(self.output, len(writes))
            summary = _summary(self.model, counts, time.perf_counter() - began)
            _write_summary(summary, self.output)
        except Exception as error:
            raise RunError(_what_stopped(error, self.output)) from error
        return summary


def prepare_run(
    data: str | PathLike[str],
    output: str | PathLike[str],
    *,
    nominal: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    overwrite: bool = False,
    **arguments: Any,
) -> Run:
    """Return the run of `score_table`, checked as far as that goes without reading rows.

    Nothing is computed and nothing written, so it needs no workers.
    """
    model = LPE(**arguments)
    check_parameters(model.get_params(deep=False))
    inputs = [fspath(path) for path in (data, nominal) if path is not None]
    folder = check_output(fspath(output), inputs, overwrite)
    reference = None
    if nominal is not None:
        reference = _measured(nominal, read_frame(nominal, columns), columns)
        columns = list(reference.columns)
    frame = read_frame(data, columns)
    rows = _measured(data, frame, columns)
    return Run(model, reference, rows, _kept(data, frame, keep), folder)


def _measured(path: str | PathLike[str], frame: Any, columns: Sequence[str] | None) -> Any:
    """Return the columns to measure, which are numbers."""
    try:
        if columns is not None:
            frame = select_columns(frame, columns)
        if len(frame.columns) == 0:
            raise ValueError("no columns to measure. Name some (columns=, --columns).")
        check_numeric(frame)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{fspath(path)}: {error}") from error
    return frame


def _kept(path: str | PathLike[str], frame: Any, keep: Sequence[str] | None) -> Any:
    """Return the columns to carry over, none of which hides a result."""
    names = list(frame.columns if keep is None else dict.fromkeys(keep))
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(
            f"{fspath(path)} has no columns {missing} to keep, but {list(frame.columns)}. "
            f"Name some of these (keep=, --keep)."
        )
    hidden = [name for name in RESULT_COLUMNS if name in [*names, frame.index.name]]
    if hidden:
        raise ValueError(
            f"{fspath(path)} has {hidden} already, but that is what the output calls its "
            f"results ({', '.join(RESULT_COLUMNS)}). Name the columns to carry over "
            f"without them (keep=, --keep), or rename them in the input."
        )
    return frame[names]


# The summary


def _summary(model: LPE, counts: Any, seconds: float) -> dict[str, Any]:
    rows, rows_nan, flagged = (
        int(counts[name]) for name in ("rows", "rows_nan", "flagged")
    )
    measured = rows - rows_nan
    return {
        "rows": rows,
        "rows_nan": rows_nan,
        "nominal_rows": model.n_samples_,
        "dropped_rows": model.n_dropped_,
        "calibration_rows": len(model.calibration_),
        "calibration_band": _calibration_band(model),
        "flagged": flagged,
        "flagged_share": flagged / measured if measured else None,
        "alpha": model.alpha,
        "fdr": None,
        "parameters": model.get_params(deep=False),
        "n_neighbors_": model.n_neighbors_,
        "radius_": model.radius_,
        "seconds": round(seconds, 3),
        "peak_worker_bytes": peak_worker_bytes(),
        "versions": _versions(),
    }


def _calibration_band(model: LPE) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for.
    """
    n_measured = len(model.calibration_)
    if model.calibration != "loo" or n_measured == model.n_samples_:
        return None
    return {"level": BAND_LEVEL, "half_width": band_half_width(n_measured)}


def _write_summary(summary: dict[str, Any], url: str) -> None:
    filesystem, folder = fsspec.core.url_to_fs(url)
    text = json.dumps(summary, indent=2, default=_plain)
    with whole_file(filesystem, folder, SUMMARY_NAME) as file:
        file.write(text.encode() + b"\n")


def _plain(value: Any) -> Any:
    """Return a NumPy array or number as what JSON knows."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in _PACKAGES}
    own = {"python": platform.python_version(), "lpe_dask": lpe_dask.__version__}
    return own | packages


# Errors


@contextmanager
def _telling_input_from_run() -> Iterator[None]:
    """Let errors about what was given pass; anything else is a `RunError`."""
    try:
        yield
    except (ValueError, TypeError):
        raise
    except Exception as error:
        if type(error) is MemoryError:  # of a plan; that of an allocation is a subclass
            raise
        raise RunError(f"the run stopped while it fitted: {brief(error)}") from error


def _what_stopped(error: Exception, url: str) -> str:
    return (
        f"the run stopped while it scored: {brief(error)} The parts that are in {url} are "
        f"whole, but not all are there; a new run may replace them (overwrite=True, "
        f"--overwrite)."
    )
