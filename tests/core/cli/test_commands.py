"""The command line: what it prints, where, and with which exit code it ends."""

import contextlib
import errno
import io
import json
import logging
import multiprocessing
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner
from distributed import LocalCluster
from fsspec.implementations.local import LocalFileSystem

import lpe_dask
from choosing import mostly_slow
from indexes import corrupted, right_lists
from lpe_dask.batch import runs
from lpe_dask.batch.job import ClusterSection
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import cluster as clusters
from lpe_dask.cli import commands, interrupts, outcome
from lpe_dask.cli.options import take_workers
from lpe_dask.kernels import nn_descent
from lpe_dask.model.parameters import PARAMETERS
from lpe_dask.search import packing
from lpe_dask.tasks.workers import active_client

COMMAND = Path(sys.executable).with_name("lpe-dask")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.integers(0, 6, (60, 2)) * 1.0, columns=["x", "y"])
    data = pd.DataFrame(rng.integers(-2, 9, (20, 2)) * 1.0, columns=["x", "y"])
    nominal.to_parquet("nominal.parquet")
    data.assign(name="row").to_parquet("data.parquet")
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(commands.cli, [str(argument) for argument in arguments])


def score(*arguments):
    """Score data.parquet against nominal.parquet in this process."""
    given = ["data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    return invoke("score", *given, "--scheduler", "threads", *arguments)


def message(result):
    """The paragraph on standard error that says what is wrong."""
    lines = result.stderr.splitlines()
    assert "Traceback" not in result.stderr
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:]
    return lines[-1].removeprefix("Error: ")


# What is offered


@pytest.mark.parametrize(
    ("arguments", "algorithm"),
    [([], "auto"), (["--algorithm", "nn_descent"], "nn_descent")],
)
def test_compile__compiles_and_says_so(monkeypatch, arguments, algorithm):
    asked = []
    monkeypatch.setattr("lpe_dask.kernels.compile_kernels", asked.append)

    result = CliRunner().invoke(commands.cli, ["compile", *arguments])

    assert (result.exit_code, asked) == (0, [algorithm])
    assert result.stdout == "all kernels are ready, after 0 s\n"


def test_commands__are_those_that_are_built():
    names = "compile demo explain fit plan report run score status"
    assert " ".join(sorted(commands.cli.commands)) == names


@pytest.mark.parametrize(
    "command",
    [[], ["score"], ["plan"], ["demo"], ["explain"], ["report"], ["run"]],
)
def test_help__is_for_people(command):
    result = invoke(*command, "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    assert "Any" not in result.stdout


def test_help__does_not_need_docstrings():
    """With PYTHONOPTIMIZE=2 there are none."""
    for command in ([], ["score"]):
        shown = [
            subprocess.run(
                [sys.executable, "-m", "lpe_dask", *command, "--help"],
                env=os.environ | {"PYTHONOPTIMIZE": level},
                capture_output=True, text=True, check=True,
            ).stdout
            for level in "02"
        ]  # fmt: skip
        assert shown[0] == shown[1]


def test_score__names_a_damaged_file_and_goes_on_when_it_is_mended(files):
    data = Path("data.parquet")
    whole = data.read_bytes()
    data.write_bytes(whole[:4] + bytes(60) + whole[64:])

    damaged = message(score())
    data.write_bytes(whole)

    assert "data.parquet is damaged in row group 0, column 'x': " in damaged
    assert "the same command resumes, and keeps the parts in " in damaged
    assert score().exit_code == 0


def test_version__is_that_of_the_package():
    assert invoke("--version").stdout == f"lpe-dask, version {lpe_dask.__version__}\n"


def test_module__is_the_command():
    shown = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        for command in ([COMMAND], [sys.executable, "-m", "lpe_dask"])
    ]

    assert shown[0].stdout == shown[1].stdout
    assert shown[1].stdout.startswith("Usage: lpe-dask ")


def test_score__offers_the_choices_of_the_library():
    choices = {
        option.name: list(option.type.choices)
        for option in commands.score.params
        if hasattr(option.type, "choices")
    }

    assert choices == {
        name: [choice or "none" for choice in known.choices]
        for name, known in PARAMETERS.items()
        if known.choices is not None
    }


def test_score__has_the_defaults_of_the_library(files):
    score()

    summary = json.loads(Path("out/_summary.json").read_text())
    assert summary["parameters"] == lpe_dask.LPE().get_params()


def test_score__hands_on_what_is_given(files):
    options = {
        "graph": "radius",
        "radius": 0.5,
        "metric": "seuclidean",
        "scale": "minmax",
        "alpha": 0.2,
        "algorithm": "brute",
        "missing": "drop",
    }

    score(
        *(f"--{name}={value}" for name, value in options.items()), "--keep=", "--columns=y"
    )

    summary = json.loads(Path("out/_summary.json").read_text())
    assert summary["parameters"] == lpe_dask.LPE(**options).get_params()
    assert list(pd.read_parquet("out").columns) == ["p_value", "statistic", "is_anomaly"]


