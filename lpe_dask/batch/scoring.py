"""Score a table from files to files, as one run that can be interrupted.

    DATA, NOMINAL --read--> frames --fit or load, measure--> statistic, p-value      (lazy)
    one task a partition --write--> OUT/part-00000.parquet ... --> OUT/_summary.json

A part is written under another name and then moved, and the summary comes last: whatever is
visible in OUT is whole, and a run that was interrupted goes on with the parts that are not
there yet. No table passes through the client.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from os import PathLike, fspath
from typing import Any

import dask
import dask.array as da
import fsspec
from dask.delayed import Delayed

from lpe_dask.batch.fingerprint import MADE_FROM, SUMMARY_NAME, RunRecord, read_record
from lpe_dask.batch.fit import (
    Expect,
    FitRun,
    RunError,
    check_unchanged,
    ignore,
    measured_columns,
    prepare_fit,
    takes_loo,
    telling_input_from_run,
)
from lpe_dask.batch.output import (
    check_output,
    check_parts,
    check_replaceable,
    is_begun,
    remove_fits,
    remove_leftovers,
    remove_output,
    reserved,
    unseen_parts,
)
from lpe_dask.batch.parts import (
    PART_COUNTS,
    Q_VALUE,
    RESULT_COLUMNS,
    PartFolder,
    decision_writes,
    part_writes,
    undecided_p_values,
)
from lpe_dask.model import Fitted, load_fitted
from lpe_dask.pvalues import (
    BAND_LEVEL,
    COUNTS_ITSELF,
    Adjustment,
    adjustment,
    band_half_width,
    check_level,
    discovery_cut_off,
    doubt_about_rate,
    threshold,
)
from lpe_dask.storage import (
    Lock,
    brief,
    check_token,
    package_versions,
    plain,
    retried,
    whole_file,
)
from lpe_dask.tables import (
    FileTable,
    Paths,
    TableError,
    as_given,
    count_rows,
    open_table,
    paths_in,
    rows_of_partitions,
    shown_paths,
    stamp_files,
)
from lpe_dask.tasks import peak_worker_bytes

logger = logging.getLogger(__name__)

#: Packages that the summary names the version of.
_PACKAGES = ("lpe_dask", "dask", "distributed", "numpy", "numba", "pandas", "pyarrow")


def score_files(
    data: Paths,
    output: str | PathLike[str],
    *,
    nominal: Paths | None = None,
    model: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    alpha: float | None = None,
    fdr: float | None = None,
    overwrite: bool = False,
    check_calibration: bool = False,
    **arguments: Any,
) -> dict[str, Any]:
    """Score the rows of a table in files, write them with their p-values, return a summary.

    What ``lpe-dask score`` does. Computes, with the active scheduler. A run that was
    interrupted is taken up by the next one with the same files and arguments.

    Parameters
    ----------
    data : str or path, or a sequence of them
        Rows to score: Parquet or CSV; file, folder or glob; local or an fsspec URL.
    output : str or path
        Folder to make, one that all workers see: ``part-00000.parquet`` and so on in input
        order, and ``_summary.json``.
    nominal : as ``data``, optional
        Nominal rows. None, without ``model``: each row is scored against all others.
    model : str or path, optional
        Folder of a model that `LPE.save` has written, instead of ``nominal``.
    columns : sequence of str, optional
        Columns to measure; None: all columns of the nominal rows, or those of the model.
    keep : sequence of str, optional
        Columns of ``data`` to carry over; None: all.
    alpha : float, optional
        False-alarm level of ``is_anomaly``. None: 0.05, or that of the model.
    fdr : float, optional
        False discovery rate of ``is_anomaly``, instead of alpha: see
        `false_discovery_control`. Rows then have a ``q_value``, too.
    overwrite : bool, default=False
        Replace the output of an earlier run, once the nominal rows are fitted.
    check_calibration : bool, default=False
        Judge the model by rows that are held out: see `LPE.check_calibration`.
    **arguments
        Of `LPE`; none with ``model``.

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
    RuntimeError
        If the run failed after that; finished parts stay.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pandas as pd
    >>> import lpe_dask
    >>> folder = tempfile.mkdtemp()
    >>> rng = np.random.default_rng(0)
    >>> nominal = pd.DataFrame(rng.standard_normal((2000, 2)), columns=["speed", "load"])
    >>> nominal.to_parquet(f"{folder}/nominal.parquet")
    >>> rows = pd.DataFrame({"speed": [0.1, 6.0], "load": [0.3, 6.0], "id": ["a", "b"]})
    >>> rows.to_parquet(f"{folder}/rows.parquet")
    >>> summary = lpe_dask.score_files(
    ...     f"{folder}/rows.parquet", f"{folder}/scored",
    ...     nominal=f"{folder}/nominal.parquet", scale="standard", alpha=0.01,
    ... )
    >>> summary["rows"], summary["flagged"]
    (2, 1)
    >>> pd.read_parquet(f"{folder}/scored")[["id", "p_value", "is_anomaly"]]
      id  p_value  is_anomaly
    0  a    0.907       False
    1  b      0.0        True
    """
    run = prepare_run(
        data,
        output,
        nominal=nominal,
        model=model,
        columns=columns,
        keep=keep,
        alpha=alpha,
        fdr=fdr,
        overwrite=overwrite,
        check_calibration=check_calibration,
        **arguments,
    )
    run.check_not_finished()
    with run.reserved() as lock:
        return run.execute(lock)


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose arguments, files and columns have been checked; nothing is computed yet.

    Attributes
    ----------
    model : Fitted or FitRun
        Loaded, or yet to be fitted.
    rows : dask DataFrame, optional
        The columns to measure of the rows to score; None: the nominal ones are scored.
    kept : FileTable
        The columns to carry over, in the same partitions.
    output : str
        URL of the output folder.
    record : RunRecord
        What decides about the output.
    overwrite : bool
        Whether an earlier output gives way.
    paths : str, path, or a sequence of them
        The files of the rows to score.
    n_rows : int, optional
        Rows in them, where that is known.
    judged : FitRun, optional
        The fit by whose nominal rows the model may be judged.
    """

    model: Fitted | FitRun
    rows: Any | None
    kept: FileTable
    output: str
    record: RunRecord
    overwrite: bool
    paths: Paths
    n_rows: int | None = None
    judged: FitRun | None = None

    @property
    def alpha(self) -> float:
        """The false-alarm level."""
        return float(self.record.settings["alpha"])

    @property
    def fdr(self) -> float | None:
        """The false discovery rate, where that decides."""
        fdr: float | None = self.record.settings["fdr"]
        return fdr

    def is_finished(self) -> bool:
        """Return whether the output is there already, made from the same input.

        Perhaps by other versions, which may cut it into other parts.
        """
        earlier = read_record(self.output)
        if self.overwrite or earlier is None or not self.record.is_like(earlier):
            return False
        if unseen_parts(self._folder("", earlier)):
            return False
        filesystem, root = fsspec.core.url_to_fs(self.output)
        return bool(retried(filesystem.exists)(f"{root}/{SUMMARY_NAME}"))

    def check_not_finished(self) -> None:
        """Raise FileExistsError if there is an output that this run would not change."""
        filesystem, root = fsspec.core.url_to_fs(self.output)
        is_there = retried(filesystem.exists)(root)
        is_empty = is_there and not retried(filesystem.ls)(root)
        if not self.overwrite and (is_empty or self.is_finished()):
            raise FileExistsError(
                f"the output {self.output} exists. Give another folder, or replace it "
                f"(overwrite=True, --overwrite)."
            )

    @contextmanager
    def reserved(self) -> Iterator[Lock]:
        """Make and lock the output folder while the context is open.

        Raises
        ------
        OSError
            If nothing can be written there, or another run is at work on it.
        """
        with reserved(self.output) as lock:
            _check_free(self.output, self.record, self.overwrite)  # now nobody changes it
            yield lock

    def execute(self, lock: Lock, expect: Expect = ignore) -> dict[str, Any]:
        """Fit, measure and write, and return the summary; raises as `score_files`.

        Parameters
        ----------
        lock : Lock
            As `reserved` gives it.
        expect : callable
            Is told how many rows are going to be measured; None where that is not known.
        """
        began = time.perf_counter()
        if self.overwrite:
            remove_fits(self.output)
        model, check = self.model, None
        if isinstance(model, FitRun):
            model = model.execute(self.output, expect)
        if self.judged is not None:
            check = self.judged.calibration_check(model)
        with telling_input_from_run():
            sizes, _ = rows_of_partitions(self.paths, len(self.kept.parts))
            statistic, p_values = model.blocks(self.rows, sizes)
        folder = self._folder(lock.token)
        try:
            check_token(lock.url, lock.token)  # the fit may have taken hours
            self._make_way()
            counts = self._write(folder, statistic, p_values, expect)
            self._warn_of_rate(model, counts)
            check_parts(folder)
            check_unchanged(self.paths, self.record.data)
            seconds = time.perf_counter() - began
            counts["calibration_check"] = check
            summary = _summary(model, self.record, counts, seconds)
            check_token(lock.url, lock.token)
            _write_summary(summary, self.output)
            remove_leftovers(self.output)
        except (RunError, TableError):
            raise
        except Exception as error:
            raise RunError(_what_stopped(error, self.output)) from error
        return summary

    def _folder(self, token: str, record: RunRecord | None = None) -> PartFolder:
        record = record or self.record
        n_parts = int(record.settings["n_parts"])
        return PartFolder(self.output, record.run, n_parts, self.output, token)

    def _make_way(self) -> None:
        """Leave nothing in the output but what this run has written."""
        earlier = read_record(self.output)
        if self.overwrite or earlier is None or earlier.run != self.record.run:
            remove_output(self.output)
            self.record.write(self.output)

    def _write(
        self,
        folder: PartFolder,
        statistic: da.Array,
        p_values: da.Array,
        expect: Expect,
    ) -> dict[str, Any]:
        """Write the parts that are not there yet, and return what all of them count."""
        measured = folder if self.fdr is None else folder.undecided()
        there = sum(counts["rows"] for counts in measured.found().values())
        expect(None if self.n_rows is None else self.n_rows - there)
        if self.fdr is None:
            write = partial(part_writes, self.kept, statistic, p_values)
            return _counts(_write_missing(folder, partial(write, threshold(self.alpha))))
        measured.make()
        _write_missing(measured, partial(part_writes, self.kept, statistic, p_values, None))
        adjusted: Adjustment = adjustment(undecided_p_values(folder)).compute()
        decide = partial(decision_writes, adjusted, self.fdr)
        counts = _counts(_write_missing(folder, decide))
        cut = discovery_cut_off(adjusted, self.fdr)
        return counts | {"fdr_cut_off": None if math.isnan(cut) else cut}

    def _warn_of_rate(self, model: Fitted, counts: dict[str, Any]) -> None:
        counts_itself = COUNTS_ITSELF[model.calibration_kind]
        is_ranked = self.rows is None and not counts_itself  # which was said before
        if self.fdr is None or is_ranked:
            return
        doubt = doubt_about_rate(
            self.fdr, counts["rows"] - counts["rows_nan"], counts["flagged"],
            len(model.calibration.values), counts_itself=counts_itself,
        )  # fmt: skip
        if doubt is not None:
            logger.warning("%s", doubt)


