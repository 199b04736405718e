"""Fit the model of a job again after a run, and replace it if the new one is no worse.

    scored rows, drift --due--> new model, from the newest nominal rows
    new model --calibration check, share of the run that it flags--> replaces the old one,
                                                                     or is dropped

The rows of the run are scored, and its summary is written, before that: whatever becomes
of the new model, the run has its result. A run that is killed meanwhile says "pending" in
its summary; started again, it goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpe_dask.batch.errors import input_errors_pass
from lpe_dask.batch.fit import Fit
from lpe_dask.batch.job import DriftSection
from lpe_dask.batch.refit_policy import Outcome, RefitPolicy, is_refit_pending
from lpe_dask.batch.scoring import publish
from lpe_dask.batch.scoring_plan import Scoring
from lpe_dask.batch.summary import read_summary
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted, ModelFolder, check_calibration
from lpe_dask.monitoring import clopper_pearson_interval
from lpe_dask.storage import Lock, short_message
from lpe_dask.tasks import compute, eager_scope

logger = logging.getLogger(__name__)

#: What a summary says of an outcome, with its reason.
_TEXTS = {
    Outcome.PENDING: "a new model is due: start the same run again",
    Outcome.SWAPPED: "the model was fitted again, and scores from the next run on",
    Outcome.UNCHANGED: "the model is not fitted again: {reason}",
    Outcome.REJECTED: "the new model was rejected, and the old one goes on: {reason}",
    Outcome.SUPERSEDED: "another run has replaced the model in the meantime",
}


class RejectedModelError(ValueError):
    """A new model is worse than what is promised of it."""


class _SupersededModelError(ValueError):
    """There is another model than the one to be replaced."""


@dataclass(frozen=True, slots=True)
class Refit:
    """What may follow a run of a job with a policy.

    Attributes
    ----------
    policy : RefitPolicy
    model : Fitted
        That scores the rows of the run.
    fit : Fit, optional
        Of the newest nominal rows; None: they cannot be read.
    scoring : Scoring
        Of the run.
    obstacle : str, optional
        Why they cannot be read.
    """

    policy: RefitPolicy
    model: Fitted
    fit: Fit | None
    scoring: Scoring
    obstacle: str | None = None

    def pending_summary(self) -> dict[str, Any] | None:
        """Return the summary of a run that has only this left to do; None if it has more.

        Or nothing.
        """
        if not self.scoring.is_finished():
            return None
        try:
            summary = read_summary(self.scoring.output)
        except (FileNotFoundError, ValueError):
            return None
        return summary if is_refit_pending(summary) else None

    def section(self, drift: Mapping[str, Any], n_measured: int) -> dict[str, Any]:
        """Return the section of a summary about this, before anything is fitted.

        Parameters
        ----------
        drift : mapping
            The section about drift.
        n_measured : int
            Rows with a p-value.
        """
        day, due = self.scoring.job.date, None
        assert day is not None
        if n_measured > 0:  # else there is nothing to judge a new model by
            due = self.policy.due_reason(self.model, day, drift)
        section = {
            "policy": self.policy.text, "due": due, "outcome": None, "reason": None,
            "text": None, "old": _model_section(self.model), "new": None,
            "nominal_flagged_by_old": None, "seconds": None,
        }  # fmt: skip
        return section if due is None else section | _end(Outcome.PENDING)

    def execute(self, summary: dict[str, Any], lock: Lock) -> dict[str, Any]:
        """Fit again if that is due, and return the summary, with what came of it.

        Computes.

        Parameters
        ----------
        summary : dict
            Of the run.
        lock : Lock
            Of its output.

        Raises
        ------
        RunError, OSError
            If it was interrupted. Started again, the run goes on with this.
        """
        if not is_refit_pending(summary):
            return summary
        steps = Steps()
        with steps.timed("refit"):
            end = self._replace(summary, lock)
        seconds = {"seconds": round(steps.seconds, 3)}
        section = summary["refit"] | end | seconds
        summary = summary | {"refit": section}
        lock.verify()
        publish(self.scoring, summary)
        is_rejected = section["outcome"] == Outcome.REJECTED
        logger.log(logging.WARNING if is_rejected else logging.INFO, "%s", section["text"])
        return summary

    def _replace(self, summary: dict[str, Any], lock: Lock) -> dict[str, Any]:
        """Replace the model, and return how that ended."""
        fit, section = self.fit, summary["refit"]
        if self.model.checksum != section["old"]["checksum"]:
            # The same run may have replaced it, and died before it could say so.
            is_own = fit is not None and self.model.source == fit.source
            if section["new"] is None or not is_own:
                return _end(Outcome.SUPERSEDED)
            return _swap(section["new"], self.model)
        if fit is None:
            return _end(Outcome.REJECTED, self.obstacle)
        if self.model.source == fit.source:
            return _end(Outcome.UNCHANGED, "the nominal rows are the same")

        def accept(model: Fitted) -> None:
            summary["refit"] = summary["refit"] | self._judgement(summary, model, fit)
            _check_judgement(summary["refit"]["new"])
            self._check_not_superseded()
            lock.verify()
            publish(self.scoring, summary)  # if this dies when the model is replaced

        try:
            model = fit.execute("", accept)
        except _SupersededModelError:
            return _end(Outcome.SUPERSEDED)
        except RejectedModelError as error:
            return _end(Outcome.REJECTED, str(error))
        except Fit.REFUSALS as error:
            return _end(Outcome.REJECTED, short_message(error))
        return _swap(summary["refit"]["new"], model)

    def _check_not_superseded(self) -> None:
        """Raise unless the old model is still there; its folder is locked."""
        assert self.fit is not None
        assert self.fit.url is not None
        if ModelFolder(self.fit.url).checksum() != self.model.checksum:
            raise _SupersededModelError

    @eager_scope()
    def _judgement(
        self, summary: Mapping[str, Any], model: Fitted, fit: Fit
    ) -> dict[str, Any]:
        """Return the findings by which a new model replaces the old one, or is dropped."""
        nominal, _ = fit.nominal_rows()
        try:
            with input_errors_pass():
                check = check_calibration(model, nominal).as_json()
        except ValueError as error:
            raise RejectedModelError(
                f"its calibration could not be checked: {short_message(error)}"
            ) from error
        by_old = summary["flagged"], summary["rows"] - summary["rows_nan"]
        with input_errors_pass():
            if self.scoring.fdr is not None:  # which is of the run as a whole
                by_old = self._count_flagged(self.model, self.scoring.rows)
            by_new = self._count_flagged(model, self.scoring.rows)
            nominal_by_old, _ = self._count_flagged(self.model, nominal)
        checked = {"calibration_check": check, "most_flagged_share": self._most_flagged()}
        return {
            "old": _model_section(self.model) | _flagged_section(*by_old),
            "new": _model_section(model) | _flagged_section(*by_new) | checked,
            "nominal_flagged_by_old": nominal_by_old,
        }

    def _count_flagged(self, model: Fitted, rows: Any) -> tuple[int, int]:
        """Return how many rows a model flags at alpha, and how many have a p-value.

        Computes.
        """
        alpha = self.scoring.made_from.settings["alpha"]
        margins = model.at_level(alpha, self.scoring.confidence).margins(rows)
        counts = compute((margins < 0).sum(), margins.notnull().sum())
        return int(counts[0]), int(counts[1])

    def _most_flagged(self) -> float:
        """Return the share of a run that may be flagged: false alarms, and anomalies."""
        limits = self.scoring.job.drift or DriftSection()
        alpha = float(self.scoring.made_from.settings["alpha"])
        return min(1.0, alpha * (1 + limits.tolerance) + limits.anomalies)


def _check_judgement(new: Mapping[str, Any]) -> None:
    """Raise RejectedModelError for a model that is worse than what is promised."""
    if new["calibration_check"]["holds"] is False:
        raise RejectedModelError(
            "it flags more nominal rows that were held out than it promises. Look at the "
            "newest nominal rows, or choose another calibration or scale (refit = true "
            "once)."
        )
    between, most = new["flagged_between"], new["most_flagged_share"]
    if between is None:
        raise RejectedModelError("it measures no row of this run.")
    if between[0] > most:
        raise RejectedModelError(
            f"it would flag {new['flagged_share']:.2%} of the rows of this run, and at "
            f"most {most:.2%} are to be expected. Look at the newest nominal rows; if they "
            f"are right, raise tolerance or anomalies in [drift]."
        )


def _model_section(model: Fitted) -> dict[str, Any]:
    return {
        "checksum": model.checksum, "created": model.created, "run_date": model.run_date,
        "nominal_rows": model.n_samples,
    }  # fmt: skip


def _flagged_section(n_flagged: int, n_measured: int) -> dict[str, Any]:
    share = between = None
    if n_measured:
        share = n_flagged / n_measured
        between = list(clopper_pearson_interval(n_flagged, n_measured))
    return {"flagged": n_flagged, "flagged_share": share, "flagged_between": between}


def _swap(judgement: Mapping[str, Any], model: Fitted) -> dict[str, Any]:
    return _end(Outcome.SWAPPED) | {"new": {**judgement, **_model_section(model)}}


def _end(outcome: Outcome, reason: str | None = None) -> dict[str, Any]:
    text = _TEXTS[outcome].format(reason=reason)
    return {"outcome": outcome.value, "reason": reason, "text": text}