# What is printed


def test_score__hands_on_other_estimators(files):
    result = score(
        "--metric", "geodesic", "--metric-params", '{"n_neighbors": 4}', "--n-neighbors", 6,
        "--calibration", "conformal", "--calibration-size", 20, "--random-state", 3,
        "--aggregation", "mean",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    model = lpe_dask.LPE(
        6, metric="geodesic", metric_params={"n_neighbors": 4}, calibration="conformal",
        calibration_size=20, random_state=3, aggregation="mean",
    )  # fmt: skip
    model.fit(pd.read_parquet("nominal.parquet"))
    expected = model.score_samples(pd.read_parquet("data.parquet"))
    actual = pd.read_parquet("out")["p_value"]
    np.testing.assert_array_equal(actual, expected)
    summary = json.loads(Path("out/_summary.json").read_text())
    assert summary["calibration_rows"] == 20
    assert summary["calibration_band"] is None  # none is known for this form


def test_commands__say_that_a_scale_is_needed(files):
    table = pd.read_parquet("nominal.parquet")
    table["y"] *= 1000
    table.to_parquet("nominal.parquet")

    def advice(*command):
        result = invoke(*command, "--scheduler", "threads")
        assert result.exit_code == 0, result.output
        return re.findall(
            r"^(\w+) makes up .* give scale=.* \((.*)\)\.$", result.stderr, re.MULTILINE
        )

    fit = ("fit", "nominal.parquet", "--overwrite", "--model", "model")
    run = ("score", "data.parquet", "--overwrite", "--output", "out")
    ((column, option),) = advice(
        *run, "--nominal", "nominal.parquet", "--check-calibration"
    )
    assert column == "y"
    assert advice(*run, "--nominal", "nominal.parquet", *option.split()) == []
    assert advice(*run, "--nominal", "nominal.parquet", "--scale", "none") == []
    assert advice(*fit) == [(column, option)]
    assert advice(*fit, *option.split()) == []
    assert advice(*run, "--model", "model") == []


def test_score__states_the_band_of_a_sample(files):
    result = score("--calibration-size", 20, "--random-state", 3)

    assert result.exit_code == 0, result.output
    summary = json.loads(Path("out/_summary.json").read_text())
    band = {"level": 0.95, "half_width": (np.log(40) / 40) ** 0.5}
    assert summary["calibration_rows"] == 20
    assert summary["calibration_band"] == pytest.approx(band)
    assert "compare with 20 nominal rows: within 0.304 of those with all" in result.stderr


@pytest.fixture
def led_files(files, monkeypatch):
    """Larger ones, of which blocks have indexes with the right lists."""
    rng = np.random.default_rng(0)
    for name, n_rows in (("nominal", 3900), ("data", 3100)):
        rows = pd.DataFrame(rng.standard_normal((n_rows, 6))).rename(columns=str)
        rows.to_parquet(f"{name}.parquet")
    monkeypatch.setattr(nn_descent, "neighbor_lists", right_lists)
    return files


APPROXIMATELY = ("--calibration-size", 400, "--random-state", 0, "--n-neighbors", 8)


def test_score__along_a_graph_has_the_alarms_of_the_exact_search(led_files):
    asked = ("--max-p-error", 0.02, "--recheck", 0.1)
    result = score(*APPROXIMATELY, "--algorithm", "nn_descent", *asked)
    assert result.exit_code == 0, result.output
    p = pd.read_parquet("out")["p_value"]
    summary = json.loads(Path("out/_summary.json").read_text())

    score(*APPROXIMATELY, "--algorithm", "brute", "--overwrite")
    exact = pd.read_parquet("out")["p_value"]

    assert (p <= exact).all()
    np.testing.assert_array_equal(p[exact <= 0.1], exact[exact <= 0.1])
    assert summary["algorithm_"] == "nn_descent"
    assert summary["certificate"]["max_p_error"] == 0.02
    assert summary["certificate"]["audited"] == 3000
    assert json.loads(Path("out/_summary.json").read_text())["certificate"] is None


def test_score__fails_where_too_many_neighbors_are_missed(led_files, monkeypatch):
    lists = corrupted("all random", 0, blocks=range(9))
    monkeypatch.setattr(nn_descent, "neighbor_lists", lists)
    monkeypatch.setattr(packing, "joined_lists", lambda of_rows: of_rows[:, :6].copy())

    result = score(*APPROXIMATELY, "--algorithm", "nn_descent")

    assert result.exit_code == 1
    said = message(result)
    assert "the approximate search misses too many neighbors" in said
    assert "--algorithm auto" in said
    assert not list(Path("out").glob("*.parquet"))
    assert score(*APPROXIMATELY, "--algorithm", "brute").exit_code == 0


def test_score__says_on_stderr_what_came_out(files):
    result = score("--alpha", "0.1", "--keep", "name, x")

    table = pd.read_parquet("out")
    flagged = table["is_anomaly"].sum()
    assert result.exit_code == 0
    assert result.stdout == ""
    assert re.search(
        rf"^20 rows against 60 nominal rows, in [\d.]+ s\n"
        rf"{flagged} flagged at alpha 0.1 \({flagged / 20:.2%}\)\n"
        rf"written to out\n\Z",
        result.stderr,
        re.MULTILINE,
    )
    assert "fitted 60 nominal rows" in result.stderr
    assert re.search(r"^measured 60 of 60 rows", result.stderr, re.MULTILINE)
    assert re.search(r"^scored 20 of 20 rows", result.stderr, re.MULTILINE)
    assert list(table.columns)[:2] == ["name", "x"]


def test_score__tells_what_it_could_not_measure(files):
    data, nominal = pd.read_parquet("data.parquet"), pd.read_parquet("nominal.parquet")
    data.loc[[1, 2], "x"] = np.nan
    nominal.loc[3, "y"] = np.inf
    data.to_parquet("data.parquet")
    nominal.to_parquet("nominal.parquet")

    result = score("--missing", "drop")

    assert "2 not measured: NaN or inf" in result.stderr
    assert "1 nominal rows dropped: NaN or inf" in result.stderr


def test_score__of_an_empty_table_is_done(files):
    pd.read_parquet("data.parquet").iloc[:0].to_parquet("data.parquet")

    result = score()

    assert result.exit_code == 0
    assert "0 flagged at alpha 0.05\n" in result.stderr
    assert len(pd.read_parquet("out")) == 0


def test_score__leaves_logging_as_it_was(files):
    log = logging.getLogger("lpe_dask")
    before = (log.level, list(log.handlers))

    score()

    assert (log.level, list(log.handlers)) == before


# What is refused: exit code 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nominal", "none.parquet"], "no table at none.parquet"),
        (["--nominal", "none/*.csv"], "no table at none/*.csv"),
        (["--nominal", "data.parquet"], "not: 'name' ("),
        (["--columns", "x,z"], "lack the columns ['z']"),
        (["--columns", ""], "no columns to measure"),
        (["--keep", "id"], "no columns ['id'] to keep"),
        (["--n-neighbors", "60"], "n_neighbors=60 needs at least 61 nominal rows"),
        (["--n-neighbors", "0"], "n_neighbors=0 must be a whole number"),
        (["--alpha", "1"], "alpha=1.0 must be a number between 0 and 1"),
        (["--graph", "radius"], "give radius"),
        (["--graph", "radius", "--radius", "-1"], "radius=-1.0 must be a finite number"),
        (["--output", "data.parquet"], "overlap: one is the other"),
        (["--output", "full"], "not the output of a run: notes.txt"),
        (["--output", "full", "--overwrite"], "not the output of a run: notes.txt"),
        (["--output", "nominal.csv/out"], "nothing can be written to the output"),
        (["--output", "nonsense://out"], "Protocol not known: nonsense"),
    ],
)
def test_score__refuses(files, arguments, said):
    Path("full").mkdir()
    Path("full/notes.txt").touch()
    Path("nominal.csv").touch()

    result = score(*arguments)

    assert result.exit_code == 2
    assert said in message(result)
    assert result.stdout == ""
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broken.parquet", b"PAR1", "broken.parquet is not a readable Parquet file"),
        ("empty.csv", b"", "empty.csv is empty"),
        ("table.xlsx", b"PK", "not of both or others"),
    ],
)
def test_score__refuses_files_that_are_no_tables(files, name, content, said):
    Path(name).write_bytes(content)

    result = invoke("score", name, "--output", "out", "--scheduler", "threads")

    assert result.exit_code == 2
    assert said in message(result)


