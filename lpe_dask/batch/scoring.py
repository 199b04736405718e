"""Score a table from files to files: the step of a run that comes after the model.

    DATA --read--> frame --measure--> statistic, p-value                             (lazy)
    one task a partition --write--> OUT/part-00000.parquet ... --> OUT/_summary.json

A part is written under another name and then moved, and the summary comes last: whatever is
visible in OUT is whole, and a run that was interrupted goes on with the parts that are not
there yet. No table passes through the client.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any, NoReturn

import dask
import dask.array as da
from dask.delayed import Delayed

from lpe_dask.batch.fingerprint import Fingerprint, read_fingerprint
from lpe_dask.batch.fit import (
    Expect,
    Fit,
    RunError,
    check_unchanged,
    measured_columns,
    takes_loo,
    telling_input_from_run,
)
from lpe_dask.batch.job import Job
from lpe_dask.batch.output import (
    RESULT_COLUMNS,
    SUMMARY_NAME,
    check_output,
    check_replaceable,
    is_begun,
    remove_leftovers,
    remove_output,
    reserved_output,
    write_json,
)
from lpe_dask.batch.parts import (
    PART_COUNTS,
    Q_VALUE,
    PartFolder,
    decision_writes,
    part_writes,
    undecided_p_values,
)
from lpe_dask.batch.summary import score_summary
from lpe_dask.model import Fitted
from lpe_dask.pvalues import (
    COUNTS_ITSELF,
    Adjustment,
    adjustment,
    check_level,
    discovery_cut_off,
    doubt_about_rate,
    threshold,
)
from lpe_dask.storage import Folder, Lock, brief, check_token
from lpe_dask.tables import (
    FileTable,
    Paths,
    TableError,
    as_given,
    open_table,
    paths_in,
    shown_paths,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is to be scored; files and columns have been checked, nothing is computed yet.

    Attributes
    ----------
    rows : dask DataFrame, optional
        The columns to measure of the rows to score; None: the nominal ones are scored.
    kept : FileTable
        The columns to carry over, in the same partitions.
    output : str
        URL of the output folder.
    made_from : Fingerprint
        What decides about the output.
    overwrite : bool
        Whether an earlier output gives way.
    """

    rows: Any | None
    kept: FileTable
    output: str
    made_from: Fingerprint
    overwrite: bool

    @property
    def alpha(self) -> float:
        """The false-alarm level."""
        return float(self.made_from.settings["alpha"])

    @property
    def fdr(self) -> float | None:
        """The false discovery rate, where that decides."""
        fdr: float | None = self.made_from.settings["fdr"]
        return fdr

    def is_finished(self) -> bool:
        """Return whether the output is there already, made from the same input.

        Perhaps by other versions, which may cut it into other parts.
        """
        earlier = read_fingerprint(self.output)
        if self.overwrite or earlier is None or not self.made_from.is_like(earlier):
            return False
        if self._folder("", earlier).unseen():
            return False
        return Folder(self.output).exists(SUMMARY_NAME)

    def check_not_finished(self) -> None:
        """Raise FileExistsError if there is an output that this run would not change."""
        folder = Folder(self.output)
        is_empty = folder.exists() and not folder.names()
        if not self.overwrite and (is_empty or self.is_finished()):
            self._refuse("exists")

    @contextmanager
    def reserved(self) -> Iterator[Lock]:
        """Make and lock the output folder while the context is open.

        Raises
        ------
        OSError
            If nothing can be written there, or another run is at work on it.
        """
        with reserved_output(self.output) as lock:
            self.check_free()  # now nobody changes it
            yield lock

    def check_free(self) -> None:
        """Raise FileExistsError if the output folder holds anything that is to stay."""
        check_replaceable(self.output)
        if self.overwrite or not is_begun(self.output):
            return
        earlier = read_fingerprint(self.output)
        if earlier is None:
            self._refuse("exists")
        elif earlier.run != self.made_from.run:
            differences = self.made_from.differences(earlier)
            self._refuse(
                f"exists, and was made from something else; what differs: {differences}"
            )

    def _refuse(self, reason: str) -> NoReturn:
        raise FileExistsError(
            f"the output {self.output} {reason}. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )

    def execute(
        self,
        model: Fitted,
        check: dict[str, Any] | None,
        lock: Lock,
        expect: Expect,
        began: float,
    ) -> dict[str, Any]:
        """Measure and write, and return the summary.

        Parameters
        ----------
        model : Fitted
        check : dict, optional
            What was found about its calibration, for the summary.
        lock : Lock
            As `reserved` gives it.
        expect : callable
            Is told how many rows are going to be measured; None where that is not known.
        began : float
            When the run began, by `time.perf_counter`.
        """
        with telling_input_from_run():
            sizes, _ = self.kept.rows_of_parts()
            statistic, p_values = model.blocks(self.rows, sizes)
        folder = self._folder(lock.token)
        try:
            check_token(lock.url, lock.token)  # the fit may have taken hours
            self._make_way()
            counts = self._write(folder, statistic, p_values, expect)
            self._warn_of_rate(model, counts)
            folder.check_seen()
            check_unchanged(self.kept.files)
            seconds = time.perf_counter() - began
            summary = score_summary(model, self.made_from, counts, check, seconds)
            check_token(lock.url, lock.token)
            write_json(self.output, SUMMARY_NAME, summary, indent=2)
            remove_leftovers(self.output)
        except (RunError, TableError):
            raise
        except Exception as error:
            raise RunError(
                f"the run stopped while it scored: {brief(error)} The parts that are in "
                f"{self.output} are whole, but not all are there; the same run, started "
                f"again, goes on from there."
            ) from error
        return summary

    def _folder(self, token: str, made_from: Fingerprint | None = None) -> PartFolder:
        made_from = made_from or self.made_from
        n_parts = int(made_from.settings["n_parts"])
        return PartFolder(self.output, made_from.run, n_parts, self.output, token)

    def _make_way(self) -> None:
        """Leave nothing in the output but what this run has written."""
        earlier = read_fingerprint(self.output)
        if self.overwrite or earlier is None or earlier.run != self.made_from.run:
            remove_output(self.output)
            self.made_from.write(self.output)

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
        n_rows = self.kept.n_rows
        expect(None if n_rows is None else n_rows - there)
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


def prepare_scoring(
    job: Job, data: Paths, fit: Fit | None, model: Fitted | None, overwrite: bool
) -> Scoring:
    """Return what a job is to score, with a model that is there or is to be fitted.

    Parameters
    ----------
    job : Job
    data : str, path, or a sequence of them
        The files of the rows to score.
    fit : Fit, optional
        How the model is fitted, or was.
    model : Fitted, optional
        None: it comes of ``fit``.
    overwrite : bool
        As in `Scoring`.
    """
    given, alpha = job.score, job.alpha
    assert given is not None
    for name, level in (("alpha", alpha), ("fdr", given.fdr)):
        if level is not None:
            check_level(name, level)
    inputs = paths_in(data)
    if model is None:
        assert fit is not None
        table, rows = fit.table, fit.nominal
        if not job.is_own:
            table, rows = _open(data, list(rows.columns))
        inputs += paths_in(fit.table.files.paths) + ([] if fit.url is None else [fit.url])
    else:
        table, rows = tables_to_score(model, data, given.columns)
    origin = fit if model is None else model
    assert origin is not None
    kept = _kept(data, table, given.keep, with_q_value=given.fdr is not None)
    settings = {
        "columns": list(map(str, rows.columns)),
        "keep": list(map(str, kept.columns)),
        "model": origin.source,
        "is_own": job.is_own,
        "alpha": origin.parameters["alpha"] if alpha is None else float(alpha),
        "fdr": None if given.fdr is None else float(given.fdr),
        "n_parts": len(kept.parts),
        "versions": [metadata.version("lpe_dask"), dask.__version__],
    }
    url = check_output(given.output, inputs)
    made_from = Fingerprint(table.files.stamps, settings)
    scoring = Scoring(None if job.is_own else rows, kept, url, made_from, overwrite)
    if not scoring.is_finished():
        scoring.check_free()
    if given.fdr is not None and job.is_own and takes_loo(origin.parameters):
        logger.warning(
            "no row can be flagged with fdr=%g: p-values of rows among themselves are "
            "spread evenly, so none is small for so many. Give nominal rows, or decide by "
            "alpha.", given.fdr,
        )  # fmt: skip
    return scoring


def tables_to_score(
    model: Fitted, data: Paths, columns: Sequence[Any] | None
) -> tuple[FileTable, Any]:
    """Return a table in files, and of it the frame of columns that a model measures."""
    if columns is None:
        table, rows = _open(data, model.columns)
    else:
        table = open_table(data, columns)
        chosen = as_given(columns, table.columns)
        rows = measured_columns(data, table.frame(), chosen)
    if len(rows.columns) != model.n_features:
        raise ValueError(
            f"{shown_paths(data)} has {len(rows.columns)} columns to measure, but the "
            f"model was fitted on {model.n_features}. Name that many (columns=, "
            f"--columns)."
        )
    return table, rows


def _open(data: Paths, columns: Sequence[Any] | None) -> tuple[FileTable, Any]:
    table = open_table(data, columns)
    return table, measured_columns(data, table.frame(), columns)


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
