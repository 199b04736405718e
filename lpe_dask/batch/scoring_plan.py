"""Plan a scoring: check what a job says of it, and what its output already has.

    job, DATA, model or fit --prepare_scoring--> Scoring: rows, columns, output, fingerprint

Nothing is computed here; scoring.py does what is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, NoReturn

import dask

from lpe_dask.batch import output, parts, text_output
from lpe_dask.batch.fingerprint import Fingerprint, read_fingerprint
from lpe_dask.batch.fit import Existing, Fit, source_of, uses_leave_one_out
from lpe_dask.batch.inputs import (
    check_private,
    match_names,
    select_carried_columns,
)
from lpe_dask.batch.job import Job, ScoreSection
from lpe_dask.batch.parts import PartFolder
from lpe_dask.model import Fitted
from lpe_dask.pvalues import check_level
from lpe_dask.storage import Folder, Lock, redact_url
from lpe_dask.tables import FileTable, RowStatus, open_features, resolve_path

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
    def output_template(self) -> str | None:
        """URL of the outputs of all days, without secrets; None: the output has no day."""
        dated = self.job.dated_output
        return None if dated is None else redact_url(Folder(dated.without_day).full_url())

    @property
    def inputs(self) -> list[str]:
        """URLs of what is read, as it was given: files, folders and globs, no secrets."""
        nominal = () if self.job.nominal is None else self.job.nominal.data
        paths = [*self.kept.files.paths, *(source.path for source in nominal)]
        return [redact_url(_absolute(path)) for path in dict.fromkeys(paths)]

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

        Other versions may have made it, from other partitions; where a policy replaces the
        model, an earlier model, too.
        """
        earlier = read_fingerprint(self.output)
        if self.overwrite or earlier is None:
            return False
        if not self.made_from.same_input(self._with_this_model(earlier)):
            return False
        if self.folder("", earlier).missing():
            return False
        names = [output.SUMMARY_NAME, *text_output.names_of(self.given.format)]
        return all(map(Folder(self.output).exists, names))

    def is_begun(self) -> bool:
        """Return whether the output has been begun, and is gone on with."""
        earlier = None if self.overwrite else read_fingerprint(self.output)
        return earlier is not None and self.can_resume(earlier)

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
        if self.overwrite or not output.has_content(self.output) or self.is_finished():
            return
        earlier = read_fingerprint(self.output)
        if earlier is None:
            self.refuse("exists")
        elif not self.can_resume(self._with_this_model(earlier)):
            differences = self.made_from.differences(earlier)
            self.refuse(
                f"exists, and was written by another run, which differs in: {differences}"
            )

    def _with_this_model(self, earlier: Fingerprint) -> Fingerprint:
        """Return the fingerprint of an output as if no policy had replaced the model."""
        if self.job.model.policy is None:
            return earlier
        model = {"model": self.made_from.settings["model"]}
        return Fingerprint(earlier.data, earlier.settings | model)

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
    kept = _carried(table, given)
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
    if job.scores_nominal_rows:
        _warn_of_ranks(given.fdr, origin)
    elif _overlaps_nominal_rows(origin, table, columns, job):
        logger.warning(Fitted.FITTED_ROWS_WARNING)
    return scoring


def _absolute(path: str) -> str:
    filesystem, root = resolve_path(path)
    return path if "::" in path else str(filesystem.unstrip_protocol(root))


def _carried(table: FileTable, given: ScoreSection) -> FileTable:
    """Return the columns to carry over."""
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
    return kept


def _warn_of_ranks(fdr: float | None, origin: Fit | Fitted) -> None:
    if fdr is not None and uses_leave_one_out(origin.parameters):
        logger.warning(
            "no row can be flagged with fdr=%g: p-values of rows scored against each other "
            "are ranks, so none is small enough. Give nominal rows, or decide by alpha.",
            fdr,
        )


def _overlaps_nominal_rows(
    origin: Fit | Fitted, table: FileTable, names: Sequence[Any], job: Job
) -> bool:
    """Return whether there are nominal rows among those to score, as far as files show."""
    if isinstance(origin, Fit):
        nominal = origin.table.files.stamps
        return any(stamp in nominal for stamp in table.files.stamps)
    drawn = origin.parameters, origin.parameters | {"random_state": None}
    return origin.source in {source_of(table, names, given, job) for given in drawn}
