"""cluster/airflow/: the task of the DAG, in Airflow if it is installed, else as a function.

``pip install apache-airflow`` is in none of the project's extras. Without it, a stand-in
takes the place of the decorators: that shows what the function does, nothing of Airflow.
"""

import datetime
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch.errors import RunError
from recipes import CLUSTER

DAY = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
HAS_AIRFLOW = importlib.util.find_spec("airflow") is not None

#: In the task, as Airflow runs it in a process of its own: the second part fails once.
FAIL_ONCE = """
    import lpe_dask
    from lpe_dask.batch.parts import PartFolder

    publish = PartFolder.publish

    def fail_once(folder, *args):
        if os.path.exists("second") and not os.path.exists("failed"):
            open("failed", "w").close()
            raise ConnectionError("lost")
        open("second", "w").close()
        return publish(folder, *args)

    PartFolder.publish = fail_once
"""


@pytest.fixture(autouse=True)
def job(tmp_path, monkeypatch):
    """A current folder with a job that scores two files of a day."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((200, 2))
    Path("in").mkdir()
    for i in range(2):
        pd.DataFrame(rows, columns=["x", "y"]).to_parquet(f"in/{i}.parquet")
    Path("job.toml").write_text(
        '[nominal]\ndata="in/0.parquet"\n[score]\ndata="in/*.parquet"\noutput="out/{date}"\n'
    )
    monkeypatch.setenv("LPE_JOB", str(tmp_path / "job.toml"))
    return tmp_path


# With a stand-in


class FinalError(Exception):
    """In place of AirflowFailException."""


@pytest.fixture
def recipe(monkeypatch):
    """The module of the recipe; `arguments` of it has the arguments of the decorators."""
    of_decorators = {}

    def decorator(name):
        def decorate(**arguments):
            of_decorators[name] = arguments
            return lambda function: function if name == "task" else (lambda: None)

        return decorate

    sdk, errors = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    sdk.task, sdk.dag = decorator("task"), decorator("dag")
    errors.AirflowFailException = FinalError
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setitem(sys.modules, "airflow.sdk.exceptions", errors)
    path = CLUSTER / "airflow" / "lpe_nightly.py"
    spec = importlib.util.spec_from_file_location("lpe_nightly", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.arguments = of_decorators
    return module


def test_score__does_a_day_once(recipe, job):
    done = recipe.score(SimpleNamespace(logical_date=DAY))

    assert done.keys() == {"flagged", "drift", "refit"}
    assert (job / "out" / "2026-11-20" / "_summary.json").exists()
    by_hand = SimpleNamespace(logical_date=None, run_after=DAY)
    assert recipe.score(by_hand) == "nothing to do"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (FileNotFoundError("no rows"), FinalError),
        (ValueError("no number"), FinalError),
        (MemoryError("too few"), FinalError),
        (ConnectionError("no storage"), ConnectionError),
        (RunError("lost"), RunError),
    ],
)
def test_score__tries_again_what_may_pass(recipe, monkeypatch, error, raised):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(lpe_dask, "run", fail)

    with pytest.raises(raised, match=str(error)):
        recipe.score(SimpleNamespace(logical_date=DAY))


def test_dag__does_one_day_at_a_time_and_tries_again(recipe):
    assert recipe.arguments["dag"]["max_active_runs"] == 1
    assert recipe.arguments["dag"]["catchup"] is False
    assert recipe.arguments["task"]["retries"] == 8


# In Airflow


@pytest.fixture
def airflow(job):
    """Return a function that does the DAG for a day in Airflow, and gives what it says."""
    if not HAS_AIRFLOW:
        pytest.skip("Airflow is not installed")
    dags = job / "dags"
    dags.mkdir()
    text = (CLUSTER / "airflow" / "lpe_nightly.py").read_text()
    (dags / "lpe_nightly.py").write_text(text.replace("minutes=1", "seconds=1"))
    environment = os.environ | {
        "AIRFLOW_HOME": str(job / "home"),
        "DASK_SCHEDULER": "synchronous",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def call(*arguments):
        done = subprocess.run(
            ["airflow", *arguments], cwd=job, env=environment, text=True, timeout=240,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    assert call("db", "migrate")[0] == 0
    return call


@pytest.mark.timeout(600)
def test_airflow__does_the_day_of_its_run(airflow, job):
    code, output = airflow("dags", "test", "lpe_nightly", "2026-11-20")

    assert code == 0, output
    assert "state=success" in output
    assert (job / "out" / "2026-11-20" / "_summary.json").exists()


@pytest.mark.timeout(600)
def test_airflow__tries_again_nothing_that_is_final(airflow, job):
    (job / "job.toml").write_text("[score]\n")

    code, output = airflow("dags", "test", "lpe_nightly", "2026-11-20")

    assert code != 0
    assert "AirflowFailException: ValueError" in output
    assert "new_state=failed" in output
    assert not re.search("up_for_retry", output)


@pytest.mark.timeout(600)
def test_airflow__resumes_in_its_next_try(airflow, job):
    path = job / "dags" / "lpe_nightly.py"
    text, line = (
        path.read_text(),
        "    import lpe_dask  # not whenever Airflow reads this file\n",
    )
    assert line in text
    path.write_text(text.replace(line, FAIL_ONCE))

    code, output = airflow("dags", "test", "lpe_nightly", "2026-11-20")

    assert code == 0, output
    assert (job / "failed").exists()
    assert "1 of 2 parts exist already" in output
    assert (job / "out" / "2026-11-20" / "_summary.json").exists()
