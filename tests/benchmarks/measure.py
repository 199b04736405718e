"""Time one case: contenders by turns, and only right results count."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import Case, Run
from benchmarks.checks import share_off
from benchmarks.children import ChildError, Children
from benchmarks.contenders import CONTENDERS
from benchmarks.contract import Answer, Contender, Problem
from benchmarks.data import SOURCES

#: Rows of the run that tells how long a whole one would take.
PILOT_ROWS = 256

#: Rows that stand for all where all would take too long: whole blocks of those that work in
#: blocks, and some 1 % of scatter.
SHARE_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Plan:
    """How cases are timed.

    Attributes
    ----------
    repeats : int
        Timed runs of each contender.
    limit : float
        Seconds. What would take longer is timed on a share of the rows, if it can be, and
        what took longer is not repeated.
    quick : bool
        Whether rows are few, and figures mean nothing.
    """

    repeats: int
    limit: float
    quick: bool


@dataclass(slots=True)
class Lane:
    """One run of a case while it is timed, and what is known of it.

    Attributes
    ----------
    run : Run
    contender : Contender
    asked : Problem
    request : dict
        What its process is asked each time.
    record : dict
        What is saved: ``seconds`` of each timed run, whole or scaled up, the ``share`` of
        rows it was timed on, and what `worker` and `checks` tell. ``missing`` or ``failed``
        say why there are none.
    sample : ndarray of shape (n_sample,), optional
    longest : float
        Seconds that the longest timed run really took.
    """

    run: Run
    contender: Contender
    asked: Problem
    request: dict[str, Any]
    record: dict[str, Any]
    sample: NDArray[np.integer] | None = None
    longest: float = 0.0

    @property
    def is_open(self) -> bool:
        return not {"missing", "failed"} & self.record.keys()


def measure(case: Case, children: Children, plan: Plan) -> dict[str, Any]:
    """Return what is to be saved of a case.

    Parameters
    ----------
    case : Case
    children : Children
    plan : Plan

    Returns
    -------
    record : dict
        ``missing`` says why there is nothing else.
    """
    record: dict[str, Any] = {
        "n_rows": case.n_rows,
        "n_features": case.n_features,
        "n_queries": case.n_queries,
        "quick": plan.quick,
        "repeats": plan.repeats,
        "date": datetime.now(UTC).date().isoformat(),
        "runs": {},
    }
    try:
        rows = SOURCES[case.source].rows(case.n_rows + case.n_queries, case.n_features)
    except FileNotFoundError as error:
        return record | {"missing": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        lanes = _lanes(case, rows, Path(folder))
        _warm_up(lanes, children)
        for lane in lanes:
            _choose_share(lane, children, plan.limit, Path(folder))
        _take_turns(lanes, children, plan)
    for lane in lanes:
        if not lane.contender.keeps_process:
            children.end(lane.contender.process)
    record["runs"] = {lane.run.label: lane.record for lane in lanes}
    return record


def _lanes(case: Case, rows: NDArray[np.generic], folder: Path) -> list[Lane]:
    """Return the runs of a case, with the rows saved for their processes."""
    nominal, queries = rows[: case.n_rows], None
    paths = {"rows": str(folder / "rows.npy"), "queries": None}
    np.save(paths["rows"], nominal)
    if case.n_queries:
        queries = rows[case.n_rows :]
        paths["queries"] = str(folder / "queries.npy")
        np.save(paths["queries"], queries)
    lanes = []
    for number, run in enumerate(case.runs):
        contender = CONTENDERS[run.contender]
        described = paths | {"n_neighbors": run.n_neighbors, "arguments": run.arguments}
        request = {
            "contender": run.contender,
            "problem": json.dumps(described),
            "sample": None,
            "result": str(folder / f"result-{number}.npy"),
        }
        record = {"n_neighbors": run.n_neighbors, "seconds": [], "share": 1.0}
        if not contender.is_installed:
            record["missing"] = f"{contender.distribution} is not installed"
        asked = Problem(nominal, queries, run.n_neighbors, run.arguments)
        lanes.append(Lane(run, contender, asked, request, record))
    return lanes


def _warm_up(lanes: list[Lane], children: Children) -> None:
    """Warm the contenders up, side by side, since nothing is timed."""
    waiting = []
    for lane in lanes:
        if lane.is_open:
            child = children.of(lane.contender)
            child.send(
                "prepare",
                contender=lane.request["contender"],
                problem=lane.request["problem"],
            )
            waiting.append((lane, child))
    for lane, child in waiting:
        try:
            child.receive()
        except ChildError as error:
            lane.record["failed"] = str(error)


def _choose_share(lane: Lane, children: Children, limit: float, folder: Path) -> None:
    """Give a lane a sample of the rows if all would take too long."""
    n_rows = len(lane.asked.rows)
    can_share = lane.contender.takes_queries and n_rows > 2 * SHARE_ROWS
    if not (lane.is_open and can_share):
        return
    _sample(lane, PILOT_ROWS, folder)
    try:
        expected = _seconds(_time(lane, children))
    except ChildError as error:
        lane.record["failed"] = str(error)
        return
    if expected > limit:
        _sample(lane, SHARE_ROWS, folder)
    else:
        lane.sample, lane.request["sample"] = None, None
        lane.record["share"] = 1.0


def _sample(lane: Lane, n_sample: int, folder: Path) -> None:
    """Ask a lane about some random rows from now on."""
    n_rows = len(lane.asked.rows)
    rng = np.random.default_rng(0)
    lane.sample = rng.choice(n_rows, n_sample, replace=False)
    lane.record["share"] = n_sample / n_rows
    path = folder / f"sample-{n_sample}.npy"
    np.save(path, lane.sample)
    lane.request["sample"] = str(path)


def _time(lane: Lane, children: Children) -> dict[str, Any]:
    child = children.of(lane.contender)
    child.send("time", **lane.request)
    return child.receive() | {"share": lane.record["share"]}


def _seconds(reply: dict[str, Any]) -> float:
    """Return what a whole run takes: its index is whole whatever the share."""
    return reply["build"] + reply["query"] / reply["share"]


def _take_turns(lanes: list[Lane], children: Children, plan: Plan) -> None:
    """Time all lanes by turns, so that what disturbs the machine disturbs them alike.

    Every other turn goes backwards: who comes first follows another library each time.
    """
    expected: NDArray[np.generic] | None = None
    for turn in range(plan.repeats):
        for lane in lanes if turn % 2 == 0 else lanes[::-1]:
            if not lane.is_open or lane.longest > plan.limit:
                continue
            same = lane.run.n_neighbors == lanes[0].run.n_neighbors
            same &= lane.contender.gives_radii == lanes[0].contender.gives_radii
            check = share_off if lane.run.may_be_off else lane.contender.check
            try:
                reply = _time(lane, children)
                result = np.load(lane.request["result"])
                answer = Answer(result, lane.asked, lane.sample, expected if same else None)
                told = check(answer)
            except ChildError as error:
                lane.record |= {"failed": str(error), "seconds": []}
                continue
            except AssertionError as error:
                wrong = f"wrong result: {' '.join(str(error).split())}"
                lane.record |= {"failed": wrong, "seconds": []}
                continue
            if turn == 0 and lane is lanes[0]:
                expected = result
            lane.longest = max(lane.longest, reply["build"] + reply["query"])
            lane.record["seconds"].append(_seconds(reply))
            lane.record |= told | {
                "cores": reply["cores"],
                "peak_bytes": reply["peak_bytes"],
            }
