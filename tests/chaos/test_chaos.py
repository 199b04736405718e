"""Faults to a cluster of three hosts while a job runs on it, as `make chaos` does more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import history, network
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


def do(folder, *schedules):
    """Return the events of the runs of some schedules."""
    if reason := network.why_not():
        pytest.skip(f"no network namespaces can be made here: {reason}")
    command = [sys.executable, "-m", "chaos", "--output", folder]
    for schedule in schedules:
        path = folder / f"schedule-{schedule.seed}.jsonl"
        path.write_text(json.dumps({"schedule": schedule.as_json()}))
        command += ["--replay", path]
    tests = str(Path(__file__).parents[1])
    subprocess.run(command, env=os.environ | {"PYTHONPATH": tests}, check=False)
    paths = [folder / str(schedule.seed) / "history.jsonl" for schedule in schedules]
    return list(map(history.read, paths))


def of(events, kind):
    return [event for event in events if event["event"] == kind]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return do(tmp_path_factory.mktemp("chaos"), DISTURBED, UNPACKAGED)


def test_job__has_the_same_bits_after_kills_and_a_cut_link(both):
    injected = [event["fault"] for event in of(both[0], "injected")]
    [verdict] = of(both[0], "verdict")

    assert injected == [planned.fault for planned in DISTURBED.faults]
    assert verdict["is_equal"]
    assert verdict["problems"] == []


def test_job__writes_no_part_again_because_its_worker_went(both):
    [verdict] = of(both[0], "verdict")

    assert verdict["n_again"] <= verdict["n_may_be_again"]


def test_job__refuses_workers_without_the_package(both):
    ended = of(both[1], "job ended")[0]

    assert ended["code"] == 2
    assert "10.88.0.2" in ended["said"]


def test_job__has_the_same_bits_once_workers_have_the_package(both):
    [verdict] = of(both[1], "verdict")

    assert verdict["is_equal"]
    assert verdict["problems"] == []


@pytest.mark.slow
def test_job__has_the_same_bits_whatever_is_killed(tmp_path):
    schedule = draw(1, ["*-killed"], 6)

    [events] = do(tmp_path, schedule)

    [verdict] = of(events, "verdict")
    assert len(of(events, "injected")) == len(schedule.faults)
    assert verdict["is_equal"]
    assert verdict["problems"] == []
