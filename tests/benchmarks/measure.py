"""Time one case: contenders by turns, and only right results count."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Case, Run
from benchmarks.checks import check_radii, reorder_params, share_off
from benchmarks.contenders import CONTENDERS
from benchmarks.contract import Array, Problem, installed_version
from benchmarks.data import SOURCES
from benchmarks.worker import Measurement, Process, prepare, time_once

#: Seconds. What would take longer is timed on a share of the rows, if it can be, and what
#: took longer is not repeated.
LIMIT = 15.0

#: Rows of the run that tells how long a whole one would take.
PILOT_ROWS = 256

#: Rows that stand for all where all would take too long: whole blocks of those that work in
#: blocks, and some 1 % of scatter.
SHARE_ROWS = 8192


def measure(case: Case, n_repeats: int) -> dict[str, Any]:
    """Measurements of a case that are saved.

    Parameters
    ----------
    case : Case
    n_repeats : int
        Timed runs of each contender.

    Returns
    -------
    record : dict
        ``missing`` says why there is nothing else. ``runs`` has for each label ``seconds``
        of each timed run, whole or scaled up, the ``share`` of rows it was timed on, and
        what `Measurement` and `checks` tell; or why there are none: ``missing`` or
        ``failed``.
    """
    record: dict[str, Any] = {
        "n_rows": case.n_rows,
        "n_features": case.n_features,
        "repeats": n_repeats,
        "date": datetime.now(UTC).date().isoformat(),
        "runs": {},
    }
    try:
        rows = SOURCES[case.source].rows(case.n_rows + case.n_queries, case.n_features)
    except FileNotFoundError as error:
        return record | {"missing": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "rows.npy"), rows[: case.n_rows])
        if case.n_queries:
            np.save(Path(folder, "queries.npy"), rows[case.n_rows :])
        lanes = [_Lane(run, Path(folder)) for run in case.runs]
        # Side by side, since nothing is timed.
        ready = [lane.submit(prepare) for lane in lanes if lane.is_open]
        for wait in ready:
            wait()
        for lane in lanes:
            lane.choose_share()
        _take_turns(lanes, n_repeats)
        for lane in lanes:
            lane.process.end()
    return record | {"runs": {lane.run.label: lane.record for lane in lanes}}


class _Lane:
    """One run of a case while it is timed, and what is known of it."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.process = run, Process(run.contender)
        self.contender = CONTENDERS[run.contender]
        self.problem = Problem(folder, run.n_neighbors, tuple(run.arguments.items()))
        self.record: dict[str, Any] = {"seconds": [], "share": 1.0}
        self.is_slow = False  # a timed run really took longer than the limit
        if installed_version(self.contender.distribution) is None:
            self.record["missing"] = f"{self.contender.distribution} is not installed"

    @property
    def is_open(self) -> bool:
        return not {"missing", "failed"} & self.record.keys()

    def submit(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """Begin a call in the process; return what waits for it, and gives its result.

        That is None if the call failed, as it closes the lane.
        """
        future = self.process.submit(function, self.problem)

        def wait() -> Any:
            try:
                return future.result()
            except Exception as error:  # whatever a library raises; it may have crashed
                failed = "".join(traceback.format_exception(error))
                self.record |= {"failed": failed, "seconds": []}
                return None

        return wait

    def choose_share(self) -> None:
        """Take a sample of the rows from now on if all would take too long."""
        n_rows = len(self.problem.rows)
        can_share = self.contender.takes_samples and n_rows > 2 * SHARE_ROWS
        if not (self.is_open and can_share):
            return
        self._take(PILOT_ROWS)
        pilot = self.submit(time_once)()
        if pilot is not None:
            self._take(SHARE_ROWS if self._seconds(pilot) > LIMIT else n_rows)

    def _take(self, n_sample: int) -> None:
        n_rows = len(self.problem.rows)
        self.problem = replace(
            self.problem, n_sample=None if n_sample == n_rows else n_sample
        )
        self.record["share"] = n_sample / n_rows

    def _seconds(self, measured: Measurement) -> float:
        """Seconds of a whole run: its index is whole whatever the share."""
        return measured.build + measured.query / self.record["share"]

    def time(self, expected: Array | None) -> Array | None:
        """Time one run, and return its result if that is right, or nearly."""
        measured = self.submit(time_once)()
        if measured is None:
            return None
        try:
            self.record |= self._check(measured.result, expected)
        except AssertionError as error:
            wrong = f"wrong result: {' '.join(str(error).split())}"
            self.record |= {"failed": wrong, "seconds": []}
            return None
        self.is_slow = measured.build + measured.query > LIMIT
        self.record["seconds"].append(self._seconds(measured))
        self.record["peak_bytes"] = measured.peak_bytes
        return measured.result

    def _check(self, result: Array, expected: Array | None) -> dict[str, float]:
        tolerance = self.contender.tolerance
        if tolerance is None:
            return reorder_params(result, self.problem)
        if self.run.may_be_off:
            return share_off(result, self.problem, expected)
        return check_radii(result, self.problem, expected, tolerance)


def _take_turns(lanes: list[_Lane], n_repeats: int) -> None:
    """Time all lanes by turns, so that what disturbs the machine disturbs them alike.

    Every other turn goes backwards: who comes first follows another library each time.
    """
    first, expected = lanes[0], None
    for turn in range(n_repeats):
        for lane in lanes if turn % 2 == 0 else lanes[::-1]:
            if not lane.is_open or lane.is_slow:
                continue
            is_alike = lane.run.n_neighbors == first.run.n_neighbors
            result = lane.time(expected if is_alike else None)
            if turn == 0 and lane is first and lane.contender.tolerance is not None:
                expected = result
