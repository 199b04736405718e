"""Prepare and execute a job: fit and save a model, score a table, or both.

    Job --prepare--> Run --execute--> model, OUT/

Job files, commands and calls all use it. Nothing is done twice: a model that was fitted
from the same files with the same parameters is loaded, a finished output is left alone, and
an interrupted run resumes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lpe_dask.batch.errors import JobKeyError
from lpe_dask.batch.fit import Existing, Fit, prepare_fit
from lpe_dask.batch.inputs import paths_of
from lpe_dask.batch.job import Job
from lpe_dask.batch.job_file import errors_with_location
from lpe_dask.batch.output import remove_fits
from lpe_dask.batch.refit import Refit
from lpe_dask.batch.refit_policy import RefitPolicy
from lpe_dask.batch.scoring import execute_scoring, tidy_scoring
from lpe_dask.batch.scoring_plan import Scoring, prepare_scoring
from lpe_dask.batch.summary import model_summary
from lpe_dask.batch.timing import Steps
from lpe_dask.model import (
    GROUP_PARAMETERS,
    SEARCH_PARAMETERS,
    Fitted,
    ModelFolder,
    ParameterError,
    checked_parameters,
)
from lpe_dask.storage import Lock, redact, redact_url, short_message
from lpe_dask.tasks import Workers

logger = logging.getLogger(__name__)

#: Arguments of `LPE` that decide which rows are flagged.
_LEVELS = ("alpha", "confidence")


@dataclass(frozen=True, slots=True)
class Run:
    """A job whose files and arguments have been checked; nothing is computed yet.

    Attributes
    ----------
    job : Job
    fit : Fit, optional
        How the model is fitted, or was, where its nominal rows are known.
    model : Fitted, optional
        If it exists already; None: it is the result of ``fit``.
    scoring : Scoring, optional
        None: nothing is to be scored.
    refit : Refit, optional
        What may follow, if the job has a policy, and a model.
    """

    job: Job
    fit: Fit | None
    model: Fitted | None
    scoring: Scoring | None
    refit: Refit | None = None

    @classmethod
    def prepare(cls, job: Job, existing: Existing = "keep") -> Run:
        """Return the run of a job, checked as far as that goes without rows.

        Nothing is computed and nothing written, so it needs no workers.
        """
        with errors_with_location(job):
            checked_parameters(job.lpe_arguments)  # also where nothing is fitted
            if job.score is None:
                fit, model = _load_or_prepare_model(job, (), existing)
                return cls(job, fit, model, None)
            data = paths_of(job.score.data, job.csv)
            policy = job.model.policy
            if policy is not None and _has_model(job):
                return _prepare_with_policy(job, data, existing, policy)
            fit, model = _load_or_prepare_model(job, data, existing)
            _check_drift_test_possible(job, fit, model)
            return cls(job, fit, model, prepare_scoring(job, data, fit, model, existing))

    def is_finished(self) -> bool:
        """Return whether nothing is left to do; then call `clean_up`, to do the job."""
        scoring = self.scoring
        if scoring is None:
            return self.model is not None
        return scoring.is_finished() and not self.has_only_refit_left()

    def is_begun(self) -> bool:
        """Return whether an interrupted run may have done a part of it."""
        if self.scoring is not None and self.scoring.is_begun():
            return True
        if self.model is not None or self.fit is None:
            return False
        return self.fit.is_begun("" if self.scoring is None else self.scoring.output)

    def clean_up(self) -> None:
        """Do what a run has left that died when all results were there; raises nothing."""
        if self.fit is not None and self.model is not None:
            self.fit.clean_up()
        if self.scoring is not None:
            tidy_scoring(self.scoring)

    def execute(
        self, workers: AbstractContextManager[None] | None = None
    ) -> dict[str, Any]:
        """Do what is to be done, and return the summary; raises as `score_files`.

        Parameters
        ----------
        workers : context manager, optional
            Entered once the output is locked, to compute inside. None: computes with the
            scheduler that is active.
        """
        # A fit locks the folder of its model.
        reserved = nullcontext() if self.scoring is None else self.scoring.reserved()
        with self.errors_with_location(), reserved as lock, workers or nullcontext():
            Workers.check_versions()
            return self.fit_and_score(lock)

    def errors_with_location(self) -> AbstractContextManager[None]:
        """Return a context that names file and key where an error is about the job file."""
        return errors_with_location(self.job)

    def fit_and_score(self, lock: Lock | None) -> dict[str, Any]:
        """Do both steps, as far as the job has them, and return the summary."""
        steps = Steps()
        model, fit, scoring = self.model, self.fit, self.scoring
        if self.refit is not None and (summary := self.refit.pending_summary()):
            assert lock is not None
            return self.refit.execute(summary, lock)
        if scoring is not None and scoring.overwrite:
            remove_fits(scoring.output)
        if model is None:
            assert fit is not None
            with steps.timed("fit"):
                model = fit.execute("" if scoring is None else scoring.output)
        elif fit is not None:
            fit.clean_up()
        check = None
        if fit is not None and self.job.model.check_calibration:
            with steps.timed("check calibration"):
                check = fit.calibration_check(model)
        if scoring is not None:
            assert lock is not None
            describe_refit = None if self.refit is None else self.refit.section
            summary = execute_scoring(scoring, model, check, lock, steps, describe_refit)
            return summary if self.refit is None else self.refit.execute(summary, lock)
        summary = model_summary(model, check, steps.seconds)
        return {"model": redact_url(ModelFolder(self.job.place).url)} | summary

    def has_only_refit_left(self) -> bool:
        """Return whether the rows are scored, and the model is to be fitted again."""
        return self.refit is not None and self.refit.pending_summary() is not None


def _load_or_prepare_model(
    job: Job, data: Sequence[str], existing: Existing
) -> tuple[Fit | None, Fitted | None]:
    """Return how the model of a job is fitted, or was, and the model if it exists.

    The rows to score, ``data``, are the nominal ones, too, if there are no others.
    """
    path, refit = job.model.path, job.model.refit is True
    if job.nominal is None and path is not None:
        return None, ModelFolder(path).load()
    stored = ModelFolder(path).source() if path is not None and existing == "keep" else None
    try:
        fit = prepare_fit(job, data, existing)
    except FileNotFoundError as error:
        if path is None or stored is None or refit:
            raise
        logger.warning("the model at %s is used as it is: %s", redact(path), error)
        return None, ModelFolder(path).load()
    if path is None or stored is None or (refit and stored != fit.source):
        return fit, None
    model = ModelFolder(path).load()
    if model.source != stored:  # another run has replaced it in the meantime
        return _load_or_prepare_model(job, data, existing)
    # If rows are scored, levels are a setting of the output, and otherwise of the model.
    levels = {tuple(of.parameters[name] for name in _LEVELS) for of in (model, fit)}
    has_alpha = job.score is not None or len(levels) == 1
    if refit and not has_alpha:
        return fit, None
    if stored != fit.source or not has_alpha:
        _check_parameters_match(model, job, fit)
        logger.info(
            "the model at %s is used as it is; %s have changed since it was fitted (refit "
            "= true fits it again)", redact(path), _possibly_changed(model, fit),
        )  # fmt: skip
    return fit, model


def _has_model(job: Job) -> bool:
    path = job.model.path
    return path is not None and ModelFolder(path).source() is not None


def _prepare_with_policy(
    job: Job, data: Sequence[str], existing: Existing, policy: RefitPolicy
) -> Run:
    """Return the run of a job whose model is there, and may be replaced after it."""
    assert job.model.path is not None
    model, fit, obstacle = ModelFolder(job.model.path).load(), None, None
    try:
        fit = prepare_fit(job, data, "keep")
        if model.columns not in (None, fit.columns):
            raise ValueError(
                f"the nominal rows have columns {fit.columns} instead of {model.columns}."
            )
    except (JobKeyError, ParameterError):
        raise
    except (OSError, ValueError, TypeError) as error:
        fit, obstacle = None, short_message(error)
        logger.warning(
            "the model at %s goes on, as none can be fitted from the nominal rows: %s",
            redact(job.model.path), obstacle,
        )  # fmt: skip
    if fit is not None and model.source != fit.source:
        _check_parameters_match(model, job, fit)
    scoring = prepare_scoring(job, data, fit, model, existing)
    return Run(job, fit, model, scoring, Refit(policy, model, fit, scoring, obstacle))


def _possibly_changed(model: Fitted, fit: Fit) -> str:
    """Return in words what may differ from a fit that parameters do not differ from."""
    names = ["the nominal rows"]
    if model.quality is not None:
        names += ["alpha", "pynndescent's version"]
    if any(
        model.parameters[name] != fit.parameters[name]
        for name in ("calibration", "confidence")
    ):
        names.append("the arguments that name the same calibration")
    return " or ".join(names)


def _check_parameters_match(model: Fitted, job: Job, fit: Fit) -> None:
    """Raise ValueError if a model was fitted with other arguments than those of a job."""
    fitted_with, wanted = model.parameters, fit.parameters
    # These do not change what is measured, or the fit has drawn them itself.
    is_free = {"anomaly_log_density", *({"random_state"} - job.lpe_arguments.keys())}
    if wanted["by"] is None and fitted_with["by"] is None:
        is_free.update(GROUP_PARAMETERS)
    if job.score is not None and not wanted["by"]:  # they decide which groups are small
        is_free.update(_LEVELS)
    if model.quality is None and wanted["algorithm"] != "nn_descent":
        is_free.update(SEARCH_PARAMETERS)
    if model.calibration_by(wanted) == model.calibration_kind:
        is_free.add("calibration")
    else:  # which confidence decides, where it is "auto"
        is_free.discard("confidence")
    differing = [
        f"{name}={fitted_with[name]!r} instead of {value!r}"
        for name, value in wanted.items()
        if name not in is_free and not _are_same(name, fitted_with[name], value)
    ]
    names = model.columns
    if names is not None and names != fit.columns:
        differing.append(f"columns {names} instead of {fit.columns}")
    if model.confirmed_digest != fit.confirmed_digest and job.model.policy is None:
        n_wanted = 0 if fit.confirmed is None else len(fit.confirmed.numbers)
        others = " other ones" if n_wanted == model.n_confirmed else ""
        differing.append(
            f"{model.n_confirmed} rows left out (without_rows) instead of "
            f"{n_wanted}{others}"
        )
    if differing:
        others = "set refit = true, or start from scratch (overwrite=True, --overwrite)"
        if job.model.policy is not None:
            others = "or set refit = true for one run"
        raise ValueError(
            f"{job.path}: the model at {job.model.path} was fitted with "
            f"{', '.join(differing)}. Give the same values in the job, {others}."
        )


def _check_drift_test_possible(job: Job, fit: Fit | None, model: Fitted | None) -> None:
    """Raise ValueError if a single run is to be tested, and has nothing to be so by."""
    if job.path or job.drift is None:
        return
    if model is not None:
        kind = model.calibration_kind
    else:
        assert fit is not None
        kind = fit.parameters["calibration"]
    if kind != "conformal":
        raise ValueError(
            f"--fail-on-drift tests a single run with calibration='conformal' only, and "
            f"not {kind!r}. Give that (--calibration conformal), leave the option out, or "
            f"run a job, whose runs are tested against its first ones."
        )


def _are_same(name: str, *values: Any) -> bool:
    """Return whether values of an argument mean the same."""
    if name == "own":  # in any order
        values = tuple(map(sorted, values))
    return len({json.dumps(of, sort_keys=True, default=dict) for of in values}) == 1