def _write_missing(
    folder: PartFolder, writes: Callable[[PartFolder, list[int]], list[Delayed]]
) -> list[dict[str, int]]:
    """Write the parts that are not there yet, and return the counts of all."""
    found = folder.found()
    missing = [i for i in range(folder.n_parts) if i not in found]
    if found:
        logger.info("%d of %d parts are there already", len(found), folder.n_parts)
    written = dask.compute(*writes(folder, missing)) if missing else ()
    return [*found.values(), *written]


def _counts(of_parts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(counts[name] for counts in of_parts) for name in PART_COUNTS}


def prepare_run(
    data: Paths,
    output: str | PathLike[str],
    *,
    nominal: Paths | None = None,
    model: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    alpha: float | None = None,
    fdr: float | None = None,
    overwrite: bool = False,
    check_calibration: bool = False,
    **arguments: Any,
) -> Run:
    """Return the run of `score_files`, checked as far as that goes without reading rows.

    Nothing is computed and nothing written, so it needs no workers.
    """
    if model is None:
        given = arguments if alpha is None else arguments | {"alpha": alpha}
        found = prepare_fit(
            data if nominal is None else nominal, columns, given,
            check_calibration=check_calibration,
        )  # fmt: skip
        is_own = nominal is None
        return prepare_scoring(
            found, data, output, is_own=is_own, keep=keep, alpha=alpha, fdr=fdr,
            overwrite=overwrite,
        )  # fmt: skip
    if check_calibration:
        arguments["check_calibration"] = True
    check_is_alone(model, nominal, arguments)
    check_output(fspath(output), [fspath(model)])
    loaded = load_fitted(model)
    return prepare_scoring(
        loaded, data, output, columns=columns, keep=keep, alpha=alpha,
        fdr=fdr, overwrite=overwrite,
    )  # fmt: skip


