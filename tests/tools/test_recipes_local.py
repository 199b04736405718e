"""cluster/local/: a job on one machine, and what starts it each morning."""

import configparser
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dask.utils import parse_bytes

from digests import parts_in
from lpe_dask.batch.job_file import read_job
from lpe_dask.cli.outcome import (
    DRIFTED,
    FAILED,
    INVALID_INPUT,
    REFIT_REJECTED,
    TERMINATED,
    TRY_LATER,
)
from recipes import CLUSTER, DAY, copy_recipes, parts_by_threads, terminal
from waiting import eventually

RECIPE = CLUSTER / "local"
UNITS = ["lpe-nightly.service", "lpe-nightly.timer"]


@pytest.fixture
def expected(logs, tmp_path, monkeypatch):
    """Digests of the parts that ``--scheduler threads`` writes."""
    monkeypatch.setenv("LPE_DATA", str(logs))
    return parts_by_threads(RECIPE / "nightly.toml", tmp_path / "expected")


@pytest.fixture
def place(tmp_path):
    """What stands for /srv/lpe: a folder with the recipes and an environment."""
    folder = tmp_path / "lpe"
    folder.mkdir()
    copy_recipes(folder, {"/srv/logs": str(tmp_path / "logs"), "/srv/lpe": str(folder)})
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    return folder


def service_in(folder):
    """Return the section [Service] of the unit in a copy of the recipe."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(folder / "lpe-nightly.service")
    return parser["Service"]


@pytest.mark.cluster
def test_page__gives_the_bits_of_threads(tmp_path, logs, expected):
    with terminal(tmp_path, {"/srv/logs": str(logs)}) as opened:
        opened.type_all("local")

    assert len(expected) == 8
    assert parts_in(logs / "out" / str(DAY)) == expected


def test_memory__of_the_workers_fits_into_that_of_the_unit(monkeypatch):
    monkeypatch.setenv("LPE_DATA", "/srv/logs")
    cluster = read_job(RECIPE / "nightly.toml").cluster
    limit = re.sub(r"G$", "GiB", service_in(RECIPE)["MemoryMax"])

    assert cluster.workers * cluster.memory_limit + 2**30 <= parse_bytes(limit)


# systemd


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("ExecStart=", "ExecStrat="),
        ("Restart=on-failure", "Restart=on-error"),
        ("*-*-* 06:10:00", "*-*-* 6h10"),
    ],
)
def test_units__are_verified_and_a_slip_is_found(tmp_path, place, right, wrong):
    for name in UNITS:
        text = (place / "cluster" / "local" / name).read_text()
        (tmp_path / name).write_text(text.replace(right, wrong) if right else text)

    done = subprocess.run(
        ["systemd-analyze", "verify", *[tmp_path / name for name in UNITS]],
        capture_output=True, text=True,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert bool(said) == bool(right), said


def test_service__starts_again_what_may_pass():
    service = service_in(RECIPE)

    assert service["Restart"] == "on-failure"
    final = [INVALID_INPUT, DRIFTED, REFIT_REJECTED]
    assert service["RestartPreventExitStatus"].split() == [*map(str, final)]
    assert {FAILED, TRY_LATER}.isdisjoint(final)
    assert service["SuccessExitStatus"] == str(TERMINATED)
    assert service["KillMode"] == "mixed"  # SIGTERM to the command, and not to its workers


@pytest.mark.cluster
def test_service__is_stopped_in_time_and_resumes(logs, expected, place):
    """What `systemctl stop` does to the command of the unit."""
    service = service_in(place / "cluster" / "local")
    command = [*service["ExecStart"].split(), "--date", str(DAY)]
    out = logs / "out" / str(DAY)

    is_late = True
    while is_late:  # where this process was stalled until the run was done
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
        try:
            assert eventually((out / "_lock.json").exists, 60)
            is_late = (out / "_summary.json").exists()
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=int(service["TimeoutStopSec"]))
        finally:
            process.kill()
    assert process.returncode == TERMINATED, said
    assert not (out / "_lock.json").exists()
    assert parts_in(out) != expected  # it was stopped in the middle

    subprocess.run(command, cwd=place, check=True, capture_output=True)
    assert parts_in(out) == expected


# cron


@pytest.mark.skipif(not shutil.which("crontab"), reason="needs crontab")
@pytest.mark.parametrize("hours", ["6-12", "6-25"])
def test_crontab__is_correct_and_a_slip_is_found(tmp_path, hours):
    path = tmp_path / "crontab"
    path.write_text((RECIPE / "crontab").read_text().replace("10 6-12", f"10 {hours}"))

    done = subprocess.run(["crontab", "-n", path], capture_output=True, text=True)

    if "usage" in done.stderr:
        pytest.skip("this crontab has no -n, as Debian's does, to check a file")
    assert (done.returncode == 0) == (hours == "6-12")


@pytest.mark.cluster
def test_crontab__runs_in_the_bare_environment_of_cron(logs, expected, place):
    """Each hour: the first start does the work, the second has nothing to do."""
    text = (place / "cluster" / "local" / "crontab").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    [command] = re.findall(r"^[\d*]\S*(?: \S+){4} +(.*)$", text, re.MULTILINE)
    assert "%" not in command  # cron makes a new line of it
    command = command.replace("nightly.toml", f"nightly.toml --date {DAY}")
    bare = {"HOME": str(place), "LOGNAME": "lpe", "PATH": "/usr/bin:/bin"}

    for _ in range(2):
        subprocess.run(["/bin/sh", "-c", command], env=bare | settings, check=True)

    assert parts_in(logs / "out" / str(DAY)) == expected
    log = (place / "nightly.log").read_text()
    assert log.count("written to") == 1
    assert "nothing to do" in log.splitlines()[-1]
