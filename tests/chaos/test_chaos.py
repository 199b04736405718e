"""Faults to a cluster of three hosts while a job runs on it, as `make chaos` does more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import network
from chaos.history import History
from chaos.schedule import Planned, Schedule, draw

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: What a worker, the network and the client are used to, in one run.
DISTURBED = Schedule(
    0,
    "local",
    (
        Planned("worker-killed", "worker-1", 10, 0.0, None),
        Planned("link-cut", "worker-2", 16, 0.0, 4.0),
        Planned("client-killed", "client", 22, 0.0, None),
    ),
    part_seconds=0.4,
)

UNPACKAGED = Schedule(
    1,
    "local",
    (Planned("workers-without-package", "everywhere", 0, 0.0, 60.0),),
    part_seconds=0.05,
)


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(DISTURBED, id="killed and cut"),
        pytest.param(UNPACKAGED, id="workers without the package"),
        pytest.param(draw(1, ["*-killed"]), id="drawn", marks=pytest.mark.slow),
    ],
)
def test_job__has_the_same_bits_and_writes_no_part_again(schedule, tmp_path):
    if reason := network.why_not():
        pytest.skip(f"no network namespaces can be made here: {reason}")
    with History(tmp_path / "schedule.jsonl") as history:
        history.add("schedule", schedule=schedule)
    command = [sys.executable, "-m", "chaos", "--output", tmp_path]
    tests = str(Path(__file__).parents[1])

    done = subprocess.run(
        [*command, "--replay", tmp_path / "schedule.jsonl"],
        env=os.environ | {"PYTHONPATH": tests}, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / str(schedule.seed) / "history.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    injected = [event["fault"] for event in events if event["event"] == "injected"]
    assert injected == [planned.fault for planned in schedule.faults]
    if schedule is UNPACKAGED:
        refused = next(event for event in events if event["event"] == "job ended")
        assert refused["code"] == 2
        assert "10.88.0.2" in refused["said"]
