"""The command line: what it prints, where, and with which exit code it ends."""

import errno
import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import dask
import numpy as np
import pandas as pd
import pytest
from fsspec.implementations.local import LocalFileSystem

import lpe_dask
from calling import COMMAND, SCORE, THREADS, invoke, write_tables
from lpe_dask.batch.job import ScoreSection
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import commands, interrupts, outcome
from lpe_dask.model.lpe_parameters import PARAMETERS


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    return tmp_path


def score(*arguments):
    """Score data.parquet against nominal.parquet in this process."""
    return invoke(*SCORE, *THREADS, *arguments)


def summary():
    return json.loads(Path("out/_summary.json").read_text())


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

    result = invoke("compile", *arguments)

    assert (result.exit_code, asked) == (0, [algorithm])
    assert result.stdout == "all kernels are ready, after 0 s\n"


def test_help__is_for_people():
    names = "compile demo explain fit inspect plan report run schema score status"
    assert " ".join(sorted(commands.cli.commands)) == names
    for command in ([], *([name] for name in commands.cli.commands)):
        result = invoke(*command, "--help")

        assert result.exit_code == 0
        assert result.stdout.startswith("Usage: ")
        assert "Any" not in result.stdout


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

    of_output = {
        name: [*get_args(ScoreSection.model_fields[name].annotation)]
        for name in ("rows", "format")
    }
    of_output["log_format"] = ["text", "json"]
    assert choices == of_output | {
        name: [choice or "none" for choice in known.choices]
        for name, known in PARAMETERS.items()
        if known.choices is not None
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "graph": "radius", "radius": 0.5, "metric": "seuclidean", "scale": "minmax",
            "alpha": 0.2, "algorithm": "brute", "missing": "drop",
        },
        {
            "n_neighbors": 6, "metric": "mahalanobis", "metric_params": {"VI": [[2.0]]},
            "calibration": "conformal", "calibration_size": 20, "random_state": 3,
            "aggregation": "mean",
        },
    ],
)  # fmt: skip
def test_score__has_the_defaults_of_the_library_and_hands_on_what_is_given(options):
    texts = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in options.items()}
    given = [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]

    result = score(*given, "--keep=", "--columns=y")

    assert result.exit_code == 0, result.output
    parameters = lpe_dask.LPE(**options).get_params()
    assert summary()["parameters"] == json.loads(json.dumps(parameters))
    results = ["p_value", "statistic", "is_anomaly", "p_value_status"]
    assert list(pd.read_parquet("out").columns) == results


# What is printed


def test_commands__say_that_a_scale_is_needed():
    table = pd.read_parquet("nominal.parquet")
    table["y"] *= 1000
    table.to_parquet("nominal.parquet")

    def advice(*command):
        result = invoke(*command, *THREADS, "--overwrite")
        assert result.exit_code == 0, result.output
        return re.findall(
            r"^(\w+) makes up .* give scale=.* \((.*)\)\.$", result.stderr, re.MULTILINE
        )

    fit = ("fit", "nominal.parquet", "--model", "model")
    ((column, option),) = advice(*SCORE, "--check-calibration")
    assert column == "y"
    assert advice(*SCORE, *option.split()) == []
    assert advice(*SCORE, "--scale", "none") == []
    assert advice(*fit) == [(column, option)]
    assert advice(*fit, *option.split()) == []
    assert advice("score", "data.parquet", "--output", "out", "--model", "model") == []


def test_score__says_on_stderr_what_came_out():
    result = score("--alpha", "0.1", "--keep", "name, x", "--calibration-size", 20)

    table = pd.read_parquet("out")
    flagged = table["is_anomaly"].sum()
    assert result.exit_code == 0
    assert result.stdout == ""
    assert re.search(
        rf"^20 rows against 60 nominal rows, in [\d.]+ s\n"
        rf"{flagged} flagged at alpha 0.1 \({flagged / 20:.2%}\)\n"
        rf"2.86 expected by chance\n"
        rf"p-values compare with 20 nominal rows: within 0.304 of those with all, .*\n"
        rf"written to out\n\Z",
        result.stderr,
        re.MULTILINE,
    )
    assert "fitted 60 nominal rows" in result.stderr
    assert re.search(r"^measured 20 of 20 rows", result.stderr, re.MULTILINE)
    assert re.search(r"^scored 20 of 20 rows", result.stderr, re.MULTILINE)
    assert list(table.columns)[:2] == ["name", "x"]


def test_score__tells_what_it_could_not_measure():
    data, nominal = pd.read_parquet("data.parquet"), pd.read_parquet("nominal.parquet")
    data.loc[[1, 2], "x"] = np.nan
    nominal.loc[3, "y"] = np.inf
    data.to_parquet("data.parquet")
    nominal.to_parquet("nominal.parquet")

    result = score("--missing", "drop")

    assert "2 without a p-value: 2 missing value" in result.stderr
    assert "1 nominal rows dropped: NaN or inf" in result.stderr