def prepare_scoring(
    model: Fitted | FitRun,
    data: Paths,
    output: str | PathLike[str],
    *,
    is_own: bool = False,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    alpha: float | None = None,
    fdr: float | None = None,
    overwrite: bool = False,
    judged: FitRun | None = None,
) -> Run:
    """Return the run that scores a table with a model, or with one that is to be fitted.

    Parameters
    ----------
    model : Fitted or FitRun
    is_own : bool, default=False
        Whether the rows to score are the nominal ones.
    judged : FitRun, optional
        As in `Run`, where ``model`` is one that is stored.
    data, output, columns, keep, alpha, fdr, overwrite
        As for `score_files`.
    """
    for name, level in (("alpha", alpha), ("fdr", fdr)):
        if level is not None:
            check_level(name, level)
    table, rows = tables_to_score(model, data, columns)
    kept = _kept(data, table, keep, with_q_value=fdr is not None)
    settings = {
        "columns": list(map(str, rows.columns)),
        "keep": list(map(str, kept.columns)),
        "model": model.source,
        "is_own": is_own,
        "alpha": model.parameters["alpha"] if alpha is None else float(alpha),
        "fdr": None if fdr is None else float(fdr),
        "n_parts": len(kept.parts),
        "versions": [metadata.version("lpe_dask"), dask.__version__],
    }
    inputs = paths_in(data)
    if isinstance(model, FitRun):
        inputs += paths_in(model.paths) + ([] if model.url is None else [model.url])
    url = check_output(fspath(output), inputs)
    record = RunRecord(stamp_files(data), settings)
    measured = None if is_own else rows
    n_rows = count_rows(data)
    if isinstance(model, FitRun):
        judged = model
    run = Run(model, measured, kept, url, record, overwrite, data, n_rows, judged)
    if not run.is_finished():
        _check_free(url, record, overwrite)
    if fdr is not None and is_own and takes_loo(model.parameters):
        logger.warning(
            "no row can be flagged with fdr=%g: p-values of rows among themselves are "
            "spread evenly, so none is small for so many. Give nominal rows, or decide by "
            "alpha.", fdr,
        )  # fmt: skip
    return run


