"""cluster/prefect/: the flow on a Prefect server of its own, for some seconds.

Needs ``pip install prefect``, which is in none of the project's extras.
"""

import datetime
import importlib.util
import time

import dask
import numpy as np
import pandas as pd
import pytest

from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder
from recipes import CLUSTER

pytest.importorskip("prefect")

from prefect import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

DAY = datetime.date(2026, 11, 20)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Prefect and of what it needs
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module", autouse=True)
def server():
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The module of the recipe, whose job scores two files of a day."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((200, 2))
    (tmp_path / "in").mkdir()
    for i in range(2):
        pd.DataFrame(rows, columns=["x", "y"]).to_parquet(f"in/{i}.parquet")
    (tmp_path / "job.toml").write_text(
        '[nominal]\ndata="in/0.parquet"\n[score]\ndata="in/*.parquet"\noutput="out/{date}"\n'
    )
    monkeypatch.setenv("LPE_JOB", "job.toml")
    spec = importlib.util.spec_from_file_location(
        "lpe_nightly", CLUSTER / "prefect" / "lpe_nightly.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.score.retry_delay_seconds = 0
    with dask.config.set(scheduler="sync"):
        yield module


@pytest.fixture
def time_zone(monkeypatch):
    """That of this process is one where a day begins at 11:00 UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        yield
    time.tzset()


def failing(monkeypatch, error, times):
    """Let the parts fail that are begun at these times, and return the numbers of all."""
    whole, begun = PartFolder.publish, []

    def publish(folder, number, *args, **kwargs):
        begun.append(number)
        if len(begun) in times:
            raise error
        return whole(folder, number, *args, **kwargs)

    monkeypatch.setattr(PartFolder, "publish", publish)
    return begun


def test_flow__does_a_day_once(recipe, tmp_path):
    done = recipe.lpe_nightly(DAY)

    assert done.keys() == {"flagged", "drift", "refit"}
    assert (tmp_path / "out" / str(DAY) / "_summary.json").exists()
    assert recipe.lpe_nightly(DAY) == "nothing to do"


def test_flow__does_the_day_of_its_schedule(recipe, tmp_path, time_zone):
    """Also where the run starts days late; the time zone is that of the process."""
    scheduled = Scheduled(
        scheduled_time=datetime.datetime(2026, 11, 19, 17, tzinfo=datetime.UTC)
    )
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(recipe.lpe_nightly, state=scheduled)

    run_flow(recipe.lpe_nightly, flow_run=flow_run)

    assert (tmp_path / "out" / str(DAY) / "_summary.json").exists()


def test_flow__has_the_outcome_of_a_refit_in_its_result(recipe, monkeypatch):
    summary = {"flagged": 3, "drift": {"text": "drift"}, "refit": {"outcome": "rejected"}}
    monkeypatch.setattr(recipe.lpe_dask, "run", lambda job, date: summary)

    done = recipe.lpe_nightly(DAY)

    assert done == {"flagged": 3, "drift": "drift", "refit": "rejected"}


def test_flow__resumes_in_its_next_try(recipe, monkeypatch, tmp_path):
    begun = failing(monkeypatch, ConnectionError("lost"), [2])

    assert recipe.lpe_nightly(DAY)["flagged"] is not None

    assert begun[0] != begun[1] == begun[2]  # the second one twice
    assert len(begun) == 3
    assert not (tmp_path / "out" / str(DAY) / "_lock.json").exists()


def test_flow__tries_again_nothing_that_is_final(recipe, monkeypatch):
    calls = []

    def run(*args, **kwargs):
        calls.append(args)
        raise FileNotFoundError("no rows of this day")

    monkeypatch.setattr(recipe.lpe_dask, "run", run)
    with pytest.raises(FileNotFoundError, match="no rows of this day"):
        recipe.lpe_nightly(DAY)

    assert len(calls) == 1


def test_flow__gives_up_in_the_end(recipe, monkeypatch):
    begun = failing(monkeypatch, KeyError("bug"), range(100))

    with pytest.raises(RunError):
        recipe.lpe_nightly(DAY)

    assert len(begun) >= 1 + recipe.score.retries
