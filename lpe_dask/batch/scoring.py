"""Score a table from files to files: the step of a run that comes after the model.

    DATA --read--> frame --measure--> statistic, p-value                             (lazy)
    one task a partition --write--> OUT/part-00000.parquet ...
    statistics of parts --> reasons, drift --> OUT/_summary.json --> OUT/_report.html

A part is written under another name and then moved, and the summary comes after all parts:
every file visible in OUT is complete, and an interrupted run resumes with the missing
parts. No table passes through the client.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import accumulate
from typing import Any, NoReturn

import dask
from dask.delayed import Delayed

from lpe_dask import dask_array as da
from lpe_dask.batch import output, parts, text_output
from lpe_dask.batch.column_values import ColumnValues
from lpe_dask.batch.drift_log import RunSeries
from lpe_dask.batch.errors import RunError, input_errors_pass
from lpe_dask.batch.explanations import ALL_PRIVATE, ExplanationInput, empty_section
from lpe_dask.batch.false_alarms import false_alarm_section
from lpe_dask.batch.fingerprint import (
    Fingerprint,
    changed_files,
    check_unchanged,
    digest,
    read_fingerprint,
)
from lpe_dask.batch.fit import Existing, Fit, source_of, uses_leave_one_out
from lpe_dask.batch.flagged_rows import draw_flagged
from lpe_dask.batch.group_summary import group_section
from lpe_dask.batch.inputs import (
    check_private,
    match_names,
    select_carried_columns,
)
from lpe_dask.batch.job import DriftSection, Job, ScoreSection
from lpe_dask.batch.page import has_page, make_page
from lpe_dask.batch.part_stats import N_EXPLAINED, N_EXPLAINED_NOMINAL, PartStats
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.pattern_history import PatternHistory
from lpe_dask.batch.patterns import pattern_section, read_flagged
from lpe_dask.batch.summary import score_summary
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted, ModelFolder
from lpe_dask.monitoring import DriftMonitor, PValueBins, WatchedGroups
from lpe_dask.pvalues import Adjustment, adjustment, check_level
from lpe_dask.storage import Folder, Lock, redact, short_message
from lpe_dask.tables import (
    FileTable,
    RowStatus,
    TableError,
    open_features,
)
from lpe_dask.tasks import RowCount, compute, eager_scope

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is to be scored; files and columns have been checked, nothing is computed yet.

    Attributes
    ----------
    rows : dask DataFrame
        The columns to measure of the rows to score; after them those that divide rows into
        groups.
    kept : FileTable
        The columns to carry over, in the same partitions.
    output : str
        URL of the output folder.
    made_from : Fingerprint
        What decides about the output.
    overwrite : bool
        Whether an earlier output is replaced.
    job : Job
        That the run does.
    """

    rows: Any
    kept: FileTable
    output: str
    made_from: Fingerprint
    overwrite: bool
    job: Job

    @property
    def scores_nominal_rows(self) -> bool:
        """Whether the rows are the nominal ones, scored among themselves."""
        return bool(self.made_from.settings["scores_nominal_rows"])

    @property
    def fdr(self) -> Any:
        """The false discovery rate; None: alpha decides."""
        return self.made_from.settings["fdr"]

    @property
    def confidence(self) -> float | None:
        """The probability with which alpha holds for these nominal rows."""
        return self.made_from.settings.get("confidence")

    @property
    def only_flagged(self) -> bool:
        """Whether only flagged rows are written, and those without a p-value."""
        return self.given.rows == "flagged"

    @property
    def given(self) -> ScoreSection:
        """What the job says about scoring."""
        assert self.job.score is not None
        return self.job.score

    @property
    def private(self) -> tuple[str, ...]:
        """The columns that are not shown."""
        columns = [*self.rows.columns, *self.kept.columns, *self.kept.index_columns]
        return tuple(match_names(self.given.private or (), columns))

    def folder(self, token: str, made_from: Fingerprint | None = None) -> PartFolder:
        """Return the parts of the output, for the holder of its lock."""
        n_parts = int((made_from or self.made_from).settings["n_parts"])
        return PartFolder(self.output, n_parts, Lock(self.output, token))

    def is_finished(self) -> bool:
        """Return whether the output exists already, made from the same input.

        Other versions may have made it, from other partitions.
        """
        earlier = read_fingerprint(self.output)
        if self.overwrite or earlier is None or not self.made_from.same_input(earlier):
            return False
        if self.folder("", earlier).missing():
            return False
        names = [output.SUMMARY_NAME, *text_output.names_of(self.given.format)]
        return all(map(Folder(self.output).exists, names))

    @contextmanager
    def reserved(self) -> Iterator[Lock]:
        """Make and lock the output folder while the context is open.

        Raises
        ------
        OSError
            If nothing can be written there, or another run holds the lock.
        """
        with output.reserved_output(self.output) as lock:
            self.check_free()  # now nobody changes it
            yield lock

    def check_free(self) -> None:
        """Raise FileExistsError if the output folder has anything not to be replaced."""
        output.check_replaceable(self.output)
        if self.overwrite or not output.has_content(self.output):
            return
        earlier = read_fingerprint(self.output)
        if earlier is None:
            self.refuse("exists")
        elif not self.can_resume(earlier):
            differences = self.made_from.differences(earlier)
            self.refuse(
                f"exists, and was written by another run, which differs in: {differences}"
            )

    def can_resume(self, earlier: Fingerprint) -> bool:
        """Return whether an output is that of this run, or begun from other input files.

        Those may have been damaged, and mended since; but a finished output is kept.
        """
        if earlier.run == self.made_from.run:
            return True
        is_finished = Folder(self.output).exists(output.SUMMARY_NAME)
        return not is_finished and self.made_from.is_resumable_from(earlier)

    def refuse(self, reason: str) -> NoReturn:
        """Raise FileExistsError because of what the output folder has."""
        raise FileExistsError(
            f"the output {self.output} {reason}. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )


def prepare_scoring(
    job: Job, data: Sequence[str], fit: Fit | None, model: Fitted | None, existing: Existing
) -> Scoring:
    """Return the scoring of a job, with a model that exists or is to be fitted.

    Parameters
    ----------
    job : Job
    data : sequence of str
        The files of the rows to score.
    fit : Fit, optional
        How the model is fitted, or was.
    model : Fitted, optional
        None: it is the result of ``fit``.
    existing : {"keep", "refuse", "replace"}
        What happens to an existing output.
    """
    given = job.score
    origin = fit if model is None else model
    assert given is not None
    assert origin is not None
    if given.fdr is not None:
        check_level("fdr", given.fdr)
    inputs = [*data, *([] if fit is None else fit.table.files.paths)]
    if job.model.path is not None:
        inputs.append(job.model.path)
    url = output.check_output(given.output, inputs)
    if isinstance(origin, Fit):
        table, rows, level = origin.table, origin.nominal, origin.parameters["alpha"]
        confidence = origin.parameters["confidence"]
        if not job.scores_nominal_rows:
            table, rows = open_features(
                data, None, origin.columns, kinds=origin.kinds, by=origin.by
            )
    else:
        table, rows = origin.open_table(data, given.columns)
        level = origin.alpha  # of its fit, whatever was set later
        confidence = job.lpe_arguments.get("confidence", origin.confidence)
        origin.at_level(level, confidence)  # or it promises nothing
    check_private(
        given.private or (), [*rows.columns, *table.columns, *table.index_columns]
    )
    results = [*output.RESULT_COLUMNS]
    if given.fdr is not None:
        results.append(parts.Q_VALUE)
    if given.rows == "flagged":
        results.append(output.ROW_NUMBER)
    kept = select_carried_columns(table, given.keep, results)
    if RowStatus.COLUMN in kept.schema.names:
        logger.warning(
            "%s has a column %r, which is carried over: only the summary says why rows "
            "have no p-value. To have it in the output, too, leave that column out (keep=, "
            "--keep), or rename it.", table.place, RowStatus.COLUMN,
        )  # fmt: skip
    columns = list(rows.columns)[: len(rows.columns) - len(origin.by)]
    settings = {
        "columns": list(map(str, columns)),
        "keep": list(map(str, kept.columns)),
        "model": origin.source,
        "scores_nominal_rows": job.scores_nominal_rows,
        "alpha": float(job.lpe_arguments.get("alpha", level)),
        "fdr": None if given.fdr is None else float(given.fdr),
        "n_parts": len(kept.parts),
        "versions": [metadata.version("lpe_dask"), dask.__version__],
    }
    if confidence is not None:
        settings["confidence"] = float(confidence)
    settings |= job.csv_setting | given.form_setting
    made_from = Fingerprint(table.files.stamps, settings)
    overwrite = existing == "replace"
    scoring = Scoring(rows, kept, url, made_from, overwrite, job)
    if not scoring.is_finished():
        scoring.check_free()
    elif existing == "refuse":
        scoring.refuse("exists")
    if (
        given.fdr is not None
        and job.scores_nominal_rows
        and uses_leave_one_out(origin.parameters)
    ):
        logger.warning(
            "no row can be flagged with fdr=%g: p-values of rows scored against each other "
            "are ranks, so none is small enough. Give nominal rows, or decide by alpha.",
            given.fdr,
        )  # fmt: skip
    if not job.scores_nominal_rows and _overlaps_nominal_rows(origin, table, columns, job):
        logger.warning(Fitted.FITTED_ROWS_WARNING)
    return scoring


def _overlaps_nominal_rows(
    origin: Fit | Fitted, table: FileTable, names: Sequence[Any], job: Job
) -> bool:
    """Return whether there are nominal rows among those to score, as far as files show."""
    if isinstance(origin, Fit):
        nominal = origin.table.files.stamps
        return any(stamp in nominal for stamp in table.files.stamps)
    drawn = origin.parameters, origin.parameters | {"random_state": None}
    return origin.source in {source_of(table, names, given, job) for given in drawn}


# Doing it


@eager_scope()
def execute_scoring(
    scoring: Scoring,
    model: Fitted,
    check: dict[str, Any] | None,
    lock: Lock,
    steps: Steps,
) -> dict[str, Any]:
    """Measure and write what is to be scored, and return the summary.

    Parameters
    ----------
    scoring : Scoring
    model : Fitted
    check : dict, optional
        What was found about its calibration, for the summary.
    lock : Lock
        As `Scoring.reserved` gives it.
    steps : Steps
        Of the run so far.
    """
    alpha, fdr = scoring.made_from.settings["alpha"], scoring.fdr
    if fdr is None:
        model = model.at_level(alpha, scoring.confidence)
    else:  # which flags no p-value above itself
        model = model.at_level(fdr)
    columns = ColumnValues(
        model, scoring.rows, scoring.private, scoring.scores_nominal_rows
    )
    with input_errors_pass("scored"):
        sizes, _ = scoring.kept.rows_of_parts()
        certificate = (
            model.certificate
            if scoring.scores_nominal_rows
            else model.certify(scoring.rows)
        )
        model.reference.keep(sizes)  # or reasons would have blocks read once more
        rows = None if scoring.scores_nominal_rows else model.table(scoring.rows)
        blocks = model.blocks(rows, sizes, certificate)
        values = columns.tasks(rows)
        planned = model.reference.needed_bytes(sizes)
        bins = PValueBins.of_calibration(model.calibration, alpha)
        watched = None
        if not scoring.scores_nominal_rows:
            watched = WatchedGroups.of_model(model, alpha, scoring.private)
    folder = scoring.folder(lock.token)
    with _failures_named(scoring):
        lock.verify()  # the fit may have taken hours
        series = _series(scoring, model, bins, columns, watched)
        _prepare_output(scoring, series)
        of_watched = None if watched is None else watched.bins
        graph = model.calibration.graph
        n_top = N_EXPLAINED_NOMINAL if scoring.scores_nominal_rows else N_EXPLAINED
        stats_of = partial(
            PartStats.of, bins, graph, watched=of_watched, n_top=n_top,
            only_flagged=scoring.only_flagged,
        )  # fmt: skip
        stats, adjusted = _write(scoring, folder, (*blocks, values), stats_of, model, steps)
        total = PartStats.merge(stats, graph, n_top)
        _warn_if_fdr_unreliable(scoring, model, total)
        folder.wait_until_visible()
        groups = None
        if model.groups is not None:
            groups = folder.group_counts(len(model.groups.n_rows))
        check_unchanged(scoring.kept, output.remove_output, scoring.output)
        text_output.write(folder, scoring.given.format, steps)
        cut_off = None
        if adjusted is not None:
            largest = adjusted.cut_off(fdr)
            cut_off = None if math.isnan(largest) else largest
        n_measured = total.counts["rows"] - total.counts["rows_nan"]
        rows_read = _explanation_input(scoring, stats, folder)
        draw = partial(draw_flagged, folder, stats, only_flagged=scoring.only_flagged)
        n_flagged = total.counts["flagged"]
        with steps.timed("explain"):
            rows_read, drawn = read_flagged(rows_read, model, total.top, n_flagged, draw)
        reasons = _reasons(scoring, model, rows_read, total, adjusted, folder, steps)
        with steps.timed("patterns"):
            history = PatternHistory.of(series, scoring.job.drift_test_obstacle)
            patterns = pattern_section(rows_read, model, n_flagged, drawn, history)
        drift = _drift(scoring, series, total, partial(columns.new_categories, stats))
        path = scoring.job.model.path
        certified = None if certificate is None else certificate.as_json()
        summary = score_summary(model, scoring.made_from, total, check, certified, steps)
        summary |= {
            "output_rows": scoring.given.rows, "output_format": scoring.given.format,
            "written_rows": _n_written(scoring, total),
            "fdr_cut_off": cut_off, "false_alarms": false_alarm_section(
                model, n_measured, total.counts["flagged"], groups, fdr, cut_off,
                scoring.confidence, scores_nominal_rows=scoring.scores_nominal_rows,
            ),
            "p_value_bins": bins.histogram(total.bins),
            "output": redact(scoring.output),
            "model": None if path is None else redact(ModelFolder(path).url),
            "reasons": reasons, "patterns": patterns, "planned_worker_bytes": planned,
            "drift": drift,
            "values": columns.section(total),
            "groups": group_section(
                model, groups, alpha, scoring.private,
                scores_nominal_rows=scoring.scores_nominal_rows,
            ),
        }  # fmt: skip
        lock.verify()
        output.write_json(scoring.output, output.SUMMARY_NAME, summary, indent=2)
        output.remove_temporary(scoring.output)
    if scoring.given.report:
        make_page(scoring.output)
    return summary


def _n_written(scoring: Scoring, total: PartStats) -> int:
    counted = ("flagged", "rows_nan") if scoring.only_flagged else ("rows",)
    return sum(total.counts[name] for name in counted)


def _drift(
    scoring: Scoring,
    series: RunSeries | None,
    total: PartStats,
    new_categories: Callable[[str], Sequence[str]],
) -> dict[str, Any]:
    """Return the section of a summary that says whether the rows drift, or why not."""
    if series is not None:
        return series.section(total, new_categories)
    why = scoring.job.drift_test_obstacle
    return {"verdict": None, "reason": why, "text": why}


def tidy_scoring(scoring: Scoring) -> None:
    """Do what a run has left that died when its output was complete; raises nothing."""
    output.clean_up(scoring.output, output.reserved_output)
    if scoring.given.report and not has_page(scoring.output):
        make_page(scoring.output)


@contextmanager
def _failures_named(scoring: Scoring) -> Iterator[None]:
    """Say in errors what stays in the output, and how to go on."""
    try:
        yield
    except TableError as error:
        if not scoring.scores_nominal_rows:
            error.add_note(
                f"If only the content of this file changes, the same command resumes, "
                f"and keeps the parts in {scoring.output} that came from other files."
            )
        raise
    except RunError:
        raise
    except Exception as error:
        if _is_removed(scoring.output):
            raise RunError(
                f"the run stopped while it scored, as {scoring.output} was removed, or "
                f"the lock in it ({Lock.NAME}). Start the same run again, and "
                f"leave the folder alone: parts that are still there are kept."
            ) from error
        raise RunError(
            f"the run stopped while it scored: {short_message(error)} The parts that are "
            f"in {scoring.output} are complete; start the same run again to resume."
        ) from error


def _is_removed(url: str) -> bool:
    """Return whether the lock is gone that this run holds, as far as that is known."""
    try:
        return not Folder(url).exists(Lock.NAME)
    except Exception:  # a storage that fails has not removed it
        return False


def _series(
    scoring: Scoring,
    model: Fitted,
    bins: PValueBins,
    columns: ColumnValues,
    watched: WatchedGroups | None,
) -> RunSeries | None:
    """Return the series that a run with this model belongs to; None: it is not tested."""
    job = scoring.job
    if job.drift_test_obstacle is not None:
        return None
    limits = (job.drift or DriftSection()).model_dump()
    given = model.calibration, bins, columns.nominal(), watched
    monitor = DriftMonitor.of(*given, **limits)
    return RunSeries(scoring.output, job.dated_output, scoring.made_from, monitor)


def _prepare_output(scoring: Scoring, series: RunSeries | None) -> None:
    """Remove from the output what other runs have written."""
    url, made_from = scoring.output, scoring.made_from
    earlier = read_fingerprint(url)
    if scoring.overwrite or earlier is None or not scoring.can_resume(earlier):
        if series is not None and series.dated_output is None:
            series.carry_over()
        output.remove_output(url)
        made_from.write(url)
    elif changed := changed_files(earlier.data, made_from.data):
        logger.warning(
            "this run differs from the one that was interrupted in: %s; only parts "
            "that came from other files are kept", changed[0],
        )  # fmt: skip
        made_from.write(url)


def _write(
    scoring: Scoring,
    folder: PartFolder,
    blocks: tuple[da.Array, da.Array, list[Delayed] | None],
    stats_of: Callable[..., PartStats],
    model: Fitted,
    steps: Steps,
) -> tuple[list[PartStats], Adjustment | None]:
    """Write the missing parts, and return the statistics of all parts.

    Where a false discovery rate decides, also the adjustment of all p-values.
    """
    kept, fdr = scoring.kept, scoring.fdr
    measured = folder if fdr is None else folder.pending()
    measured.make()
    schema = parts.part_schema(kept, only_flagged=scoring.only_flagged)
    about = [schema.serialize().to_pybytes().hex(), *map(str, scoring.rows.dtypes)]
    is_exact = model.quality is None
    origins = scoring.made_from.part_digests(kept, about, is_exact=is_exact)
    first_rows: Sequence[int | None] = [None] * folder.n_parts
    if scoring.only_flagged and fdr is None:
        first_rows = _first_rows(kept.known_sizes or compute(*parts.row_counts(kept)))
        origins = [digest(of) for of in zip(origins, first_rows, strict=True)]
    known = measured.read_stats(origins)
    n_done = sum(of_part.counts["rows"] for of_part in known.values())
    rows = RowCount(
        "scored", lambda stats: int(stats.counts["rows"]),
        None if kept.n_rows is None else kept.n_rows - n_done,
    )  # fmt: skip
    limit = None if fdr is not None else model.group_limits or model.limit
    write = partial(
        parts.part_writes, kept, schema, *blocks, limit, stats_of, first_rows=first_rows
    )
    with steps.timed("score"):
        stats = _write_missing_parts(measured, origins, known, write, rows)
    if fdr is None:
        return stats, None
    with steps.timed("decide"):
        (adjusted,) = compute(adjustment(parts.undecided_p_values(folder)))
        if scoring.only_flagged:
            first_rows = _first_rows([of.counts["rows"] for of in stats])
        decide = partial(
            parts.decision_writes, adjusted, fdr, stats_of, first_rows=first_rows
        )
        origins = [scoring.made_from.run] * folder.n_parts  # all p-values decide
        known = folder.read_stats(origins)
        return _write_missing_parts(folder, origins, known, decide), adjusted


def _first_rows(sizes: Sequence[int]) -> list[int]:
    """Return the number of the first row of each partition in the whole table."""
    return [0, *accumulate(sizes)][:-1]


def _write_missing_parts(
    folder: PartFolder,
    made_from: Sequence[str],
    known: dict[int, PartStats],
    writes: Callable[[PartFolder, Sequence[str], list[int]], list[Delayed]],
    rows: RowCount | None = None,
) -> list[PartStats]:
    """Write the parts that are not known, and return the statistics of each."""
    missing = [i for i in range(folder.n_parts) if i not in known]
    if known:
        logger.info("%d of %d parts exist already", len(known), folder.n_parts)
    written = compute(*writes(folder, made_from, missing), rows=rows) if missing else ()
    stats = known | dict(zip(missing, written, strict=True))
    return [stats[i] for i in range(folder.n_parts)]


def _warn_if_fdr_unreliable(scoring: Scoring, model: Fitted, total: PartStats) -> None:
    is_ranked = scoring.scores_nominal_rows and not model.calibration.includes_self
    if scoring.fdr is None or is_ranked:  # of the latter, `prepare_scoring` has warned
        return
    counts = total.counts
    n_rows = counts["rows"] - counts["rows_nan"]
    doubt = model.fdr_caveat(scoring.fdr, n_rows, counts["flagged"], total.statuses)
    if doubt is not None:
        logger.warning("%s", doubt)


def _explanation_input(
    scoring: Scoring, stats: Sequence[PartStats], folder: PartFolder
) -> ExplanationInput:
    """Return the rows that were scored, to explain some of them."""
    sizes = [of.counts["rows"] for of in stats] if scoring.scores_nominal_rows else None
    labels = [(folder.name(i), 0) for i in range(folder.n_parts)]
    return ExplanationInput(scoring.rows, scoring.kept, labels, sizes, scoring.private)


def _reasons(
    scoring: Scoring,
    model: Fitted,
    rows: ExplanationInput,
    total: PartStats,
    adjusted: Adjustment | None,
    folder: PartFolder,
    steps: Steps,
) -> dict[str, Any]:
    """Return the section about reasons; a run does not fail for want of them."""
    private = scoring.private
    folder.lock.verify()
    Folder(folder.url).remove_file(output.REASONS_NAME)  # of an interrupted run
    if total.top.empty:
        what = "is flagged, and others are not written" if scoring.only_flagged else ""
        return empty_section(model, private, f"no row {what or 'has a p-value'}")
    if {*scoring.made_from.settings["columns"]} <= {*private}:
        return empty_section(model, private, ALL_PRIVATE)
    q_values = None
    if adjusted is not None:
        q_values = adjusted.q_values(total.top["p_value"].to_numpy())
    try:
        with steps.timed("explain"):
            section, file = rows.explain(model, total.top, q_values)
    except Exception as error:
        logger.warning("no reasons can be given: %s", short_message(error))
        return empty_section(model, private, short_message(error))
    folder.lock.verify()
    Folder(folder.url).write(output.REASONS_NAME, file)
    return section
