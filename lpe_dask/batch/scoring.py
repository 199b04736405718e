"""Score a table from files to files: the step of a run that comes after the model.

    DATA --read--> frame --measure--> statistic, p-value                             (lazy)
    one task a partition --write--> OUT/part-00000.parquet ...
    statistics of parts --findings.py--> OUT/_summary.json --> _report.html, _metrics.prom

A part is written under another name and then moved, and the summary comes after all parts:
every file visible in OUT is complete, and an interrupted run resumes with the missing
parts. No table passes through the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any

from dask.delayed import Delayed

from lpe_dask import dask_array as da
from lpe_dask.batch import output, parts, text_output
from lpe_dask.batch.column_values import ColumnValues
from lpe_dask.batch.drift_log import RunSeries
from lpe_dask.batch.errors import RunError, input_errors_pass
from lpe_dask.batch.findings import Findings
from lpe_dask.batch.fingerprint import (
    changed_files,
    check_unchanged,
    digest,
    read_fingerprint,
)
from lpe_dask.batch.job import DriftSection
from lpe_dask.batch.metrics_text import make_metrics
from lpe_dask.batch.page import make_page
from lpe_dask.batch.part_stats import N_EXPLAINED, N_EXPLAINED_NOMINAL, PartStats
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.scoring_plan import Scoring
from lpe_dask.batch.summary import score_summary
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted, ModelFolder, warn_if_nothing_can_be_flagged
from lpe_dask.monitoring import DriftMonitor, PValueBins, WatchedGroups
from lpe_dask.pvalues import Adjustment, adjustment
from lpe_dask.storage import Folder, Lock, redact_url, short_message
from lpe_dask.tables import TableError
from lpe_dask.tasks import RowCount, compute, eager_scope

logger = logging.getLogger(__name__)


@eager_scope()
def execute_scoring(
    scoring: Scoring,
    model: Fitted,
    check: dict[str, Any] | None,
    lock: Lock,
    steps: Steps,
    describe_refit: Callable[[dict[str, Any], int], dict[str, Any]] | None = None,
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
    describe_refit : callable, optional
        As `batch.refit.Refit.section`; None: the job has no policy.
    """
    alpha, fdr = scoring.made_from.settings["alpha"], scoring.fdr
    if fdr is None:
        model = model.at_level(alpha, scoring.confidence)
        warn_if_nothing_can_be_flagged(model)
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
        graph = model.calibration.graph
        n_top = N_EXPLAINED_NOMINAL if scoring.scores_nominal_rows else N_EXPLAINED
        stats_of = partial(
            PartStats.of, bins, graph, n_top=n_top, only_flagged=scoring.only_flagged,
            watched=None if watched is None else watched.bins,
        )  # fmt: skip
        stats, adjusted = _write(scoring, folder, (*blocks, values), stats_of, model, steps)
        total = PartStats.merge(stats, graph, n_top)
        found = Findings(
            scoring, model, folder, stats, total, adjusted, bins, columns, series
        )
        found.warn_if_fdr_unreliable()
        folder.wait_until_visible()
        check_unchanged(scoring.kept, output.remove_output, scoring.output)
        text_output.write(folder, scoring.given.format, steps)
        sections, path = found.sections(steps), scoring.job.model.path
        certified = None if certificate is None else certificate.as_json()
        summary = score_summary(model, scoring.made_from, total, check, certified, steps)
        summary |= sections | {
            "inputs": scoring.inputs,
            "output": redact_url(scoring.output),
            "output_template": scoring.output_template,
            "model": None if path is None else redact_url(ModelFolder(path).url),
            "planned_worker_bytes": planned,
            "refit": None,
        }
        if describe_refit is not None:
            n_measured = summary["rows"] - summary["rows_nan"]
            summary["refit"] = describe_refit(summary["drift"], n_measured)
        lock.verify()
        publish(scoring, summary)
    return summary


def publish(scoring: Scoring, summary: dict[str, Any]) -> None:
    """Write the summary, by which the output is complete, and what is made from it."""
    output.write_json(scoring.output, output.SUMMARY_NAME, summary, indent=2)
    output.remove_temporary(scoring.output)
    make_metrics(scoring.output)
    if scoring.given.report:
        make_page(scoring.output)


def tidy_scoring(scoring: Scoring) -> None:
    """Do what a run has left that died when its output was complete; raises nothing."""
    output.clean_up(scoring.output, output.reserved_output)
    if not output.has_file(scoring.output, output.METRICS_NAME):
        make_metrics(scoring.output)
    if scoring.given.report and not output.has_file(scoring.output, output.REPORT_NAME):
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
