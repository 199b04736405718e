"""Keep what the runs of a job say together: whether the model still fits its input.

    counts of a run, monitor.json --update--> verdict, new monitor.json

    out/2026-11-20/     the output of a run
    out/monitor.json    beside it: one state for each job, model and alpha

The state is written after the summary, which has the counts, too: where a run dies between
the two, its next start adds them. Nothing here fails a run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tenacity
from numpy.typing import NDArray

from lpe_dask.batch.fingerprint import digest
from lpe_dask.batch.output import SUMMARY_NAME, write_json
from lpe_dask.pvalues import Cells, Drift, Tolerances, new_state, update
from lpe_dask.storage import Folder, LockedError, brief, hold, is_dead

logger = logging.getLogger(__name__)

#: Name of the file, and of the folder whose lock it is changed under.
MONITOR_NAME, LOCKED_NAME = "monitor.json", "_monitor"

#: The version of its format.
FORMAT = 1

#: Seconds to wait for others that change the file.
WAIT_SECONDS = 60

#: Most states of a job in the file, and of all jobs: those that were used last, so that
#: old models go.
MOST_OF_JOB, MOST_STATES = 20, 200


@dataclass(frozen=True, slots=True)
class Watched:
    """Which series of runs a run belongs to.

    Attributes
    ----------
    folder : str
        Where the file is.
    job : str
        Tells the job from others there.
    model : str
        Tells the calibration from others.
    phi : float
        As `pvalues.phi_of` gives it.
    cells : Cells
    run, output : str
        The fingerprint of the run, and its output.
    tolerances : Tolerances
    """

    folder: str
    job: str
    model: str
    phi: float
    cells: Cells
    run: str
    output: str
    tolerances: Tolerances

    @property
    def key(self) -> str:
        """Tells the state of the series from others, and begins with its job."""
        series = digest([self.job, self.model, self.cells.alpha])
        return f"{self.of_job}{series}"

    @property
    def of_job(self) -> str:
        """The beginning of the keys of all series of the job."""
        return f"{digest([self.job])}-"

    def judged(self, states: dict[str, Any], counts: NDArray[np.int64]) -> Drift:
        """Return what the counts of this run say, after those in the states."""
        new = new_state(self.model, self.cells, self.phi, self.tolerances.delta)
        state = states.get(self.key, new)
        given = (self.cells, counts, self.run, self.output, self.tolerances)
        try:
            drift = update(state, *given)
        except ValueError as error:
            logger.warning(
                "the series of runs in %s begins anew: %s", _url(self.folder), brief(error)
            )
            return update(new, *given)
        if (delta := drift.state["delta"]) != self.tolerances.delta:
            logger.warning(
                "delta = %g was set when the series of runs in %s began, and is not "
                "changed: another one holds from the next fit on", delta, _url(self.folder),
            )  # fmt: skip
        return drift

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON, for a summary."""
        content = asdict(self)
        content["cells"]["edges"] = list(self.cells.edges)
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Watched:
        """Return what `as_json` has converted."""
        cells = {**content["cells"], "edges": tuple(content["cells"]["edges"])}
        tolerances = Tolerances(**content["tolerances"])
        return cls(**content | {"cells": Cells(**cells), "tolerances": tolerances})


class Night:
    """A run that is added to its series.

    Attributes
    ----------
    drift : Drift
        What it says, after the earlier runs.
    """

    def __init__(
        self,
        watched: Watched,
        states: dict[str, Any] | None,
        counts: NDArray[np.int64],
        *,
        may_keep: bool,
    ) -> None:
        self._may_keep = may_keep and states is not None
        self._watched, self._states, self._counts = watched, states, counts
        self.drift = watched.judged(states or {}, counts)

    def section(self, *, is_flagged: bool) -> dict[str, Any]:
        """Return the section of a summary about this run, the same if it is done again.

        ``is_flagged`` as in `Drift.text`.
        """
        drift = self.drift.as_json()
        is_replay, is_foreign = drift.pop("is_replay"), self._states is None
        return {
            **drift,
            "is_counted": not is_foreign and (drift["is_counted"] or is_replay),
            "text": self.drift.text(is_flagged=is_flagged),
            "delta": self.drift.state["delta"],
            "history": self.drift.history(),
            "counts": self._counts.tolist(),
            "series": self._watched.as_json(),
        }

    def keep(self) -> None:
        """Write the new state; call it once the summary is there."""
        watched = self._watched
        if self._states is None or not self._may_keep or self.drift.is_replay:
            return
        if not self.drift.is_counted:
            logger.warning(
                "this run is not counted in %s, where another one with the same output is: "
                "give each night an output of its own, such as one with {date}",
                _url(watched.folder),
            )  # fmt: skip
            return
        content = {"format": FORMAT, "states": self._with_new_state(self._states)}
        try:
            write_json(watched.folder, MONITOR_NAME, content, indent=None)
        except Exception as error:  # libraries of storages have errors of their own
            _warn(watched.folder, error)

    def _with_new_state(self, states: dict[str, Any]) -> dict[str, Any]:
        """Return the states to write, the one that was used last at the end."""
        watched = self._watched
        kept = {key: state for key, state in states.items() if key != watched.key}
        of_job = [key for key in kept if key.startswith(watched.of_job)]
        for key in of_job[: max(0, len(of_job) + 1 - MOST_OF_JOB)]:
            del kept[key]
        for key in list(kept)[: max(0, len(kept) + 1 - MOST_STATES)]:
            del kept[key]
            logger.warning(
                "%s has more than %d series of runs: the one that was used the longest ago "
                "begins anew. Give jobs folders of their own.",
                _url(watched.folder), MOST_STATES,
            )  # fmt: skip
        return kept | {watched.key: self.drift.state}