def check_is_alone(
    model: str | PathLike[str], nominal: Any, arguments: Mapping[str, Any]
) -> None:
    """Raise ValueError if a saved model is given with what only a fit can take."""
    odd = [*([] if nominal is None else ["nominal"]), *sorted(arguments)]
    if odd:
        raise ValueError(
            f"the model {fspath(model)} is fitted: {', '.join(odd)} cannot be given with "
            f"it. Leave them out, or leave out the model."
        )


def tables_to_score(
    model: Fitted | FitRun, data: Paths, columns: Sequence[Any] | None
) -> tuple[FileTable, Any]:
    """Return a table in files, and of it the frame of columns that a model measures."""
    given = None if isinstance(model, FitRun) else columns
    if isinstance(model, FitRun):
        columns = list(model.nominal.columns)
    elif columns is None:
        columns = model.columns
    table = open_table(data, columns)
    columns = columns if given is None else as_given(given, table.columns)
    rows = measured_columns(data, table.frame(), columns)
    _check_features(model, rows, data)
    return table, rows


def _check_features(model: Fitted | FitRun, rows: Any, data: Paths) -> None:
    if isinstance(model, Fitted) and len(rows.columns) != model.n_features:
        raise ValueError(
            f"{shown_paths(data)} has {len(rows.columns)} columns to measure, but the "
            f"model was fitted on {model.n_features}. Name that many (columns=, "
            f"--columns)."
        )


