"""[notify] of a job: when its command is run, what it gets, and that no run suffers."""

import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from calling import THREADS, invoke
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import notification
from lpe_dask.cli.notification import event_of
from lpe_dask.cli.outcome import (
    DRIFTED,
    FAILED,
    INTERRUPTED,
    INVALID_INPUT,
    TRY_LATER,
)
from lpe_dask.storage import Lock

JOB = """
[nominal]
data = "nominal.parquet"
[model]
path = "model"
calibration = "conformal"
random_state = 0
scale = "standard"
aggregation = "mean"
[score]
data = "{date}.parquet"
output = "out/{date}"
alpha = 0.01
[notify]
command = ["./notify", "summary: {summary}", "{date}", "${WHOM}", "", "{summary}"]
"""

#: Writes what it was given to a file, a line each time.
NOTIFY = f"""#!{sys.executable}
import json, os, sys
given = {{k: v for k, v in os.environ.items() if k.startswith("LPE_DASK_")}}
with open("notified", "a") as file:
    file.write(json.dumps([sys.argv[1:], given]) + "\\n")
print("sent to", sys.argv[3])
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A current folder with a job, its command, nominal rows, and those of some days."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHOM", "somebody")
    rng = np.random.default_rng(0)

    def rows(n_rows, n_odd=0):
        frame = pd.DataFrame(rng.standard_normal((n_rows, 3)), columns=["a", "b", "c"])
        frame.loc[: n_odd - 1, "c"] += 20
        return frame

    rows(1000).to_parquet("nominal.parquet")
    for day, n_odd in ((1, 0), (2, 18), (3, 18), (4, 0)):
        rows(500, n_odd).to_parquet(f"2026-11-0{day}.parquet")
    (rows(500) + 2).to_parquet("2026-11-05.parquet")
    write("notify", NOTIFY)
    Path("job.toml").write_text(JOB.replace('"", ', ""))


def write(name, text):
    Path(name).write_text(text)
    Path(name).chmod(0o755)


def change_command(command):
    before = Path("job.toml").read_text().partition("[notify]")[0]
    Path("job.toml").write_text(f"{before}[notify]\ncommand = {command}\n")


def run(day, *options):
    return invoke("run", "job.toml", "--date", f"2026-11-0{day}", *THREADS, *options)


def notified():
    """Arguments and environment of each command so far."""
    path = Path("notified")
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def test_run__notifies_of_patterns_that_are_new():
    for day in (1, 2, 3, 4):
        result = run(day)
        assert result.exit_code == 0, result.output
        assert "sent to" not in result.stderr
        assert ("command of [notify] was run (patterns)" in result.stderr) == (day == 2)

    [(arguments, environment)] = notified()
    path = "out/2026-11-02/_summary.json"
    assert arguments == [f"summary: {path}", "2026-11-02", "somebody", path]
    assert json.loads(Path(path).read_text())["patterns"]["listed"]
    assert environment["LPE_DASK_EVENT"] == "patterns"
    assert environment["LPE_DASK_EXIT_CODE"] == "0"
    assert "pattern: c high, about " in environment["LPE_DASK_TEXT"]
    assert "written to out/2026-11-02" in environment["LPE_DASK_TEXT"]


def test_run__notifies_once_when_it_is_resumed_and_not_when_there_is_nothing_to_do(
    monkeypatch,
):
    with monkeypatch.context() as patch:
        patch.setattr(PartFolder, "publish", lambda *args: raise_(KeyboardInterrupt()))
        assert run(2).exit_code == INTERRUPTED
    assert notified() == []

    assert run(2).exit_code == 0
    assert run(2).exit_code == 0
    assert "nothing to do" in run(2, "--fail-on-drift").stderr

    assert len(notified()) == 1


def test_run__notifies_of_drift_with_its_exit_code():
    run(1)
    assert run(5, "--fail-on-drift").exit_code == DRIFTED

    [(_, environment)] = notified()
    assert environment["LPE_DASK_EVENT"] == "drift"
    assert environment["LPE_DASK_EXIT_CODE"] == str(DRIFTED)


def raise_(error):
    raise error


def test_run__notifies_of_a_failure_once_until_it_is_done(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(PartFolder, "publish", lambda *args: raise_(KeyError("s3://u:w@b")))
        assert [run(1).exit_code for _ in range(3)] == [FAILED] * 3
    note = json.loads(Path("out/2026-11-01/_failure.json").read_text())
    assert note["text"].startswith("Error: the run stopped while it scored")
    assert "s3://***@b" in note["text"]

    assert run(1).exit_code == 0
    assert not Path("out/2026-11-01/_failure.json").exists()

    [(arguments, environment)] = notified()
    assert environment["LPE_DASK_EVENT"] == "failure"
    assert environment["LPE_DASK_EXIT_CODE"] == str(FAILED)
    assert environment["LPE_DASK_TEXT"] == note["text"]
    assert arguments[-1] == "out/2026-11-01/_summary.json"


def test_run__notifies_of_a_failure_that_it_cannot_note(monkeypatch):
    monkeypatch.setattr(PartFolder, "publish", lambda *args: raise_(KeyError("bug")))
    monkeypatch.setattr(
        "lpe_dask.batch.output.write_json", lambda *args: raise_(OSError("full"))
    )

    assert "the next one will be, too: OSError: full" in run(1).stderr
    assert len(notified()) == 1


def test_run__notifies_when_it_is_refused():
    assert run(9).exit_code == INVALID_INPUT  # there are no rows of this day
    assert not Path("out").exists()

    [(_, environment)] = notified()
    assert environment["LPE_DASK_EVENT"] == "failure"
    assert environment["LPE_DASK_EXIT_CODE"] == str(INVALID_INPUT)


def test_run__does_not_notify_of_what_may_pass():
    with Lock("out/2026-11-02").hold("score a table"):
        assert run(2).exit_code == TRY_LATER

    assert notified() == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho oh no; exit 7", "ended with exit code 7: oh no"),
        ("#!/bin/sh\nexit 1", "ended with exit code 1: it has printed nothing"),
        ("#!/bin/sh\nexec sleep 60", "was ended after 0 s"),
        ("#!/nowhere/sh\n", "cannot be run: FileNotFoundError"),
    ],
)
def test_run__is_done_whatever_becomes_of_its_command(monkeypatch, script, message):
    monkeypatch.setattr(notification, "SECONDS", 0.2)
    write("notify", script)
    change_command('["./notify", "marked-token"]')

    result = run(2)

    assert result.exit_code == 0
    assert f"the command of [notify] {message}" in result.stderr
    assert "marked" not in result.stderr
    assert Path("out/2026-11-02/_summary.json").exists()


def test_run__ends_its_command_with_what_that_has_started(monkeypatch):
    monkeypatch.setattr(notification, "SECONDS", 0.5)
    write("notify", "#!/bin/sh\nsleep 60 & echo $! > child\nwait")

    assert "was ended after" in run(2).stderr

    with suppress(psutil.NoSuchProcess):
        assert child().status() == psutil.STATUS_ZOMBIE


def child():
    return psutil.Process(int(Path("child").read_text()))


def test_run__does_not_wait_for_what_its_command_leaves_behind():
    write("notify", "#!/bin/sh\nsleep 60 & echo $! > child")

    result = run(2)

    assert "was run (patterns)" in result.stderr
    child().kill()  # it is still at work


def test_run__shows_the_beginning_of_what_its_command_prints(monkeypatch):
    monkeypatch.setattr(notification, "MAX_OUTPUT_BYTES", 10)
    write("notify", "#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x; exit 1")

    assert f"exit code 1: {'x' * 10}\n" in run(2).stderr


def test_run__gives_its_command_no_input_and_no_shell():
    change_command('["./notify", "$HOME; touch owned", "*"]')
    run(2)

    [(arguments, _)] = notified()
    assert arguments == ["$HOME; touch owned", "*"]
    assert not Path("owned").exists()


def test_run__cuts_a_text_that_no_environment_could_have(monkeypatch):
    lines = "\n".join(["x" * 9000] * 30)
    monkeypatch.setattr(notification, "summary_lines", lambda *args: lines)

    assert run(2).exit_code == 0

    [(_, environment)] = notified()
    assert len(environment["LPE_DASK_TEXT"]) == notification.MAX_CHARACTERS


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ('["nowhere", "x"]', "no program 'nowhere' on PATH"),
        ('["./job.toml"]', "no program './job.toml' on PATH"),  # not executable
    ],
)
def test_run__is_refused_if_its_command_cannot_be_run(command, text):
    change_command(command)

    result = run(1)

    assert result.exit_code == INVALID_INPUT
    assert f"job.toml, [notify] command: there is {text}" in result.stderr
    assert not Path("out").exists()


def test_run__of_a_fit_notifies_of_its_failure_alone():
    text = Path("job.toml").read_text()
    start, _, rest = text.partition("[score]")
    Path("job.toml").write_text(f"{start}[notify]{rest.partition('[notify]')[2]}")

    assert run(1).exit_code == 0
    assert notified() == []
    Path("nominal.parquet").write_text("damaged")
    assert run(1, "--overwrite").exit_code == INVALID_INPUT
    assert [of["LPE_DASK_EVENT"] for _, of in notified()] == ["failure"]


def summary(n_rows=10, is_new=True, verdict=None, **alarms):
    known = {"at_most": None, "expected": None} | alarms
    listed = [
        {"is_new": False, "flagged_rows": 99},
        {"is_new": is_new, "flagged_rows": n_rows - 1},
        {"is_new": is_new, "flagged_rows": 1},
    ]
    return {
        "drift": {"verdict": verdict}, "false_alarms": known,
        "patterns": {"listed": listed},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "event"),
    [
        (summary(), "patterns"),
        (summary(is_new=None), "patterns"),  # there is no earlier run
        (summary(is_new=False), None),
        (summary(at_most=9, expected=100), "patterns"),
        (summary(at_most=10, expected=1), None),
        (summary(at_most=0), "patterns"),
        (summary(expected=4.9), "patterns"),
        (summary(expected=5), None),
        (summary(verdict="drift", is_new=False), "drift"),
        (summary(verdict="invalid input", is_new=False), "drift"),
        (summary(verdict="too few rows to test", is_new=False), None),
        ({"nominal_rows": 3}, None),
    ],
)
def test_event_of__what_there_is_to_look_at(given, event):
    assert event_of(given) == event
    assert event_of(given | {"refit": {"outcome": "rejected"}}) == "refit rejected"
    assert event_of(given | {"refit": {"outcome": "swapped"}}) == event
