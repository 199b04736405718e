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
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

import lpe_dask
from lpe_dask.calibration import P_VALUES
from lpe_dask.detector import LPE, measure_blocks
from lpe_dask.files import read_frame
from lpe_dask.inputs import check_numeric, select_columns, tasks_of_frame
from lpe_dask.literals import enter
from lpe_dask.parameters import check_parameters
from lpe_dask.resources import active_client

logger = logging.getLogger(__name__)

#: Columns that a run adds to those of the input.
RESULT_COLUMNS = ("p_value", "statistic", "is_anomaly")

#: Name of the file that a run writes last.
SUMMARY_NAME = "_summary.json"

#: Name of a file that is written and removed, to see that this is possible.
PROBE_NAME = ".part-probe.tmp"

#: Packages that the summary names the version of.
_PACKAGES = ("dask", "distributed", "numpy", "numba", "pandas", "pyarrow")

#: What to do about errors of `distributed`, which is not imported here, by their names.
_REMEDIES = {
    "KilledWorker": [
        "Workers that die have most often used up their memory: give each more "
        "(--memory-limit), or fewer threads."
    ]
}

#: Files of an output folder: parts, the summary, and what a killed run leaves of them.
_OWN_NAME = re.compile(r"part-\d{5,}\.parquet|_summary\.json|\.(part-|_summary).*\.tmp")


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
        with _reserved(self.output), _telling_input_from_run():
            self.model.fit(self.rows if self.nominal is None else self.nominal)
            rows = None if self.nominal is None else self.rows
            statistic = measure_blocks(self.model, rows)
        try:
            _empty_folder(self.output)
            writes = _part_writes(self.kept, statistic, self.model, self.output)
            counts = pd.DataFrame(dask.compute(*writes)).sum()
            _check_parts(self.output, len(writes))
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
    folder = _check_output(fspath(output), inputs, overwrite)
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


# The output folder


def _check_output(output: str, inputs: list[str], overwrite: bool) -> str:
    """Return the URL of the output folder; it does not exist, or may be replaced."""
    filesystem, root = fsspec.core.url_to_fs(output)
    for path in inputs:
        _check_apart(output, path)
    if filesystem.exists(root):
        if not overwrite:
            raise FileExistsError(
                f"the output {output} exists. Give another folder, or replace it "
                f"(overwrite=True, --overwrite)."
            )
        _check_ours(filesystem, root, output)
    url: str = filesystem.unstrip_protocol(root)
    return url


def _check_apart(output: str, data: str) -> None:
    """Raise if the output is the input, holds it, or lies in an input folder."""
    filesystem, root = fsspec.core.url_to_fs(output)
    other, path = fsspec.core.url_to_fs(data)
    if filesystem.protocol != other.protocol:
        return
    places = other.glob(path) if any(sign in path for sign in "*?[") else [path]
    ends = [_resolved(filesystem, name) + "/" for name in [root, *places]]
    for end in ends[1:]:
        if end.startswith(ends[0]) or ends[0].startswith(end):
            raise ValueError(
                f"the output {output} and the input {data} are in each other's way: one of "
                f"them is, or lies in, the other. Give an output folder of its own."
            )


def _resolved(filesystem: Any, path: str) -> str:
    return realpath(path) if "file" in filesystem.protocol else path.rstrip("/")


def _check_ours(filesystem: Any, root: str, output: str) -> None:
    """Raise if what is to be replaced is not the output of a run."""
    if not filesystem.isdir(root):
        raise FileExistsError(
            f"the output {output} is a file; a run writes a folder. Give another name."
        )
    names = [name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)]
    foreign = sorted(name for name in names if not _OWN_NAME.fullmatch(name))
    if not foreign and SUMMARY_NAME not in names:  # perhaps a run that was interrupted
        parts = [name for name in names if name.endswith(".parquet")]
        foreign = [name for name in parts[:1] if not _is_part(filesystem, f"{root}/{name}")]
    if foreign:
        raise FileExistsError(
            f"the output {output} holds files that no run wrote: {', '.join(foreign[:3])}. "
            f"Only the output of an earlier run is replaced. Give another folder, or move "
            f"those files away."
        )