def test_score__refuses_nominal_rows_that_are_not_finite(files):
    nominal = pd.read_parquet("nominal.parquet")
    nominal.loc[[3, 5], "y"] = np.nan
    nominal.to_parquet("nominal.parquet")

    result = score()

    assert result.exit_code == 2
    assert "y (2)" in message(result)
    assert "--missing drop" in message(result)


def test_score__refuses_to_hide_a_result(files):
    pd.read_parquet("data.parquet").assign(p_value=0).to_parquet("data.parquet")

    assert "['p_value'] already" in message(score())
    assert score("--keep", "name").exit_code == 0


def test_score__refuses_a_plan_that_does_not_fit(files):
    with dask.config.set({"lpe-dask.memory-limit": "1MiB"}):
        result = score()

    assert result.exit_code == 2
    assert "--memory-limit" in message(result)


def test_score__replaces_its_own_output_only_on_request(files):
    assert score().exit_code == 0
    assert "exists" in message(score())

    assert score("--overwrite", "--keep", "").exit_code == 0
    assert len(pd.read_parquet("out").columns) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "'--workers'"),
        (["--workers", "2", "--scheduler", "threads"], "Leave out one or the other"),
        (["--memory-limit", "4GiB", "--scheduler", "tcp://127.0.0.1:1"], "Leave out one"),
        (["--memory-limit", "plenty"], "'plenty' is not an amount of memory"),
        (["--memory-limit", "100MB"], "100MB is too little"),
        (["--scheduler", "processes"], "neither the address of a scheduler"),
        (["--scheduler", "tcp://a:1", "--scheduler-file", "f"], "name a scheduler each"),
        (["--scheduler", "threads", "--dashboard"], "--scheduler threads starts none"),
        (["--workers", "2", "--scheduler-file", "f"], "Leave out one or the other"),
        (["--give-up-after", "soon"], "'soon' is not a time"),
        (["--give-up-after", "0s"], "'0s' is no time to wait"),
        (["--metric", "cosine"], "'cosine' is not one of"),
        (["--metric-params", "w=1"], "'w=1' is not JSON"),
        (["--metric-params", "[1, 2]"], "'[1, 2]' is not a JSON object"),
        (["--alpha", "low"], "'low' is not a valid float"),
        (["--fdr", "low"], "'low' is not a valid float"),
        (["--false", "0.1"], "No such option"),
    ],
)
def test_score__refuses_options(files, arguments, said):
    result = invoke("score", "data.parquet", "--output", "out", *arguments)

    assert result.exit_code == 2
    assert said in message(result)


