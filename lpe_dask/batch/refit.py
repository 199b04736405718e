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
from lpe_dask.batch.refit_policy import RefitPolicy
from lpe_dask.batch.scoring import publish
from lpe_dask.batch.scoring_plan import Scoring
from lpe_dask.batch.summary import read_summary
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted, check_calibration
from lpe_dask.monitoring import clopper_pearson_interval
from lpe_dask.storage import Lock, short_message
from lpe_dask.tasks import compute, eager_scope

logger = logging.getLogger(__name__)

#: Outcomes: the run was interrupted; the new model scores from the next run on; the nominal
#: rows are those of the old one; the new one was worse; another run has replaced the model.
PENDING, SWAPPED, UNCHANGED, REJECTED, SUPERSEDED = (
    "pending", "swapped", "unchanged", "rejected", "superseded",
)  # fmt: skip


class RejectedModelError(ValueError):
    """A new model is worse than what is promised of it."""


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
    """

    policy: RefitPolicy
    model: Fitted
    fit: Fit | None
    scoring: Scoring

    def is_pending(self) -> bool:
        """Return whether a run has scored its rows, and died before this was done."""
        try:
            section = read_summary(self.scoring.output).get("refit") or {}
        except (FileNotFoundError, ValueError):
            return False
        return bool(section.get("outcome") == PENDING)

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
        return {
            "policy": self.policy.text, "due": due,
            "outcome": None if due is None else PENDING, "reason": None,
            "old": _described(self.model), "new": None, "nominal_flagged_by_old": None,
            "seconds": None,
        }  # fmt: skip

    def execute(self, summary: dict[str, Any], lock: Lock) -> dict[str, Any]:
        """Fit again if that is due, and return the summary, which says what came of it.

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
        section = summary["refit"]
        if section["outcome"] != PENDING:
            return summary
        steps = Steps()
        with steps.timed("refit"):
            done = self._replace(summary, lock)
        seconds = {"seconds": round(steps.seconds, 3)}
        summary = summary | {"refit": summary["refit"] | done | seconds}
        lock.verify()
        publish(self.scoring, summary)
        _log(summary["refit"])
        return summary

    def _replace(self, summary: dict[str, Any], lock: Lock) -> dict[str, Any]:
        """Return the outcome, and why."""
        fit = self.fit
        if fit is None:
            return _rejected("the nominal rows cannot be read: see the warning above")
        if self.model.checksum != summary["refit"]["old"]["checksum"]:
            # Who replaced it: the same run, which then died, or another one?
            if self.model.source != fit.source:
                return {"outcome": SUPERSEDED, "reason": None}
            return _swapped(summary["refit"]["new"], self.model)
        if self.model.source == fit.source:
            return {"outcome": UNCHANGED, "reason": "the nominal rows are the same"}

        def accept(model: Fitted) -> None:
            judged = self._judged(model, fit)
            summary["refit"] = summary["refit"] | judged
            self._check(judged["new"])
            lock.verify()
            publish(self.scoring, summary)  # if this dies when the model is replaced

        try:
            model = fit.execute("", accept)
        except RejectedModelError as error:
            return _rejected(str(error))
        except (ValueError, TypeError, MemoryError, NotImplementedError) as error:
            return _rejected(short_message(error))
        return _swapped(summary["refit"]["new"], model)

    @eager_scope()
    def _judged(self, model: Fitted, fit: Fit) -> dict[str, Any]:
        """Return what is to be known of a new model before it replaces the old one."""
        nominal, _ = fit.nominal_rows()
        try:
            with input_errors_pass():
                check = check_calibration(model, nominal).as_json()
        except ValueError as error:
            raise RejectedModelError(
                f"its calibration could not be checked: {short_message(error)}"
            ) from error
        with input_errors_pass():
            n_flagged, n_measured = self._count_flagged(model, self.scoring.rows)
            of_nominal, _ = self._count_flagged(self.model, nominal)
        share = between = None
        if n_measured:
            share = n_flagged / n_measured
            between = list(clopper_pearson_interval(n_flagged, n_measured))
        return {
            "new": _described(model) | {
                "calibration_check": check, "flagged": n_flagged, "flagged_share": share,
                "flagged_between": between, "most_flagged_share": self._most_flagged(),
            },
            "nominal_flagged_by_old": of_nominal,
        }  # fmt: skip

    def _count_flagged(self, model: Fitted, rows: Any) -> tuple[int, int]:
        """Return how many rows a model flags, and how many have a p-value; computes."""
        alpha = self.scoring.made_from.settings["alpha"]
        margins = model.at_level(alpha, self.scoring.confidence).margins(rows)
        counts = compute((margins < 0).sum(), margins.notnull().sum())
        return int(counts[0]), int(counts[1])

    def _most_flagged(self) -> float:
        """Return the share of a run that may be flagged: false alarms, and anomalies."""
        limits = self.scoring.job.drift or DriftSection()
        alpha = float(self.scoring.made_from.settings["alpha"])
        return min(1.0, alpha * (1 + limits.tolerance) + limits.anomalies)

    def _check(self, new: Mapping[str, Any]) -> None:
        """Raise RejectedModelError for a model that is worse than what is promised."""
        if new["calibration_check"]["holds"] is False:
            raise RejectedModelError(
                "it flags more nominal rows that were held out than it promises"
            )
        between, most = new["flagged_between"], new["most_flagged_share"]
        if between is None:
            raise RejectedModelError("it measures no row of the run")
        if between[0] > most:
            raise RejectedModelError(
                f"it would flag {new['flagged_share']:.2%} of the rows of this run, and at "
                f"most {most:.2%} are to be expected"
            )


def _described(model: Fitted) -> dict[str, Any]:
    """Return what a summary says of a model."""
    return {
        "checksum": model.checksum, "created": model.created, "run_date": model.run_date,
        "nominal_rows": model.n_samples,
    }  # fmt: skip


def _swapped(judged: Mapping[str, Any], model: Fitted) -> dict[str, Any]:
    new = {**judged, **_described(model)}
    return {"outcome": SWAPPED, "reason": None, "new": new}


def _rejected(reason: str) -> dict[str, Any]:
    return {"outcome": REJECTED, "reason": reason}


def _log(section: Mapping[str, Any]) -> None:
    """Log what has become of a new model."""
    text = refit_text(section)
    logger.log(logging.WARNING if section["outcome"] == REJECTED else logging.INFO, text)


def refit_text(section: Mapping[str, Any]) -> str:
    """Return in words what has become of a new model."""
    reason = section["reason"]
    return {
        SWAPPED: "the model was fitted again, and scores from the next run on",
        UNCHANGED: f"the model is not fitted again: {reason}",
        REJECTED: f"the new model was rejected, and the old one goes on: {reason}",
        SUPERSEDED: "another run has replaced the model in the meantime",
        PENDING: "the model is to be fitted again: start the same run again",
    }[section["outcome"]]
