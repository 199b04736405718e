"""Prepare what a job says, and do it: fit and save a model, score a table, or both.

    Job --prepare--> Run --execute--> model, OUT/

A job file, a command and a call all come to this. Nothing is done twice: a model that was
fitted from the same files with the same parameters is loaded, an output that is there is
left alone, and a run that was interrupted goes on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from lpe_dask.batch.fit import Expect, Fit, check_absent, ignore, prepare_fit
from lpe_dask.batch.job import Job, Source
from lpe_dask.batch.output import remove_fits
from lpe_dask.batch.scoring import Scoring, prepare_scoring
from lpe_dask.batch.summary import fit_summary
from lpe_dask.model import (
    Fitted,
    learnt_by,
    load_fitted,
    model_source,
    model_url,
    with_defaults,
)
from lpe_dask.pvalues import choose_calibration
from lpe_dask.storage import Lock
from lpe_dask.tables import is_there

logger = logging.getLogger(__name__)

#: What becomes of a model or an output that is there: it is kept, and is all that there was
#: to do; or the run is refused; or it is replaced.
Existing = Literal["keep", "refuse", "replace"]


@dataclass(frozen=True, slots=True)
class Run:
    """A job whose files and arguments have been checked; nothing is computed yet.

    Attributes
    ----------
    job : Job
    fit : Fit, optional
        How the model is fitted, or was, where its nominal rows are known.
    model : Fitted, optional
        Where it is there already; None: it comes of ``fit``.
    scoring : Scoring, optional
        None: nothing is to be scored.
    """

    job: Job
    fit: Fit | None
    model: Fitted | None
    scoring: Scoring | None

    def is_finished(self) -> bool:
        """Return whether all that the job says is there; then nothing is noted of it."""
        if self.scoring is None:
            return self.model is not None
        is_finished = self.scoring.is_finished()
        if is_finished and self.job.today is not None:
            self.job.today.forget()
        return is_finished

    @contextmanager
    def reserved(self) -> Iterator[Lock | None]:
        """Lock the output while the context is open; a fit locks its model's folder.

        Raises
        ------
        OSError
            If nothing can be written there, or another run is at work on it.
        """
        if self.scoring is None:
            yield None
            return
        day = self.job.today
        with self.scoring.reserved() as lock, day.noted() if day else nullcontext():
            yield lock

    def execute(self, lock: Lock | None, expect: Expect = ignore) -> dict[str, Any]:
        """Do what is to be done, and return the summary; raises as `score_files`.

        Parameters
        ----------
        lock : Lock, optional
            As `reserved` gives it.
        expect : callable
            Is told how many rows the next searches measure; None where that is not known.
        """
        began = time.perf_counter()
        model, fit, scoring = self.model, self.fit, self.scoring
        if scoring is not None and scoring.overwrite:
            remove_fits(scoring.output)
        if model is None:
            assert fit is not None
            model = fit.execute("" if scoring is None else scoring.output, expect)
        check = None if fit is None else fit.calibration_check(model)
        if scoring is not None:
            assert lock is not None
            return scoring.execute(model, check, lock, expect, began)
        url = model_url(self.job.place)
        return fit_summary(model, url, check, time.perf_counter() - began)


def prepare(job: Job, existing: Existing = "keep") -> Run:
    """Return what is to be done for a job, checked as far as that goes without rows.

    Nothing is computed and nothing written, so it needs no workers.
    """
    if job.score is None:
        fit, model = _model_of(job, (), existing)
        return Run(job, fit, model, None)
    data = _paths(job.score.data)
    fit, model = _model_of(job, data, existing)
    overwrite = existing == "replace"
    scoring = prepare_scoring(job, data, fit, model, overwrite)
    if existing == "refuse":
        scoring.check_not_finished()
    return Run(job, fit, model, scoring)


def _model_of(
    job: Job, data: Sequence[str], existing: Existing
) -> tuple[Fit | None, Fitted | None]:
    """Return how the model of a job is fitted, or was, and the model if it is there.

    The rows to score, ``data``, are the nominal ones, too, if there are no others.
    """
    path, refit = job.model.path, job.model.refit
    if job.nominal is None and path is not None:
        return None, load_fitted(path)
    stored = model_source(path) if path is not None and existing == "keep" else None
    try:
        fit = _fit_of(job, data, is_new=existing == "refuse")
    except FileNotFoundError as error:
        if path is None or stored is None or refit:
            raise
        logger.warning("the model at %s is used as it is: %s", path, error)
        return None, load_fitted(path)
    if path is None or stored is None or (refit and stored != fit.source):
        return fit, None
    model = load_fitted(path)
    if model.source != stored:  # it was replaced meanwhile, and all that depends on it
        return _model_of(job, data, existing)
    # Where rows are scored, their level is that of the output; a model alone has its own.
    alphas = {model.parameters["alpha"], fit.parameters["alpha"]}
    has_alpha = job.score is not None or len(alphas) == 1
    if refit and not has_alpha:
        return fit, None
    if stored != fit.source or not has_alpha:
        _check_same(model, job, fit)
        logger.info(
            "the model at %s is used as it is; the nominal rows have changed since it was "
            "fitted (refit = true fits it anew)", path,
        )  # fmt: skip
    return fit, model


def _fit_of(job: Job, data: Sequence[str], is_new: bool) -> Fit:
    path, nominal = job.model.path, job.nominal or job.score
    assert nominal is not None
    fit = prepare_fit(
        data if job.is_own else _paths(nominal.data),
        nominal.columns,
        job.lpe_arguments,
        None if path is None else model_url(path),
        is_new=is_new,
        check_calibration=job.model.check_calibration,
    )
    if is_new and path is not None:
        check_absent(path)
    return fit


def _check_same(model: Fitted, job: Job, fit: Fit) -> None:
    """Raise ValueError if a model is not what a job, or its silence, says about it."""
    have, said = model.parameters, with_defaults(job.lpe_arguments)
    # None of these changes what is measured, or a fit has drawn it by itself.
    for name, is_free in (
        ("algorithm", True),
        ("anomaly_log_density", True),
        ("alpha", job.score is not None),
        ("calibration", _takes(said, model) == model.calibration_kind),
        ("random_state", "random_state" not in job.lpe_arguments),
    ):
        if is_free:
            del said[name]
    differing = [
        f"{name}={have[name]!r} instead of {value!r}"
        for name, value in said.items()
        if _as_json(have[name]) != _as_json(value)
    ]
    names = model.columns
    if names is not None and names != list(fit.nominal.columns):
        differing.append(f"columns {names} instead of {list(fit.nominal.columns)}")
    if differing:
        raise ValueError(
            f"{job.path}: the model at {job.model.path} was fitted with "
            f"{', '.join(differing)}. Say the same in the job, set refit = true, or do all "
            f"of it anew (overwrite=True, --overwrite)."
        )


def _takes(parameters: Mapping[str, Any], model: Fitted) -> str:
    """Return the calibration that parameters stand for, for as many rows as a model has."""
    if parameters["calibration"] != "auto":
        return str(parameters["calibration"])
    learnt = learnt_by(parameters)
    return choose_calibration(learnt, model.n_samples, model.n_features)[0]


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _paths(sources: Sequence[Source]) -> list[str]:
    """Return the paths of a job's table; days of a range may have no files."""
    absent = [s.path for s in sources if s.is_optional and not is_there(s.path)]
    if absent:
        logger.warning("there are no files at %s: left out", ", ".join(absent))
    there = [s.path for s in sources if s.path not in absent]
    if absent and not there:
        raise FileNotFoundError(
            f"there are no files at {', '.join(absent)}. At least one day of the range has "
            f"to have some."
        )
    return there