def _is_part(filesystem: Any, path: str) -> bool:
    with filesystem.open(path) as file:
        try:
            names = pq.read_schema(file).names
        except pa.ArrowInvalid:
            return False
    return set(RESULT_COLUMNS) <= set(names)


@contextmanager
def _reserved(url: str) -> Iterator[None]:
    """Make the output folder before the work, and take it away if that comes to nothing."""
    filesystem, root = fsspec.core.url_to_fs(url)
    existed = filesystem.exists(root)
    try:
        filesystem.makedirs(root, exist_ok=True)
        with _whole_file(filesystem, root, PROBE_NAME) as file:
            file.write(b"")
        filesystem.rm_file(f"{root}/{PROBE_NAME}")
    except (OSError, NotImplementedError) as error:
        raise OSError(
            f"nothing can be written to the output {url}: {_brief(error)} Give a folder "
            f"that may be written to."
        ) from error
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(Exception):
                filesystem.rmdir(root)
        raise


def _empty_folder(url: str) -> None:
    """Remove what an earlier run left in the output folder, its summary first."""
    filesystem, root = fsspec.core.url_to_fs(url)
    names = [name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)]
    own = filter(_OWN_NAME.fullmatch, names)
    for name in sorted(own, key=lambda name: name != SUMMARY_NAME):
        filesystem.rm_file(f"{root}/{name}")


def _check_parts(url: str, n_parts: int) -> None:
    """Raise if the parts that workers wrote are not to be seen from here."""
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    names = {name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)}
    unseen = {_part_name(i, n_parts) for i in range(n_parts)} - names
    if unseen:
        raise FileNotFoundError(
            f"the workers wrote {n_parts} parts, but {len(unseen)} of them are not to be "
            f"seen from here in {url}. Give an output that this machine and all workers "
            f"share: a shared folder, or a URL such as s3://bucket/folder."
        )


@contextmanager
def _whole_file(filesystem: Any, folder: str, name: str) -> Iterator[Any]:
    """Give a file to write, which gets its name in ``folder`` only when it is complete."""
    temporary = f"{folder}/.{name}.{uuid4().hex}.tmp"
    try:
        with filesystem.open(temporary, "wb") as file:
            yield file
        filesystem.mv(temporary, f"{folder}/{name}")
    except BaseException:
        with suppress(Exception):
            filesystem.rm_file(temporary)
        raise


# Parts


def _part_name(number: int, n_parts: int) -> str:
    return f"part-{number:0{max(5, len(str(n_parts - 1)))}}.parquet"


def _part_writes(kept: Any, statistic: da.Array, model: LPE, url: str) -> list[Delayed]:
    """Return one task for each partition, which writes its part and returns its counts."""
    graph, keys = tasks_of_frame(kept)
    calibration = enter(model.calibration_, "lpe-shared")
    settings = (P_VALUES[model.graph], model.offset_, PartLayout.of(kept), url)
    name = f"lpe-write-{uuid4().hex}"
    tasks = {
        f"{name}-{i}": (
            _write_part,
            key,
            (statistic.name, i),
            calibration.key,
            *settings,
            _part_name(i, len(keys)),
        )
        for i, key in enumerate(keys)
    }
    whole = {**statistic.dask, **calibration.dask, **graph, **tasks}
    shared = HighLevelGraph.from_collections(name, whole)
    return [Delayed(key, shared, layer=name) for key in tasks]