SOON = {
    f"lpe-dask.timeouts.{name}": 0.3
    for name in ("scheduler", "scheduler-file", "first-worker")
}


def test_score__may_be_tried_later_if_no_scheduler_answers(files):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

    with dask.config.set(SOON):
        result = score("--scheduler", address)

    assert result.exit_code == 75
    assert f"no scheduler answers at {address}" in message(result)
    assert not Path("out").exists()


@pytest.mark.parametrize("content", [None, "", '{"address": '])
def test_score__may_be_tried_later_if_no_scheduler_wrote_its_file(files, content):
    if content is not None:
        Path("scheduler.json").write_text(content)

    given = ["data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    with dask.config.set(SOON):
        result = invoke("score", *given, "--scheduler-file", "scheduler.json")

    assert result.exit_code == 75
    assert "no scheduler has written its address to scheduler.json for" in message(result)


def test_score__may_be_tried_later_if_a_storage_fails(files, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    result = score()

    assert result.exit_code == 75
    assert "reset by peer" in message(result)


def test_score__refuses_what_is_no_address(files):
    result = score("--scheduler", "nonsense://127.0.0.1:1")

    assert result.exit_code == 2
    assert "nonsense://127.0.0.1:1 is not the address of a scheduler" in message(result)


CERTIFICATES = "distributed.comm.tls.ca-file"


@pytest.mark.parametrize(
    ("address", "configured", "said"),
    [
        ("tls://127.0.0.1:1", {}, f"needs a certificate, but .* {CERTIFICATES}: None"),
        (
            "tcp://127.0.0.1:1",
            {"distributed.comm.require-encryption": True},
            "not to be joined without encryption",
        ),
        (
            "tls://127.0.0.1:1",
            {CERTIFICATES: "/none", "distributed.comm.tls.client.cert": "/none"},
            f"cannot be read: .*No such file.* {CERTIFICATES}: /none",
        ),
    ],
)
def test_score__refuses_an_address_without_its_certificates(
    files, address, configured, said
):
    began = time.monotonic()
    with dask.config.set(configured):
        result = score("--scheduler", address)

    assert result.exit_code == 2
    assert re.search(said, message(result))
    assert time.monotonic() - began < 5  # `distributed` would wait for 20 s


# What fails after the start: exit code 1


def test_score__fails_when_the_disk_is_full(files, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartFolder, "publish", full)

    result = score()

    assert result.exit_code == 1
    assert "No space left on device" in message(result)
    assert not list(Path("out").glob("part-*"))


def test_score__shows_a_traceback_on_request_only(files, monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("lpe_dask.batch.prepare", fail)

    short, long = score(), score("--debug")

    assert short.exit_code == long.exit_code == 1
    assert message(short) == "KeyError: 'a mistake of ours' (--debug shows where)"
    assert "Traceback" in long.stderr


# Interrupts: exit code 130


def test_score__ends_with_130_when_interrupted(files, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(PartFolder, "publish", interrupt)

    result = score()

    assert result.exit_code == 130
    assert result.stderr.endswith("Interrupted.\n")
    assert not list(Path("out").glob("part-*"))


def test_score__ends_with_143_at_sigterm(files, monkeypatch):
    def terminate(*arguments):
        raise interrupts.Terminated

    monkeypatch.setattr(PartFolder, "publish", terminate)

    result = score()

    assert result.exit_code == 143
    assert result.stderr.endswith("Terminated.\n")


@pytest.mark.parametrize("code", [130, 143])
def test_main__does_not_wait_for_threads_of_an_interrupted_run(monkeypatch, code):
    ended, done = [], []
    child = SimpleNamespace(kill=lambda: done.append("killed"))
    monkeypatch.setattr(outcome, "ignore_signals", lambda: done.append("ignored"))
    monkeypatch.setattr(commands, "cli", lambda **options: sys.exit(code))
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [child])
    monkeypatch.setattr("lpe_dask.tasks.remove_spools", lambda: done.append("removed"))
    monkeypatch.setattr(os, "_exit", ended.append)  # which returns, unlike the original
    monkeypatch.setattr(commands, "handle_signals", lambda end: None)

    with pytest.raises(SystemExit):
        commands.main()

    assert (ended, done) == ([code], ["ignored", "killed", "removed"])


def test_main__passes_other_exit_codes_on(monkeypatch):
    monkeypatch.setattr(commands, "handle_signals", lambda end: None)
    monkeypatch.setattr(commands, "cli", lambda **options: sys.exit(2))

    with pytest.raises(SystemExit, match="2"):
        commands.main()


# Workers


@pytest.fixture(scope="module")
def cluster():
    options = {
        "protocol": "tcp://",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(
        processes=False, n_workers=2, threads_per_worker=1, **options
    ) as cluster:
        yield cluster


def test_threads__are_those_of_this_process(files):
    before = psutil.Process().children()

    result = score()

    assert "dashboard" not in result.stderr
    assert psutil.Process().children() == before


@pytest.mark.cluster
def test_scheduler__joins_a_cluster_and_leaves_it_running(files, cluster):
    score()
    result = score("--output", "again", "--scheduler", cluster.scheduler_address)

    assert result.exit_code == 0, result.stderr
    assert cluster.dashboard_link in result.stderr
    assert len(cluster.scheduler.workers) == 2
    pd.testing.assert_frame_equal(pd.read_parquet("again"), pd.read_parquet("out"))


@pytest.mark.cluster
def test_scheduler__is_that_of_a_file_or_of_the_configuration(files, cluster):
    given = ["data.parquet", "--nominal", "nominal.parquet"]
    Path("scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))

    by_file = invoke("score", *given, "--output", "a", "--scheduler-file", "scheduler.json")
    with dask.config.set({"scheduler-address": cluster.scheduler_address}):
        configured = invoke("score", *given, "--output", "b")
        otherwise = invoke("score", *given, "--output", "c", "--scheduler", "threads")

    for result in (by_file, configured, otherwise):
        assert result.exit_code == 0, result.stderr
    said = f"scheduler: {cluster.scheduler_address}, from Dask's configuration"
    assert [said in r.stderr for r in (by_file, configured, otherwise)] == [0, 1, 0]
    assert ["dashboard" in r.stderr for r in (by_file, configured, otherwise)] == [1, 1, 0]


@pytest.mark.cluster
def test_scheduler__without_workers_may_be_tried_later(files):
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}

    with LocalCluster(n_workers=0, **options) as cluster, dask.config.set(SOON):
        result = score("--scheduler", cluster.scheduler_address)

    assert result.exit_code == 75
    assert "waiting for the first worker" in result.stderr
    assert "has had no worker for 0.3 seconds" in message(result)


def worker_ttl(dask_scheduler):
    return dask_scheduler.worker_ttl


@pytest.mark.cluster
def test_workers__are_started_as_asked_and_ended(files, monkeypatch):
    """Also when the run is interrupted, in the middle of a task."""
    found = {}

    def interrupt(run, lock):
        client = active_client()
        found.update(client.scheduler_info()["workers"])
        found["pids"] = list(client.run(os.getpid).values())
        found["ttl"] = client.run_on_scheduler(worker_ttl)
        client.submit(time.sleep, 60)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.Run, "fit_and_score", interrupt)

    given = ["data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    result = invoke("score", *given, "--workers", "1", "--memory-limit", "1GiB")

    pids, ttl = found.pop("pids"), found.pop("ttl")
    (worker,) = found.values()
    assert result.exit_code == 130
    assert "dashboard" not in result.stderr
    assert ttl == 60
    assert worker["memory_limit"] == 2**30
    assert worker["nthreads"] == dask.system.CPU_COUNT
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.cluster
def test_workers__are_chosen_to_suit_the_machine(files, monkeypatch):
    monkeypatch.setattr(clusters, "IN_PROCESS_SECONDS", 0)
    found = {}

    def look(run, lock):
        found.update(active_client().scheduler_info()["workers"])
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.Run, "fit_and_score", look)

    invoke("score", "nominal.parquet", "--output", "out")

    assert sum(worker["nthreads"] for worker in found.values()) == dask.system.CPU_COUNT


def test_workers__are_not_started_for_what_takes_no_longer(files, monkeypatch):
    def start(*_):
        pytest.fail("a few rows need no workers")

    monkeypatch.setattr(clusters.ChosenWorkers, "_distributed", start)

    scored = invoke(
        "score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"
    )
    explained = invoke("explain", "out", "--top", 60)  # more than the run has explained
    fitted = invoke("fit", "nominal.parquet", "--model", "model")

    assert [done.exit_code for done in (scored, explained, fitted)] == [0, 0, 0]
    for done in (scored, fitted):
        assert "running in this process: its" in done.stderr
        assert "(--workers N starts some anyway)" in done.stderr


@pytest.mark.parametrize("options", [["--workers", "1"], ["--memory-limit", "1GiB"]])
def test_workers__are_started_where_options_say_so(files, monkeypatch, options):
    started = []

    def start(workers):
        started.append(workers)
        return dask.config.set(scheduler="sync")

    monkeypatch.setattr(clusters.ChosenWorkers, "_distributed", start)

    assert invoke("score", "nominal.parquet", "--output", "out", *options).exit_code == 0
    assert len(started) == 1


def test_dashboard__is_asked_for_by_the_option_or_by_the_job():
    names = (
        "scheduler",
        "scheduler_file",
        "workers",
        "memory_limit",
        "spool",
        "give_up_after",
    )
    without = dict.fromkeys(names) | {"dashboard": False}

    by_job = take_workers({**without}, False, ClusterSection(workers=2, dashboard=True))
    by_option = take_workers(
        without | {"dashboard": True}, False, ClusterSection(workers=2)
    )
    neither = take_workers({**without}, False, ClusterSection(workers=2))

    chosen = by_job, by_option, neither
    assert [(of.n_workers, of.dashboard) for of in chosen] == [
        (2, True),
        (2, True),
        (2, False),
    ]


@pytest.mark.parametrize("way", ["option", "job"])
def test_dashboard__is_refused_without_bokeh_before_anything_is_done(
    files, monkeypatch, way
):
    monkeypatch.setitem(sys.modules, "bokeh", None)  # cannot be imported
    Path("job.toml").write_text(
        "[score]\ndata='data.parquet'\noutput='out'\n[cluster]\ndashboard=true\n"
    )
    by_option = ["score", "data.parquet", "--output", "out", "--dashboard"]

    result = invoke(*(by_option if way == "option" else ["run", "job.toml"]))

    assert result.exit_code == 2
    assert 'pip install "lpe-dask[dashboard]"' in message(result)
    assert not Path("out").exists()


FULL = "size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"


@pytest.mark.parametrize(
    ("mounted", "said"), [("ro tmpfs /dev/shm", "Read-only"), (FULL, "No space left")]
)
def test_workers__need_a_place_for_semaphores(files, mounted, said):
    """In a mount namespace of its own, so that nobody else misses anything."""
    within = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o {mounted}"
    if subprocess.run([*within, mount], capture_output=True).returncode != 0:
        pytest.skip("only root may mount something, and not in each container")
    given = ["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    command = [*within, f'{mount} && exec "$@"', "sh", COMMAND, *given]

    refused = subprocess.run([*command, "--workers", "1"], capture_output=True, text=True)
    done = subprocess.run(
        [*command, "--scheduler", "threads"], capture_output=True, text=True
    )

    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: no worker processes can be started")
    assert said in refused.stderr
    assert refused.stderr.endswith("work in this process with --scheduler threads.\n")
    assert refused.stderr.count("\n") == 1
    assert done.returncode == 0, done.stderr
    assert "joblib" not in done.stderr


def test_workers__need_semaphores(files, monkeypatch):
    def fail(*args, **options):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("multiprocessing.synchronize.Lock.__init__", fail)
    result = invoke("score", "nominal.parquet", "--output", "out", "--workers", "1")

    assert result.exit_code == 2
    assert "no worker processes can be started" in message(result)


def test_workers__are_not_said_to_need_semaphores_where_it_is_descriptors(
    files, monkeypatch
):
    """Each queue has a pipe, too; to make room in /dev/shm would not help."""

    def fail(*args, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("multiprocessing.synchronize.Lock.__init__", fail)
    result = invoke("score", "nominal.parquet", "--output", "out", "--workers", "1")

    assert result.exit_code == 2
    assert "Too many open files" in message(result)
    assert "/dev/shm" not in message(result)


# The log of distributed


@pytest.fixture
def shown():
    """What the log of distributed prints in this process, as set up outside of pytest."""
    log, handler = logging.getLogger("distributed"), logging.StreamHandler(io.StringIO())
    log.addHandler(handler)
    yield handler.stream
    log.removeHandler(handler)


def test_quiet_distributed__tells_of_faults_while_there_is_work(shown):
    names = ("distributed.scheduler", "asyncio", "tornado.application")
    log, loop, callbacks = map(logging.getLogger, names)
    of_client = logging.getLogger("distributed.client")
    before = loop.level, callbacks.level

    with clusters._quiet_distributed(False) as silence:
        log.warning("Detected different `run_spec` for key 'x'")
        log.info("Register worker")
        assert not of_client.isEnabledFor(logging.ERROR)
        assert not loop.isEnabledFor(logging.ERROR)
        assert callbacks.isEnabledFor(logging.ERROR)
        silence()
        log.error("Closing comm")
        assert not callbacks.isEnabledFor(logging.ERROR)  # Exception in callback

    lines = shown.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("Detected different `run_spec` for key 'x'")
    assert (loop.level, callbacks.level) == before


def log_and_fail():
    logging.getLogger("distributed.worker.memory").warning("Pausing worker")
    raise OSError("no such task")


@pytest.mark.cluster
@pytest.mark.parametrize("debug", mostly_slow([False, True], [False]))
def test_workers__tell_of_faults_and_errors_are_told_once(files, monkeypatch, capfd, debug):
    def fail(run, lock):
        active_client().submit(log_and_fail).result()

    monkeypatch.setattr(runs.Run, "fit_and_score", fail)
    given = ["score", "nominal.parquet", "--output", "out", "--workers", "1"]

    result = invoke(*given, *(["--debug"] if debug else []))

    written = capfd.readouterr().err
    assert result.exit_code == 2
    assert "Error: no such task" in result.stderr
    assert "distributed.worker.memory - WARNING - Pausing worker" in written
    assert ("Compute Failed" in written) is debug


# The command as a process


@pytest.fixture
def start():
    """A function that starts the command; what it started ends with the test."""
    started = []

    def start(*arguments, env=None, **options):
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **(env or {})}
        process = subprocess.Popen(
            [COMMAND, *arguments],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            # What a shell runs in the background ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


@pytest.fixture
def temporary(files, monkeypatch):
    """Where processes put what is temporary; nothing of it is to stay."""
    folder = files / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def large_tables():
    """Write tables that take minutes."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((300_000, 8)), columns=list("abcdefgh"))
    table.to_parquet("data.parquet", row_group_size=20_000)
    table.to_parquet("nominal.parquet", row_group_size=20_000)


def read_all(terminal):
    """What a process wrote to its terminal until it closed it."""
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(terminal, 2**16):
            shown += part
    os.close(terminal)
    return shown.decode()


@pytest.mark.cluster
def test_command__scores_on_a_cluster_of_its_own(files, start):
    arguments = ["score", "data.parquet", "--nominal", "nominal.parquet"]
    score()

    process = start(
        *arguments, "--output", "again", "--workers", "2", stderr=subprocess.PIPE
    )
    stdout, stderr = process.communicate(timeout=100)

    summary = json.loads(Path("again/_summary.json").read_text())
    assert process.returncode == 0, stderr
    assert stdout == ""
    assert stderr.endswith("written to again\n")
    assert "dashboard" not in stderr
    assert "distributed" not in stderr
    assert summary["peak_worker_bytes"] > 2**26
    pd.testing.assert_frame_equal(pd.read_parquet("again"), pd.read_parquet("out"))


INTERRUPTED = signal.SIGINT, 130, "Interrupted"
TERMINATED = signal.SIGTERM, 143, "Terminated"
ENDS = [
    (interrupt, *end)
    for interrupt in (os.kill, os.killpg)
    for end in (INTERRUPTED, TERMINATED)
]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("interrupt", "number", "code", "word"),
    mostly_slow(ENDS, []),
)
def test_command__ends_with_its_workers(
    files, temporary, interrupt, start, number, code, word
):
    """Signals go to all processes of a command, or a supervisor signals one of them."""
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        "--dashboard",
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    dashboard = process.stderr.readline()
    time.sleep(2)
    children = psutil.Process(process.pid).children(recursive=True)

    began = time.monotonic()
    interrupt(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    seconds = time.monotonic() - began
    _, alive = psutil.wait_procs(children, timeout=5)

    assert dashboard.startswith("dashboard: ")
    assert len(children) >= 2
    assert process.returncode == code
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    assert seconds < 10
    assert alive == []
    assert not Path("out/_lock.json").exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.cluster
def test_command__tells_of_a_worker_that_was_killed(files, start):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--workers", "2", "--dashboard"],
        stderr=subprocess.PIPE,
    )
    dashboard = process.stderr.readline()
    worker = next(
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    )

    worker.kill()
    line = next(line for line in process.stderr if "distributed.nanny" in line)

    assert dashboard.startswith("dashboard: http://127.0.0.1:")
    assert "distributed.nanny - WARNING - Restarting worker" in line


def tables_to_spool():
    """Write tables that take minutes, that a worker of 860 MiB does not hold."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((200_000, 40)))
    table.columns = [f"x{k}" for k in range(40)]
    Path("table").mkdir()
    for start in range(0, len(table), 5000):  # partitions take little
        table[start : start + 5000].to_parquet(f"table/{start:06}.parquet")
    Path("spool").mkdir()


SPOOLED = ["score", "table", "--algorithm", "brute", "--output", "out"]


THREADS, PROCESSES = ["--scheduler", "threads"], ["--workers", "2"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("workers", "wait", "number", "code", "word"),
    mostly_slow(
        [
            (workers, wait, *end)
            for workers in (THREADS, PROCESSES)
            for wait in (0.0, 2.0)  # while it is written, while it is read
            for end in (INTERRUPTED, TERMINATED)
        ],
        [(PROCESSES, 2.0, *TERMINATED)],
    ),
)
def test_command__leaves_no_spool(
    files, temporary, start, monkeypatch, workers, wait, number, code, word
):
    monkeypatch.setenv("DASK_LPE_DASK__MEMORY_LIMIT", "860MiB")
    tables_to_spool()
    process = start(*SPOOLED, *workers, "--spool", "spool", stderr=subprocess.PIPE)
    while not list(Path("spool").glob("*/*-*")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(wait)
    children = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(number)  # the second one changes nothing
    _, stderr = process.communicate(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=5)

    assert process.returncode == code, stderr
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    assert list(Path("spool").iterdir()) == []
    assert list(temporary.iterdir()) == []
    assert alive == []
    assert not Path("out/_lock.json").exists()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("interrupt", "number", "code", "word"),
    mostly_slow(ENDS, [(os.killpg, *INTERRUPTED)]),
)
def test_command__ends_while_workers_start(
    files, temporary, start, interrupt, number, code, word
):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (children := psutil.Process(process.pid).children(recursive=True)):
        time.sleep(0.01)
    time.sleep(0.2)

    interrupt(process.pid, number)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == code, stderr
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    with pytest.raises(ProcessLookupError):  # of the group, nobody is left
        os.killpg(process.pid, 0)
    assert not Path("out/_lock.json").exists()
    assert list(temporary.iterdir()) == []


def test_command__removes_the_spool_also_when_it_has_finished(files, temporary, start):
    """A signal that comes while Python ends does not change how the run ended."""
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text(
        "import atexit, sys, time\n"
        "if sys.argv[0].endswith('lpe-dask'):\n"
        "    atexit.register(time.sleep, 60)\n"
    )
    found = os.pathsep.join(["site", *filter(None, [os.environ.get("PYTHONPATH")])])
    given = ["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    process = start(
        *given, "--workers", "1", stderr=subprocess.PIPE, env={"PYTHONPATH": found}
    )
    for line in process.stderr:
        if line.startswith("written to"):
            break
    time.sleep(0.5)

    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 0, stderr
    assert list(temporary.iterdir()) == []


@pytest.fixture
def processes():
    """A list of processes to end after the test."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.cluster
def test_command__fails_when_the_scheduler_is_gone(files, processes, start):
    large_tables()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask_command, about = COMMAND.with_name("dask"), Path("scheduler.json")
    options = ["--scheduler-file", about, "--host", "127.0.0.1", "--dashboard-address"]
    scheduler = subprocess.Popen(
        [dask_command, "scheduler", *options, "127.0.0.1:0", "--port", "0"], **quiet
    )
    processes.append(scheduler)
    worker = [dask_command, "worker", *options, "127.0.0.1:0", "--no-nanny"]
    processes.append(subprocess.Popen(worker, **quiet))
    while not about.exists() or not about.read_text().endswith("}"):
        time.sleep(0.05)
    address = json.loads(about.read_text())["address"]

    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", address],
        stderr=subprocess.PIPE,
    )
    while not Path("out/_run.json").exists():  # from the beginning of the scoring on
        time.sleep(0.02)
    scheduler.kill()
    stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    last = stderr.splitlines()[-1]
    assert re.fullmatch(r"Error: the run stopped while it scored.*scheduler.*", last)
    assert stdout == ""


def test_command__keeps_a_line_up_to_date_on_a_terminal(files, start):
    terminal, end = pty.openpty()

    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", "threads"],
        stderr=end,
    )
    os.close(end)
    shown = read_all(terminal)
    stdout, _ = process.communicate(timeout=100)

    assert process.returncode == 0
    assert "\r" in shown
    assert re.search(r"scored (\d+) of \1 rows", shown)
    assert stdout == ""


@pytest.mark.parametrize(
    ("number", "code", "word"), mostly_slow([INTERRUPTED, TERMINATED], [TERMINATED])
)
def test_command__ends_at_once_when_threads_are_at_work(files, start, number, code, word):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", "threads"],
        stderr=subprocess.PIPE,
    )
    while not Path("out").exists():
        time.sleep(0.05)
    time.sleep(1)

    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == code
    assert time.monotonic() - began < 10
    # What was measured by then is kept for the next time.
    assert {path.name[:5] for path in Path("out").glob("*")} <= {"_fit-"}


@pytest.mark.parametrize("chosen", [["--scheduler", "threads"], ["--workers", "1"]])
def test_command__gives_up_where_nothing_moves(files, start, chosen):
    """A task that never ends, in this process or in a worker: nobody waits for it."""
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text(
        "import sys\n"
        "from lpe_dask.batch import parts\n"
        "from time import sleep\n"
        "parts._write_part = lambda *args: sleep(1000)\n"
    )
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *[*chosen, "--give-up-after", "3s"],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": "site"},
    )
    _, stderr = process.communicate(timeout=100)

    assert process.returncode == 1
    assert "Error: the run was given up, as no task was done for 0:00:0" in stderr
    assert "start the same run again to resume" in stderr
    assert not Path("out/_lock.json").exists()
