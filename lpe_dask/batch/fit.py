"""Fit nominal rows in files as one run, which resumes an earlier one if interrupted.

    NOMINAL --read--> frame, without confirmed anomalies
                        --fit--> MODEL, if it is to be saved
                           +--> _fit-<hex>/    what has been measured, meanwhile

Everything about a fit follows from its files and parameters, also which rows are drawn, so
that the same fit, started again, has the same result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, ClassVar, Literal
from uuid import uuid4

from lpe_dask.batch.confirmed_rows import ConfirmedRows
from lpe_dask.batch.errors import JobKeyError, input_errors_pass
from lpe_dask.batch.fingerprint import check_unchanged, digest
from lpe_dask.batch.inputs import paths_of
from lpe_dask.batch.job import Job
from lpe_dask.batch.output import check_output, clean_up, remove_fits
from lpe_dask.model import (
    GROUP_PARAMETERS,
    SEARCH_PARAMETERS,
    Fitted,
    ModelFolder,
    check_calibration,
    checked_parameters,
    exact_level,
    fit_model,
    learned_components,
)
from lpe_dask.storage import Folder, child_url, redact
from lpe_dask.tables import (
    ExclusionError,
    FileTable,
    GroupColumnError,
    open_features,
)

logger = logging.getLogger(__name__)

#: What happens to an existing model or output: it is kept, as the result of the run; or the
#: run is refused; or it is replaced.
Existing = Literal["keep", "refuse", "replace"]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit whose arguments, files and columns have been checked; nothing is computed yet.

    Attributes
    ----------
    parameters : dict
        All arguments of `LPE`.
    nominal : dask DataFrame
        The columns to measure; after them those that divide rows into groups.
    source : str
        Tells these files and parameters from others.
    url : str, optional
        Where to save the model.
    table : FileTable
        With all columns.
    is_new : bool
        Whether the fit is refused if a model exists.
    advises : bool
        Whether no scale was given, so that the fit says if one is needed.
    confirmed : ConfirmedRows, optional
        Rows of ``nominal`` that are left out, as they are anomalies.
    run_date : str, optional
        The day of the run, of a job file.
    """

    #: What is raised for what was given: the same fit would raise it again.
    REFUSALS: ClassVar[tuple[type[Exception], ...]] = (
        ValueError, TypeError, MemoryError, NotImplementedError,
    )  # fmt: skip

    parameters: dict[str, Any]
    nominal: Any
    source: str
    table: FileTable
    url: str | None = None
    is_new: bool = False
    advises: bool = False
    confirmed: ConfirmedRows | None = None
    run_date: str | None = None

    @property
    def by(self) -> list[Any]:
        """The columns that divide rows into groups."""
        return list(self.parameters["by"] or ())

    @property
    def columns(self) -> list[Any]:
        """The columns that are measured."""
        return list(self.nominal.columns)[: len(self.nominal.columns) - len(self.by)]

    @property
    def confirmed_digest(self) -> str | None:
        """Identifies the rows that are left out; None: there are none."""
        return None if self.confirmed is None else self.confirmed.digest

    @property
    def kinds(self) -> dict[int, str | None]:
        """What the categorical columns have, by position; None where only rows show it."""
        categorical = self.parameters["categorical"]
        return self.table.categorical_kinds(self.nominal, categorical, len(self.by))

    def execute(
        self, folder: str, accept: Callable[[Fitted], None] | None = None
    ) -> Fitted:
        """Fit, save if that was asked for, and return the model; computes.

        Parameters
        ----------
        folder : str
            URL of a folder for what is measured meanwhile, where the model is not saved;
            the caller holds its lock, and removes it from there at the end.
        accept : callable, optional
            Is called with the model before it is saved; if that raises, it is not.

        Raises
        ------
        ValueError, TypeError, MemoryError, OSError
            For what was given.
        RunError
            If it failed after that; what was measured stays.
        """
        if self.url is None:
            return self._fit(folder)
        place = ModelFolder(self.url)
        with place.lock() as lock:
            if self.is_new:
                check_model_absent(self.url)  # now nobody else makes one
            model = self._fit(self.url)
            if accept is not None:
                try:
                    accept(model)
                except self.REFUSALS:  # which will not be otherwise next time
                    remove_fits(self.url)
                    raise
            with input_errors_pass():
                model = place.write(model, lock)
            with suppress(OSError):  # the model is there
                remove_fits(self.url)
        logger.info("saved the model to %s", redact(self.url))
        return model

    def clean_up(self) -> None:
        """Remove what a run has left that died when it had saved the model."""
        if self.url is not None:
            clean_up(self.url, lambda url: ModelFolder(url).lock())

    def calibration_check(self, model: Fitted) -> dict[str, Any] | None:
        """Return the result of `LPE.check_calibration` for a summary; computes.

        None, and a warning, if it cannot be done.

        Parameters
        ----------
        model : Fitted
            That `execute` has fitted, now or at an earlier time.
        """
        try:
            with input_errors_pass():
                check = check_calibration(model, self.nominal_rows()[0])
        except ValueError as error:  # the model itself is right
            logger.warning("the calibration could not be checked: %s", error)
            return None
        if check.holds is False:
            logger.warning(
                "false alarms are not as rare as calibration=%r promises:\n%s",
                check.calibration, check.table.to_string(index=False),
            )  # fmt: skip
        return check.as_json()

    def checkpoint_url(self, folder: str) -> str:
        """Return the URL of the checkpoint of the rows measured so far, within a folder.

        By this version only: another one may change results.
        """
        name = digest([self.source, metadata.version("lpe_dask")])
        return child_url(folder, f"_fit-{name}")

    def is_begun(self, folder: str) -> bool:
        """Return whether some rows are measured already; ``folder`` as in `execute`."""
        return bool(Folder(self.checkpoint_url(self.url or folder)).names())

    def _fit(self, folder: str) -> Fitted:
        with input_errors_pass():
            nominal, sizes = self.nominal_rows()
            model = fit_model(
                self.parameters, nominal, self.checkpoint_url(folder),
                advises=self.advises, sizes=sizes,
            )  # fmt: skip
        check_unchanged(self.table, remove_fits, folder)
        n_confirmed = 0 if self.confirmed is None else len(self.confirmed.numbers)
        return replace(
            model, source=self.source, n_confirmed=n_confirmed,
            confirmed_digest=self.confirmed_digest, run_date=self.run_date,
        )  # fmt: skip

    def nominal_rows(self) -> tuple[Any, list[int] | None]:
        """Return those to fit, and the sizes of partitions, if known; computes for some."""
        if self.confirmed is None:
            return self.nominal, self.table.known_sizes
        columns = list(self.nominal.columns)
        return self.confirmed.without(self.table, self.columns, columns)


