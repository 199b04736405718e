"""The command line: what it prints, where, and with which exit code it ends."""

import errno
import io
import json
import logging
import multiprocessing
import os
import re
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
from calling import COMMAND, write_tables
from choosing import mostly_slow
from indexes import corrupted, right_lists
from lpe_dask.batch import runs
from lpe_dask.batch.job import ClusterSection
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import cluster as clusters
from lpe_dask.cli import commands, interrupts, outcome
from lpe_dask.kernels import nn_descent
from lpe_dask.model.lpe_parameters import PARAMETERS
from lpe_dask.search.blocks import packing
from lpe_dask.tasks.worker_pool import active_client


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()
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


@pytest.mark.full
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
    assert summary["certificate"]["n_audited"] == 3000
    assert json.loads(Path("out/_summary.json").read_text())["certificate"] is None


@pytest.mark.full
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
        (["--memory-limit", "plenty"], "--memory-limit='plenty' must be an amount"),
        (["--memory-limit", "100MB"], "of at least 540MiB"),
        (["--scheduler", "processes"], "--scheduler='processes' must be the address"),
        (["--scheduler", "tcp://a:1", "--scheduler-file", "f"], "name one each"),
        (["--scheduler", "threads", "--dashboard"], "would describe workers to start"),
        (["--workers", "2", "--scheduler-file", "f"], "Leave out one or the other"),
        (["--give-up-after", "soon"], "--give-up-after='soon' must be a time"),
        (["--give-up-after", "0s"], "must be a time above 0"),
        (["--metric", "cosine"], "'cosine' is not one of"),
        (["--metric-params", "w=1"], "'w=1' is not a JSON object"),
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
        ("tls://127.0.0.1:1", {}, f"needs a certificate, but .* {CERTIFICATES}"),
        (
            "tcp://127.0.0.1:1",
            {"distributed.comm.require-encryption": True},
            "is not the address of a scheduler to join",
        ),
        (
            "tls://127.0.0.1:1",
            {CERTIFICATES: "/none", "distributed.comm.tls.client.cert": "/none"},
            "certificates of .* cannot be read: .*No such file",
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


# Interrupts: exit codes 130 and 143


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt, 130, "Interrupted.\n"),
        (interrupts.Terminated, 143, "Terminated.\n"),
        (interrupts.StallTimeout("nothing moves"), 1, "Error: nothing moves\n"),
    ],
)
def test_score__ends_when_interrupted(files, monkeypatch, raised, code, said):
    def interrupt(*arguments):
        raise raised

    monkeypatch.setattr(PartFolder, "publish", interrupt)

    result = score()

    assert result.exit_code == code
    assert result.stderr.endswith(said)
    assert not list(Path("out").glob("part-*"))


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
    monkeypatch.setattr(clusters, "START_SECONDS", 0)
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

    monkeypatch.setattr(clusters.WorkerChoice, "_distributed", start)

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

    monkeypatch.setattr(clusters.WorkerChoice, "_distributed", start)

    assert invoke("score", "nominal.parquet", "--output", "out", *options).exit_code == 0
    assert len(started) == 1


@pytest.mark.parametrize(
    ("options", "section"),
    [
        ([], {"workers": 2, "threads": 3, "give_up_after": 60.0}),
        (
            ["--dashboard"],
            {"workers": 2, "threads": 3, "give_up_after": 60.0, "dashboard": True},
        ),
        (["--workers", 1], {"workers": 1, "give_up_after": 60.0}),
        (["--give-up-after", "2min"], {"workers": 2, "threads": 3, "give_up_after": 120.0}),
    ],
)
def test_run__takes_options_about_workers_before_those_of_the_job(
    files, monkeypatch, options, section
):
    job = "[score]\ndata='data.parquet'\ncolumns=['x']\noutput='out'\n[cluster]\n"
    Path("job.toml").write_text(f"{job}workers=2\nthreads=3\ngive_up_after='1min'\n")
    found = []

    def start(workers):
        found.append(workers.section)
        return dask.config.set(scheduler="sync")

    monkeypatch.setattr(clusters.WorkerChoice, "_distributed", start)

    assert invoke("run", "job.toml", *options).exit_code == 0
    assert found == [ClusterSection(**section)]


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


@pytest.mark.parametrize(
    ("number", "is_said"),
    [(errno.ENOENT, True), (errno.EMFILE, False)],  # each queue has a pipe, too
)
def test_workers__need_semaphores(files, monkeypatch, number, is_said):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("multiprocessing.synchronize.Lock.__init__", fail)
    result = invoke("score", "nominal.parquet", "--output", "out", "--workers", "1")

    assert result.exit_code == 2
    assert os.strerror(number) in message(result)
    assert ("semaphores, on Linux in /dev/shm" in message(result)) == is_said


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

    with clusters._distributed_log_level(False) as silence:
        log.warning("Detected different `execute_task` for key 'x'")
        log.info("Register worker")
        assert not of_client.isEnabledFor(logging.ERROR)
        assert not loop.isEnabledFor(logging.ERROR)
        assert callbacks.isEnabledFor(logging.ERROR)
        silence()
        log.error("Closing comm")
        assert not callbacks.isEnabledFor(logging.ERROR)  # Exception in callback

    lines = shown.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("Detected different `execute_task` for key 'x'")
    assert (loop.level, callbacks.level) == before


def log_and_fail():
    logging.getLogger("distributed.worker.memory").warning("Pausing worker")
    raise OSError("no such task")


@pytest.mark.cluster
@pytest.mark.parametrize("debug", mostly_slow([False, True], [False], []))
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
