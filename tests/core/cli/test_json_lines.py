"""--log-format json: each line on standard error is an object, whoever has written it."""

import datetime
import io
import json
import logging
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from calling import SCORE, THREADS, invoke, write_tables
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import commands, local_cluster, progress
from lpe_dask.cli.json_lines import JsonFormatter, json_lines
from lpe_dask.cli.outcome import FAILED, INTERRUPTED, INVALID_INPUT

JSON = ("--log-format", "json")
KEYS = {"time", "level", "event", "run", "fields"}

#: What a worker may write, in every way.
NOISE = """
import logging, sys, warnings
def dask_setup(worker):
    warnings.warn("one of Python")
    logging.getLogger("distributed.worker.memory").warning("one of distributed")
    logging.getLogger("another").warning("one of another library")
    print("one that is printed", file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    return tmp_path


def objects(text):
    """The lines of a text, each of which is an object with the known keys."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.keys() == KEYS
        assert isinstance(one["fields"], dict)
        time = datetime.datetime.fromisoformat(one["time"])
        assert time.utcoffset() == datetime.timedelta(0)
        assert one["level"] in ("debug", "info", "warning", "error")
    return found


def events(result):
    return [one["event"] for one in objects(result.stderr)]


def test_score__begins_and_ends_with_events_and_numbers(files):
    result = invoke(*SCORE, *THREADS, *JSON)

    first, *_, last = objects(result.stderr)
    summary = json.loads(Path("out/_summary.json").read_text())
    assert first["event"] == "run started"
    assert last["event"] == "run finished"
    fields = dict(last["fields"])
    assert fields.pop("message").endswith("written to out")
    assert fields.pop("exit_code") == 0
    assert fields.pop("verdict") is None
    assert fields == {key: summary[key] for key in fields}
    assert {"rows", "flagged", "rows_nan", "seconds"} <= fields.keys()
    runs = {one["run"] for one in objects(result.stderr)}
    assert runs == {summary["output"]} == {f"file://{files}/out"}
    assert result.stdout == ""


def test_fit_and_run__name_what_they_write(files):
    result = invoke("fit", "nominal.parquet", "--model", "model", *THREADS, *JSON)
    assert {one["run"] for one in objects(result.stderr)} == {f"file://{files}/model"}
    assert objects(result.stderr)[-1]["fields"]["nominal_rows"] == 60

    Path("job.toml").write_text(
        '[model]\npath="model"\n[score]\ndata="data.parquet"\noutput="out/{date}"\n'
    )
    given = ("run", "job.toml", "--date", "2026-11-20", *THREADS, *JSON)
    assert events(invoke(*given))[-1] == "run finished"
    assert events(invoke(*given)) == ["nothing to do"]
    [nothing] = objects(invoke(*given).stderr)
    assert nothing["run"] == f"file://{files}/out/2026-11-20"


def test_run__of_a_range_names_each_day_and_counts_them(files):
    Path("job.toml").write_text(
        '[score]\ndata="{date}.parquet"\noutput="out/{date}"\nexclude=["name"]\n'
    )
    for day in (1, 2):
        Path(f"2026-11-0{day}.parquet").hardlink_to("data.parquet")
    given = ("run", "job.toml", *THREADS, *JSON, "--date")
    invoke(*given, "2026-11-01")

    result = invoke(*given, "2026-11-01..2026-11-03", "--keep-going")

    assert result.exit_code == INVALID_INPUT
    *days, last = objects(result.stderr)
    by_run = {
        of["run"].rpartition("/")[2]: of["event"] for of in days if of["event"] != "log"
    }
    assert by_run == {
        "2026-11-01": "nothing to do", "2026-11-02": "run finished", "2026-11-03": "error",
    }  # fmt: skip
    assert (last["event"], last["run"]) == ("days finished", None)
    counts = {key: of for key, of in last["fields"].items() if key != "message"}
    assert counts == {"finished before": 1, "done": 1, "failed": 1}


def test_explain__prints_results_as_ever(files):
    invoke(*SCORE, *THREADS)

    result = invoke("explain", "out", "--patterns", *JSON)

    assert result.stdout == invoke("explain", "out", "--patterns").stdout
    assert events(result) == ["log"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*SCORE, "--n-neighbors", "99"), "n_neighbors=99"),
        (("explain", "out", "--patterns", "--top", "3"), "--patterns prints none"),
        (("run", "nowhere.toml"), "cannot be read"),
        (("plan", "data.parquet", "--columns", "z"), "z"),
    ],
)
def test_commands__report_an_error_in_one_object(arguments, text):
    result = invoke(*arguments, *THREADS, *JSON)

    last = objects(result.stderr)[-1]
    assert (last["event"], last["level"]) == ("error", "error")
    assert text in last["fields"]["message"]
    assert last["fields"]["exit_code"] == result.exit_code == INVALID_INPUT


@pytest.mark.parametrize(
    ("error", "code"), [(KeyError("bug"), FAILED), (KeyboardInterrupt(), INTERRUPTED)]
)
def test_score__that_ends_early_says_so_with_its_traceback(monkeypatch, error, code):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(PartFolder, "publish", fail)

    result = invoke(*SCORE, *THREADS, *JSON, "--debug")

    assert result.exit_code == code
    *_, traceback, last = objects(result.stderr)
    assert last["fields"]["exit_code"] == code
    assert ("Traceback" in traceback["fields"].get("message", "")) == (code == FAILED)