@contextmanager
def night(watched: Watched, counts: NDArray[np.int64]) -> Iterator[Night]:
    """Give what a run says after the earlier ones; nobody else adds one meanwhile.

    Where the file cannot be changed, a warning tells so, and the next start of the same run
    counts it; where it cannot be read, the run is judged as the first one, too.

    Parameters
    ----------
    watched : Watched
    counts : ndarray of shape (n_counts,)
        Of the run, as `Cells.count` gives them.
    """
    locked = _locked(watched.folder)
    states: dict[str, Any] | None = {}
    errors: list[Exception] = []  # of any kind, as libraries of storages have their own
    with ExitStack() as stack:
        try:
            _lock(stack, locked)
        except Exception as error:
            errors.append(error)
        try:
            states = _states(watched.folder)
        except Exception as error:
            errors.append(error)
        if errors:
            _warn(watched.folder, errors[0])
        yield Night(watched, states, counts, may_keep=not errors)
        if states is not None and not errors:
            _tidy(watched.folder, f".{MONITOR_NAME}.")
            _tidy(locked, ".")
    Folder(locked).remove_if_empty()


def catch_up(output: str) -> None:
    """Count the run of an output, if it died before it was counted; raises nothing."""
    try:
        section = json.loads(Folder(output).read(SUMMARY_NAME) or b"{}").get("drift") or {}
        if not section.get("is_counted"):
            return
        watched = Watched.from_json(section["series"])
        is_known = _is_known(watched, _states(watched.folder) or {}, section["night"])
        locked = _locked(watched.folder)
        Folder(locked).remove_if_empty()
        if not is_known or (Folder(locked).exists() and is_dead(locked)):
            with night(watched, np.array(section["counts"], np.int64)) as judged:
                judged.keep()
    except Exception as error:  # the output is complete
        logger.warning("the run could not be counted: %s", brief(error))


def _is_known(watched: Watched, states: dict[str, Any], night: int) -> bool:
    """Return whether a run was counted, as a certain night, or may have been."""
    state = states.get(watched.key)
    if state is None:  # it was dropped, or is yet to begin
        n_of_job = sum(key.startswith(watched.of_job) for key in states)
        return night > 1 or n_of_job >= MOST_OF_JOB or len(states) >= MOST_STATES
    runs = state["runs"]
    is_forgotten = bool(runs) and night < runs[0]["night"]  # only the last ones are there
    return is_forgotten or any(run["run"] == watched.run for run in runs)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type((LockedError, FileNotFoundError)),
    stop=tenacity.stop_after_delay(WAIT_SECONDS),
    wait=tenacity.wait_random(0.1, 1),
    reraise=True,
)
def _lock(stack: ExitStack, url: str) -> None:
    """Hold a lock until the end of a stack; another run has it for a moment only."""
    stack.enter_context(hold(url, "count a run", is_ours=True))


def _tidy(url: str, prefix: str) -> None:
    """Remove what a run has left that died while it wrote; we hold the lock."""
    with suppress(OSError, NotImplementedError):
        for name in Folder(url).names(prefix):
            Folder(url).remove_file(name)


def _states(folder: str) -> dict[str, Any] | None:
    """Return the states of all series, by key; None if they are not to be changed.

    That is a file of a later version, or of another program. A damaged one is kept under
    another name.
    """
    content = Folder(folder).read(MONITOR_NAME)
    if content is None:
        return {}
    try:
        said = json.loads(content)
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            logger.warning(
                "%s is not of format %d, which this version knows: the run is not counted",
                _url(folder), FORMAT,
            )  # fmt: skip
            return None
        return dict(said["states"])
    except (ValueError, KeyError, TypeError) as error:
        Folder(folder).create(f"damaged-{MONITOR_NAME}", content)
        logger.warning(
            "%s is damaged (%s): it is kept as damaged-%s, and all series of runs begin "
            "anew", _url(folder), brief(error), MONITOR_NAME,
        )  # fmt: skip
        return {}


def _locked(folder: str) -> str:
    return f"{folder.rstrip('/')}/{LOCKED_NAME}"


def _url(folder: str) -> str:
    return f"{folder.rstrip('/')}/{MONITOR_NAME}"


def _warn(folder: str, error: Exception) -> None:
    logger.warning("this run is not counted in %s: %s", _url(folder), brief(error))
