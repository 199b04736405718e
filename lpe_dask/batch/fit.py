"""Fit nominal rows in files as one run: it goes on where an earlier one was interrupted.

    NOMINAL --read--> frame --fit--> MODEL, if it is to be saved
                               +--> _fit-<hex>/    what has been measured, meanwhile

Everything about a fit follows from its files and parameters, also which rows are drawn, so
that the same fit, started again, comes to the same end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any
from uuid import uuid4

from lpe_dask.batch.fingerprint import changed_files, digest
from lpe_dask.batch.output import check_output, remove_fits
from lpe_dask.model import (
    Checkpoint,
    Fitted,
    check_calibration,
    check_parameters,
    fit_model,
    learnt_by,
    model_source,
    reserved_model,
    save_fitted,
    with_defaults,
)
from lpe_dask.storage import brief
from lpe_dask.tables import (
    FileTable,
    Paths,
    TableFiles,
    as_given,
    check_numeric,
    find_files,
    open_table,
    paths_in,
    select_columns,
    shown_paths,
)

logger = logging.getLogger(__name__)


#: Is told how many rows the next searches measure; None where that is not known.
Expect = Callable[[int | None], None]


def ignore(n_rows: int | None) -> None:
    """Do not mind how many rows there are."""


class RunError(RuntimeError):
    """A run that failed after its tasks had started, rather than on what it was given."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit whose arguments, files and columns have been checked; nothing is computed yet.

    Attributes
    ----------
    parameters : dict
        All arguments of `LPE`.
    nominal : dask DataFrame
        The columns to measure.
    source : str
        Tells these files and parameters from others.
    url : str, optional
        Where to save the model.
    table : FileTable
        With all columns.
    is_new : bool
        Whether a model that is there is to stay, and the fit is refused then.
    check_calibration : bool
        Whether to judge the model by rows that are held out, once it is fitted.
    """

    parameters: dict[str, Any]
    nominal: Any
    source: str
    table: FileTable
    url: str | None = None
    is_new: bool = False
    check_calibration: bool = False

    @property
    def n_measured(self) -> int | None:
        """Calibration rows, where it is known before the fit that these are all rows."""
        return self.table.n_rows if _measures_all(self.parameters) else None

    def execute(self, folder: str, expect: Expect = ignore) -> Fitted:
        """Fit, save if that was asked for, and return the model; computes.

        Parameters
        ----------
        folder : str
            URL of a folder for what is measured meanwhile, where the model is not saved;
            whoever calls holds its lock, and removes it from there at the end.
        expect : callable
            Is told how many rows are going to be measured; None where that is not known.

        Raises
        ------
        ValueError, TypeError, MemoryError, OSError
            For what was given.
        RunError
            If it failed after that; what was measured stays.
        """
        expect(self.n_measured)
        if self.url is None:
            return self._fit(folder)
        with reserved_model(self.url) as lock:
            if self.is_new:
                check_absent(self.url)  # now nobody else makes one
            model = self._fit(self.url)
            with telling_input_from_run():
                save_fitted(model, lock)
            with suppress(OSError):  # the model is there
                remove_fits(self.url)
        logger.info("saved the model to %s", self.url)
        return model

    def calibration_check(self, model: Fitted) -> dict[str, Any] | None:
        """Return what `LPE.check_calibration` finds, for a summary; computes.

        None where that was not asked for, or cannot be done, which a log line tells.

        Parameters
        ----------
        model : Fitted
            That `execute` has fitted, now or at an earlier time.
        """
        if not self.check_calibration:
            return None
        try:
            with telling_input_from_run():
                check = check_calibration(model, self.nominal)
        except ValueError as error:  # the model itself is right
            logger.warning("the calibration could not be checked: %s", error)
            return None
        if check.holds is False:
            logger.warning(
                "false alarms are not as rare as calibration=%r promises:\n%s",
                check.calibration, check.table.to_string(index=False),
            )  # fmt: skip
        return check.as_json()

    def checkpoint(self, folder: str) -> Checkpoint:
        """Return what holds the rows that were measured, within a folder.

        By this version: another one may change results.
        """
        name = digest([self.source, metadata.version("lpe_dask")])
        return Checkpoint(f"{folder}/_fit-{name}")

    def _fit(self, folder: str) -> Fitted:
        with telling_input_from_run():
            model = fit_model(self.parameters, self.nominal, self.checkpoint(folder))
        check_unchanged(self.table.files)
        return replace(model, source=self.source)


def prepare_fit(
    nominal: Paths,
    columns: Sequence[Any] | None,
    arguments: Mapping[str, Any],
    url: str | None = None,
    *,
    is_new: bool = False,
    check_calibration: bool = False,
) -> Fit:
    """Return the fit of nominal rows, checked as far as that goes without reading them.

    Parameters
    ----------
    nominal : str, path, or a sequence of them
        As for `open_table`.
    columns : sequence, optional
        Columns to measure, as for `column_names.as_given`; None: all.
    arguments : mapping
        Of `LPE`.
    url : str, optional
        Where to save the model.
    is_new, check_calibration : bool
        As in `Fit`.
    """
    parameters = with_defaults(arguments)
    check_parameters(parameters)
    table = open_table(nominal, columns)
    frame = table.frame()
    chosen = None if columns is None else as_given(columns, frame.columns)
    frame = measured_columns(nominal, frame, chosen)
    # Neither alpha nor the algorithm changes what is measured.
    decisive = {k: v for k, v in parameters.items() if k not in ("alpha", "algorithm")}
    if decisive["anomaly_log_density"] is not None:
        # Functions cannot be told from each other, so no later run is the same.
        decisive["anomaly_log_density"] = uuid4().hex
    if url is not None:
        check_output(url, paths_in(nominal))
    files, names = table.files.stamps, list(frame.columns)
    source = digest({"files": files, "columns": names, "parameters": decisive})
    is_drawn = parameters["calibration"] != "auto" and not _measures_all(parameters)
    if is_drawn and parameters["random_state"] is None:
        parameters["random_state"] = int(source[:8], 16)
    return Fit(parameters, frame, source, table, url, is_new, check_calibration)


def takes_loo(parameters: Mapping[str, Any]) -> bool:
    """Return whether the calibration is "loo", whatever the number of nominal rows."""
    calibration = parameters["calibration"]
    return calibration == "loo" or (calibration == "auto" and not learnt_by(parameters))


def _measures_all(parameters: Mapping[str, Any]) -> bool:
    """Return whether all nominal rows are calibration rows, whatever their number."""
    return takes_loo(parameters) and parameters["calibration_size"] is None


def check_absent(path: str) -> None:
    """Raise FileExistsError if there is a model."""
    if model_source(path) is not None:
        raise FileExistsError(
            f"there is a model at {path}. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )


def check_unchanged(files: TableFiles) -> None:
    """Raise RunError if files are not what they were when the run began."""
    changed = changed_files(files.stamps, find_files(files.paths).stamps)
    if changed:
        raise RunError(
            f"the run stopped because its files changed while it read them: {changed[0]}. "
            f"Start it again when they stay as they are; what it has written is refused "
            f"then, and replaced with overwrite=True (--overwrite)."
        )


def measured_columns(path: Paths, frame: Any, columns: Sequence[Any] | None) -> Any:
    """Return the columns to measure, which are numbers; errors name the files."""
    try:
        if columns is not None:
            frame = select_columns(frame, columns)
        if len(frame.columns) == 0:
            raise ValueError("no columns to measure. Name some (columns=, --columns).")
        check_numeric(frame)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{shown_paths(path)}: {error}") from error
    return frame


@contextmanager
def telling_input_from_run() -> Iterator[None]:
    """Let errors about what was given pass; anything else is a `RunError`."""
    try:
        yield
    except (ValueError, TypeError):
        raise
    except Exception as error:
        if type(error) is MemoryError:  # of a plan; that of an allocation is a subclass
            raise
        raise RunError(f"the run stopped while it fitted: {brief(error)}") from error