def test_usage_errors__are_text():
    """They are found before the format is known."""
    result = invoke(*SCORE, *JSON, "--fdr", "much")

    assert result.exit_code == INVALID_INPUT
    assert "'much' is not a valid float" in result.stderr
    result = invoke(*SCORE, "--log-format", "xml")
    assert "'xml' is not one of 'text', 'json'" in result.stderr


def test_progress__has_numbers(monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich would take everything for a terminal

    result = invoke(*SCORE, *THREADS, *JSON)

    found = [one["fields"] for one in objects(result.stderr) if one["event"] == "progress"]
    assert {of["step"] for of in found} == {"measured", "scored"}
    assert (found[-1]["rows_done"], found[-1]["rows"]) == (20, 20)
    assert found[-1]["parts_done"] == found[-1]["parts"] == 1


def test_lines__of_others_are_objects(monkeypatch):
    def noisy(*args, **kwargs):
        warnings.warn("one of Python", UserWarning, stacklevel=1)
        print("printed,", file=sys.stderr, end=" ")
        print("in pieces\n\nand lines", file=sys.stderr)
        sys.stderr.write("without an end")
        lpe_dask_logger.warning("with \x1b[2J and s3://me:word@bucket/a\nof two lines")
        return real(*args, **kwargs)

    lpe_dask_logger = logging.getLogger("lpe_dask.batch")
    real = commands.summary_lines
    monkeypatch.setattr(commands, "summary_lines", noisy)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = invoke(*SCORE, *THREADS, *JSON)

    assert result.exit_code == 0
    messages = [one["fields"].get("message", "") for one in objects(result.stderr)]
    assert "printed, in pieces" in messages
    assert "and lines" in messages
    assert "without an end" in messages
    assert "with ?[2J and s3://***@bucket/a\nof two lines" in messages
    [warned] = [of for of in objects(result.stderr) if "one of Python" in str(of["fields"])]
    assert warned["level"] == "warning"


def test_formatter__shows_the_error_of_a_record():
    try:
        raise KeyError("s3://me:word@bucket")
    except KeyError:
        record = logging.makeLogRecord({"msg": "it failed", "exc_info": sys.exc_info()})

    text = json.loads(JsonFormatter().format(record))["fields"]["message"]

    assert text.startswith("it failed\nTraceback")
    assert text.endswith("KeyError: 's3://***@bucket'")


def lines_of(write, monkeypatch):
    """The fields of lines that a function writes to standard error, or to the handler."""
    text = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", text)
        with json_lines() as handler:
            write(handler)
    return [one["fields"] for one in objects(text.getvalue())]


def test_json_lines__of_threads_stay_apart(monkeypatch):
    def write(name):
        for number in range(300):
            print(name, number, file=sys.stderr)

    def write_all(_):
        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        messages = [of["message"] for of in lines_of(write_all, monkeypatch)]
    finally:
        sys.setswitchinterval(interval)
    expected = [f"{name} {number}" for name in "abcd" for number in range(300)]
    assert sorted(messages) == sorted(expected)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"a": np.nan, "b": [np.inf, 1.5]}, {"a": None, "b": [None, 1.5]}),
        ({"message": "another", 3: "x"}, {"3": "x"}),
        ("a text", {"fields": "a text"}),
    ],
)
def test_json_lines__with_fields_of_other_libraries(monkeypatch, given, shown):
    def write(handler):
        about = {"msg": "its text", "levelname": "WARNING", "fields": given}
        handler.handle(logging.makeLogRecord(about))

    assert lines_of(write, monkeypatch) == [shown | {"message": "its text"}]


def test_json_lines__have_the_descriptor_of_the_stream(capfd):
    with capfd.disabled():
        expected = sys.stderr.fileno()
        with json_lines():
            assert sys.stderr.fileno() == expected


def test_json_lines__leave_nothing_behind():
    before = (sys.stderr, logging.lastResort, warnings.showwarning)
    handlers = list(logging.getLogger("py.warnings").handlers)

    with json_lines():
        assert sys.stderr is not before[0]

    assert (sys.stderr, logging.lastResort, warnings.showwarning) == before
    assert logging.getLogger("py.warnings").handlers == handlers


@pytest.mark.cluster
def test_lines__of_workers_are_objects(monkeypatch, capfd):
    """They write to the standard error of the command."""
    monkeypatch.setattr(local_cluster, "_QUIET_WORKER", NOISE)
    monkeypatch.setattr(sys, "argv", ["lpe-dask", *SCORE, "--workers", "1", *JSON])

    with pytest.raises(SystemExit) as ended:
        commands.cli(prog_name="lpe-dask")

    assert ended.value.code in (None, 0)
    found = objects(capfd.readouterr().err)
    lines = Counter((of["level"], of["fields"].get("message", "")) for of in found)
    assert not [message for _, message in lines if message.startswith("{")]
    written = {key: n for key, n in lines.items() if "one " in key[1]}
    [(warned, n_warned)] = [item for item in written.items() if "UserWarning" in item[0][1]]
    assert (warned[0], n_warned) == ("warning", 1)
    del written[warned]
    assert written == {
        ("warning", "one of another library"): 1,
        ("info", "one that is printed"): 1,
        ("warning", "one of distributed"): 1,
    }
    assert {one["run"] for one in found} == {JsonFormatter.run}
    assert {one["event"] for one in found} >= {"run started", "progress", "run finished"}


def test_secrets__are_masked_wherever_they_are():
    url = "http://marked-user:marked-word@127.0.0.1:1/rows.parquet"

    result = invoke("score", url, "--output", url, *THREADS, *JSON)

    assert result.exit_code != 0
    assert "marked" not in result.stderr
    assert objects(result.stderr)[-1]["run"] == "http://***@127.0.0.1:1/rows.parquet"