@dataclass(frozen=True, slots=True)
class PartLayout:
    """What the parts have in common, so that they can be read as one table.

    A column that has missing values in one partition only, or other categories, would come
    out as another type there.

    Attributes
    ----------
    types : dict of str to pyarrow.DataType
        Types of the columns carried over, where they are known before reading.
    has_index : bool
        False where the index does nothing but count: each partition of a file begins again,
        and readers count the rows by themselves.
    """

    types: dict[str, pa.DataType]
    has_index: bool

    @classmethod
    def of(cls, kept: Any) -> PartLayout:
        """Return the layout of parts that carry over the columns of ``kept``."""
        meta = kept._meta
        schema = pa.Schema.from_pandas(meta, preserve_index=False)
        types = {field.name: field.type for field in schema if not _is_open(field.type)}
        counts = isinstance(meta.index, pd.RangeIndex) and meta.index.name is None
        return cls(types, has_index=not counts)

    def table(self, part: pd.DataFrame) -> pa.Table:
        """Return a partition as an Arrow table of these types."""
        table = pa.Table.from_pandas(part, preserve_index=self.has_index)
        for position, field in enumerate(table.schema):
            column = self._typed(table.column(position), field)
            table = table.set_column(position, field.name, column)
        return table

    def _typed(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        wanted = self.types.get(field.name, field.type)
        if pa.types.is_dictionary(wanted):
            if pa.types.is_null(wanted.value_type):  # no category here: taken for text
                wanted = pa.dictionary(pa.int32(), pa.string())
                return pa.chunked_array([pa.nulls(len(column), wanted)])
            wanted = pa.dictionary(pa.int32(), wanted.value_type, wanted.ordered)
        return column if wanted == field.type else column.cast(wanted)


def _is_open(arrow_type: pa.DataType) -> bool:
    return pa.types.is_null(arrow_type) or pa.types.is_dictionary(arrow_type)


# The functions below run inside tasks.


def _write_part(
    kept: pd.DataFrame,
    statistic: NDArray[np.float64],
    calibration: NDArray[np.float64],
    to_p_values: Callable[..., NDArray[np.float64]],
    offset: float,
    layout: PartLayout,
    url: str,
    name: str,
) -> dict[str, int]:
    p_value = to_p_values(statistic, calibration)
    is_nan = np.isnan(p_value)
    is_anomaly = pd.arrays.BooleanArray(p_value < offset, is_nan)
    results = (p_value, statistic, is_anomaly)
    columns: dict[str, Any] = dict(zip(RESULT_COLUMNS, results, strict=True))
    filesystem, folder = fsspec.core.url_to_fs(url)
    with _whole_file(filesystem, folder, name) as file:
        pq.write_table(layout.table(kept.assign(**columns)), file)
    return {
        "rows": len(kept),
        "rows_nan": int(is_nan.sum()),
        "flagged": int(np.sum(p_value < offset)),
    }


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


def _write_summary(summary: dict[str, Any], url: str) -> None:
    filesystem, folder = fsspec.core.url_to_fs(url)
    text = json.dumps(summary, indent=2, default=_plain)
    with _whole_file(filesystem, folder, SUMMARY_NAME) as file:
        file.write(text.encode() + b"\n")


def _plain(value: Any) -> Any:
    """Return a NumPy array or number as what JSON knows."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in _PACKAGES}
    own = {"python": platform.python_version(), "lpe_dask": lpe_dask.__version__}
    return own | packages


def peak_worker_bytes() -> int | None:
    """Return the most memory that a worker has had in use so far; None if unknown.

    Of the workers of the active client, or else of this process.
    """
    client = active_client()
    try:
        if client is None:
            return peak_process_bytes()
        return max(client.run(peak_process_bytes).values(), default=None)
    except Exception as error:  # not worth a run that is complete
        logger.info("the peak memory of the workers is unknown: %r", error)
        return None


def peak_process_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Return the largest resident size that this process has had.

    On Linux from ``status``: ``ru_maxrss`` would also count the program that started it.
    """
    try:
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    except OSError:
        peak = None
    if peak is not None:
        return int(peak.group(1)) * 1024
    import resource  # not on Windows

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


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
        raise RunError(f"the run stopped while it fitted: {_brief(error)}") from error


def _what_stopped(error: Exception, url: str) -> str:
    return (
        f"the run stopped while it scored: {_brief(error)} The parts that are in {url} are "
        f"whole, but not all are there; a new run may replace them (overwrite=True, "
        f"--overwrite)."
    )


def _brief(error: Exception) -> str:
    name, text = type(error).__name__, " ".join(str(error).split()) or "no more is known"
    return " ".join([f"{name}: {text.rstrip('.')}.", *_REMEDIES.get(name, [])])