def _check_free(url: str, record: RunRecord, overwrite: bool) -> None:
    """Raise FileExistsError if the output folder holds anything that is to stay."""
    check_replaceable(url)
    if overwrite or not is_begun(url):
        return
    earlier = read_record(url)
    if earlier is None:
        raise FileExistsError(
            f"the output {url} exists. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )
    if earlier.run != record.run:
        raise FileExistsError(
            f"the output {url} exists, and was made from something else; what differs: "
            f"{record.differences(earlier)}. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )


def _kept(
    path: Paths, table: FileTable, keep: Sequence[Any] | None, *, with_q_value: bool
) -> FileTable:
    """Return the columns to carry over, none of which hides a result."""
    there = table.columns
    names = there if keep is None else list(dict.fromkeys(as_given(keep, there)))
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(
            f"{shown_paths(path)} has no columns {missing} to keep, but "
            f"{there}. Name some of these (keep=, --keep)."
        )
    results = (*RESULT_COLUMNS, Q_VALUE) if with_q_value else RESULT_COLUMNS
    kept = table.select(names)
    hidden = [name for name in results if name in kept.schema.names]
    if hidden:
        raise ValueError(
            f"{shown_paths(path)} has {hidden} already, but that is what the output calls "
            f"its results ({', '.join(results)}). Name the columns to carry over "
            f"without them (keep=, --keep), or rename them in the input."
        )
    return kept


# The summary


def _summary(
    model: Fitted, record: RunRecord, counts: dict[str, Any], seconds: float
) -> dict[str, Any]:
    rows, rows_nan, flagged = (counts[name] for name in PART_COUNTS)
    measured, settings = rows - rows_nan, record.settings
    return {
        "rows": rows,
        "rows_nan": rows_nan,
        "nominal_rows": model.n_samples,
        "dropped_rows": model.n_dropped,
        "calibration_kind_": model.calibration_kind,
        "calibration_rows": len(model.calibration.values),
        "calibration_band": _calibration_band(model),
        "calibration_check": counts["calibration_check"],
        "flagged": flagged,
        "flagged_share": flagged / measured if measured else None,
        "alpha": settings["alpha"],
        "fdr": settings["fdr"],
        "fdr_cut_off": counts.get("fdr_cut_off"),
        "parameters": model.parameters | {"alpha": settings["alpha"]},
        "n_neighbors_": model.n_neighbors,
        "radius_": model.radius,
        "seconds": round(seconds, 3),
        "peak_worker_bytes": peak_worker_bytes(),
        "versions": package_versions(*_PACKAGES),
        MADE_FROM: record.content(),
    }


def _calibration_band(model: Fitted) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for.
    """
    n_measured = len(model.calibration.values)
    if model.calibration_kind != "loo" or n_measured == model.n_samples:
        return None
    return {"level": BAND_LEVEL, "half_width": band_half_width(n_measured)}


@retried
def _write_summary(summary: dict[str, Any], url: str) -> None:
    filesystem, folder = fsspec.core.url_to_fs(url)
    text = json.dumps(summary, indent=2, default=plain)
    with whole_file(filesystem, folder, SUMMARY_NAME) as file:
        file.write(text.encode() + b"\n")


# Errors


def _what_stopped(error: Exception, url: str) -> str:
    return (
        f"the run stopped while it scored: {brief(error)} The parts that are in {url} are "
        f"whole, but not all are there; the same run, started again, goes on from there."
    )