def test_score__names_levels_that_so_few_rows_cannot_judge():
    """No p-value of theirs is as small as 0.01."""
    result = score("--check-calibration", "--calibration", "conformal")

    assert result.exit_code == 0, result.output
    assert "  0 at alpha 0.01: cannot be judged\n" in result.stderr
    assert re.search(r"\n  \d at alpha 0\.1, 0 to \d are expected: ", result.stderr)


def test_score__of_an_empty_table_is_done():
    pd.read_parquet("data.parquet").iloc[:0].to_parquet("data.parquet")

    result = score()

    assert result.exit_code == 0
    assert "0 flagged at alpha 0.05\n" in result.stderr
    assert len(pd.read_parquet("out")) == 0


def test_score__leaves_logging_as_it_was():
    log = logging.getLogger("lpe_dask")
    before = (log.level, list(log.handlers))

    score()

    assert (log.level, list(log.handlers)) == before


# What is refused: exit code 2. The words are those of the library, and tested there


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nominal", "none.parquet"], "no table at none.parquet"),
        (["--columns", "x,z"], "lack the columns ['z']"),
        (["--n-neighbors", "60"], "n_neighbors=60 needs at least 61 nominal rows"),
        (["--alpha", "1"], "alpha=1.0 must be a number between 0 and 1"),
        (["--output", "."], "overlap: one is the other"),
        (["--output", "nonsense://out"], "Protocol not known: nonsense"),
        (["--scheduler", "nonsense://a:1"], "nonsense://a:1 is not the address of a sched"),
        # About options
        (["--workers", "0"], "'--workers'"),
        (["--workers", "2"], "Leave out one or the other"),
        (["--memory-limit", "4GiB", "--scheduler", "tcp://127.0.0.1:1"], "Leave out one"),
        (["--memory-limit", "plenty"], "--memory-limit='plenty' must be an amount"),
        (["--scheduler", "tcp://a:1", "--scheduler-file", "f"], "name one each"),
        (["--dashboard"], "would describe workers to start"),
        (["--give-up-after", "soon"], "--give-up-after='soon' must be a time"),
        (["--metric", "cosine"], "'cosine' is not one of"),
        (["--metric-params", "w=1"], "'w=1' is not a JSON object"),
        (["--metric-params", "[1, 2]"], "'[1, 2]' is not a JSON object"),
        (["--fdr", "low"], "'low' is not a valid float"),
        (["--false", "0.1"], "No such option"),
    ],
)
def test_score__refuses(arguments, said):
    result = score(*arguments)

    assert result.exit_code == 2
    assert said in message(result)
    assert result.stdout == ""
    assert not Path("out").exists()


def test_score__refuses_a_plan_that_does_not_fit():
    with dask.config.set({"lpe-dask.memory-limit": "1MiB"}):
        result = score()

    assert result.exit_code == 2
    assert "--memory-limit" in message(result)


def test_score__replaces_its_own_output_only_on_request():
    assert score().exit_code == 0
    assert "exists" in message(score())

    assert score("--overwrite", "--keep", "").exit_code == 0
    assert len(pd.read_parquet("out").columns) == 4


# What fails after the start: exit code 1; what may be tried later: 75


def publishing(monkeypatch, error):
    """Let an error be raised where a part of the output is written, and score."""

    def fail(*arguments):
        raise error

    monkeypatch.setattr(PartFolder, "publish", fail)
    result = score()
    assert not list(Path("out").glob("part-*"))
    return result


def test_score__fails_when_the_disk_is_full(monkeypatch):
    result = publishing(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))

    assert result.exit_code == 1
    assert "No space left on device" in message(result)


def test_score__shows_a_traceback_on_request_only(monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("lpe_dask.batch.runs.Run.prepare", fail)

    short, long = score(), score("--debug")

    assert short.exit_code == long.exit_code == 1
    assert message(short) == "KeyError: 'a mistake of ours' (--debug shows where)"
    assert "Traceback" in long.stderr


def test_score__may_be_tried_later_if_a_storage_fails(monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    result = score()

    assert result.exit_code == 75
    assert "reset by peer" in message(result)


# Interrupts: exit codes 130 and 143


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt, 130, "Interrupted.\n"),
        (interrupts.Terminated, 143, "Terminated.\n"),
        (interrupts.StallTimeout("nothing moves"), 1, "Error: nothing moves\n"),
    ],
)
def test_score__ends_when_interrupted(monkeypatch, raised, code, said):
    result = publishing(monkeypatch, raised)

    assert result.exit_code == code
    assert result.stderr.endswith(said)


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