def prepare_fit(job: Job, data: Sequence[str], existing: Existing) -> Fit:
    """Return the fit of a job, checked as far as that goes without reading rows.

    Parameters
    ----------
    job : Job
    data : sequence of str
        The files of the rows to score, which are nominal if the job names no others.
    existing : {"keep", "refuse", "replace"}
        What happens to an existing model.
    """
    section = job.nominal or job.score
    assert section is not None
    nominal = data if job.scores_nominal_rows else paths_of(section.data, job.csv)
    parameters = checked_parameters(job.lpe_arguments)
    by = parameters["by"] or ()
    try:
        table, frame = open_features(
            nominal, section.measured, categorical=parameters["categorical"], by=by
        )
    except ExclusionError as error:
        name = "score" if job.nominal is None else "nominal"
        raise JobKeyError(str(error), name, "exclude") from None
    except GroupColumnError as error:
        raise JobKeyError(str(error), "model", "by") from None
    path, is_new = job.model.path, existing == "refuse"
    url = None if path is None else check_output(ModelFolder(path).url, nominal)
    columns = list(frame.columns)[: len(frame.columns) - len(by)]
    if by:
        parameters["by"] = list(frame.columns)[len(columns) :]  # as the table has them
    confirmed = None
    if job.nominal is not None and job.nominal.without_rows is not None:
        marked = ConfirmedRows.read(job.nominal.without_rows)
        confirmed = marked if marked.numbers else None
    source = source_of(table, columns, parameters, job, confirmed)
    is_exact = parameters["algorithm"] != "nn_descent"
    is_whole = (
        is_exact
        and parameters["calibration_size"] is None
        and uses_leave_one_out(parameters)
    )
    is_drawn = parameters["calibration"] != "auto" and not is_whole
    if is_drawn and parameters["random_state"] is None:
        parameters["random_state"] = int(source[:8], 16)
    if is_new and path is not None:
        check_model_absent(path)
    advises = "scale" not in job.lpe_arguments
    run_date = None if job.date is None else job.date.isoformat()
    return Fit(parameters, frame, source, table, url, is_new, advises, confirmed, run_date)


def source_of(
    table: FileTable,
    names: Sequence[Any],
    parameters: Mapping[str, Any],
    job: Job,
    confirmed: ConfirmedRows | None = None,
) -> str:
    """Return an identifier of the model of these nominal rows, but for confirmed ones."""
    decisive = _result_parameters(parameters)
    if decisive["anomaly_log_density"] is not None:
        # Functions cannot be compared, so no later run is the same.
        decisive["anomaly_log_density"] = uuid4().hex
    made_of = {"files": table.files.stamps, "columns": names, "parameters": decisive}
    left_out = {} if confirmed is None else {"without_rows": confirmed.digest}
    return digest(made_of | job.csv_setting | left_out)


def _result_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that p-values depend on.

    If all are exact, neither alpha nor which algorithm; but alpha and confidence decide
    which groups are small.
    """
    others = ("alpha", "confidence", *SEARCH_PARAMETERS, *GROUP_PARAMETERS)
    decisive = {name: value for name, value in parameters.items() if name not in others}
    confidence = parameters["confidence"]
    if confidence is not None and parameters["calibration"] == "auto":
        decisive["calibration"] = "auto, conformal"
    if parameters["by"]:
        decisive |= {name: parameters[name] for name in ("alpha", *GROUP_PARAMETERS)}
        decisive |= {} if confidence is None else {"confidence": confidence}
        decisive["own"] = sorted(parameters["own"])
    if parameters["algorithm"] != "nn_descent":
        return decisive
    approximate = {name: parameters[name] for name in SEARCH_PARAMETERS}
    approximate["recheck"] = exact_level(parameters)
    return decisive | approximate | {"pynndescent": metadata.version("pynndescent")}


def uses_leave_one_out(parameters: Mapping[str, Any]) -> bool:
    """Return whether the calibration is "loo", whatever the number of nominal rows."""
    calibration = parameters["calibration"]
    is_auto = calibration == "auto" and parameters["confidence"] is None
    return calibration == "loo" or (is_auto and not learned_components(parameters))


def check_model_absent(path: str) -> None:
    """Raise FileExistsError if there is a model."""
    if ModelFolder(path).source() is not None:
        raise FileExistsError(
            f"there is a model at {path}. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )
