"""What the runs of a job say together, in monitor.json beside their outputs."""

import json
import os
import threading
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch import days, monitor
from lpe_dask.batch.api import score_job
from lpe_dask.batch.summary import read_summary
from lpe_dask.batch.told import Told
from lpe_dask.batch.unfinished import DayOfJob

N_ROWS = 400

JOB = """
[model]
path = "model"
[score]
data = "in/{date}.parquet"
output = "out/{date}"
"""


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(seed, shift=0.0, n_rows=N_ROWS):
    values = np.random.default_rng(seed).standard_normal((n_rows, 2)) + shift
    return pd.DataFrame(values, columns=["x", "y"])


@pytest.fixture
def model():
    lpe_dask.LPE(n_neighbors=5, alpha=0.05).fit(rows(0, n_rows=1000)).save("model")
    return "model"


def night(number, *, seed=None, shift=0.0, output=None, **given):
    data = f"night-{number}.parquet"
    rows(number if seed is None else seed, shift).to_parquet(data)
    output = output or f"out/night-{number}"
    return lpe_dask.score_files(data, output, **({"model": "model"} | given))


def states():
    return json.loads(Path("out/monitor.json").read_text())["states"]


def only_state():
    (state,) = states().values()
    return state


def test_night__each_run_is_added_to_those_before_it(model):
    nights = [night(i)["drift"] for i in (1, 2, 3)]

    assert [told["night"] for told in nights] == [1, 2, 3]
    assert [told["verdict"] for told in nights] == ["fits"] * 3
    state = only_state()
    assert state["nights"] == 3
    assert [run["output"] for run in state["runs"]] == [
        f"file://{os.getcwd()}/out/night-{i}" for i in (1, 2, 3)
    ]
    assert nights[2]["history"] == state["runs"]
    assert sorted(os.listdir("out")) == ["monitor.json", "night-1", "night-2", "night-3"]


def test_night__says_when_rows_have_drifted(model):
    verdicts = [
        night(i, shift=0.0 if i < 3 else 0.7)["drift"]["verdict"] for i in range(1, 6)
    ]

    assert verdicts[:2] == ["fits", "fits"]
    assert verdicts[-1] == "drifting"
    assert read_summary("out/night-5")["drift"]["changed_since"]["night"] >= 3


def test_night__broken_input_is_not_counted_but_remembered(model):
    night(1)
    data = rows(2)
    data.loc[: N_ROWS // 3, "x"] = np.nan
    data.to_parquet("broken.parquet")

    broken = lpe_dask.score_files("broken.parquet", "out/broken", model=model)["drift"]

    assert (broken["verdict"], broken["night"]) == ("broken input", 1)
    assert [run["verdict"] for run in only_state()["runs"]] == ["fits", "broken input"]


@pytest.mark.parametrize("n_nights", [1, 3])
def test_night__a_run_that_is_done_again_counts_once(model, n_nights):
    """And what came after it is not its past."""
    first, *_ = [night(i + 1)["drift"] for i in range(n_nights)]
    again = lpe_dask.score_files(
        "night-1.parquet", "out/night-1", model=model, overwrite=True
    )["drift"]

    assert again == first
    assert len(again["history"]) == 1
    assert only_state()["nights"] == n_nights


def test_night__another_run_into_the_same_output_is_judged_but_not_counted(model, caplog):
    night(1)
    other = night(1, seed=77, shift=3.0, overwrite=True)["drift"]

    assert not other["is_counted"]
    assert other["verdict"] in ("drifting", "broken input")
    assert "not counted" in caplog.text
    assert only_state()["nights"] == 1
    assert only_state()["runs"][0]["verdict"] == "fits"


def test_night__a_refit_and_another_level_begin_a_new_series(model):
    night(1)
    night(2, alpha=0.1)
    assert night(3)["drift"]["night"] == 2
    lpe_dask.LPE(n_neighbors=5, alpha=0.05).fit(rows(9, n_rows=1000)).save(
        "model", overwrite=True
    )

    assert night(4)["drift"]["night"] == 1
    assert sorted(state["nights"] for state in states().values()) == [1, 1, 2]


@pytest.mark.parametrize("name", ["MOST_OF_JOB", "MOST_STATES"])
def test_night__keeps_the_series_that_were_used_last(model, monkeypatch, caplog, name):
    monkeypatch.setattr(monitor, name, 2)
    for i, alpha in enumerate([0.05, 0.06, 0.05, 0.07], 1):
        night(i, alpha=alpha)

    assert sorted(state["alpha"] for state in states().values()) == [0.05, 0.07]
    assert ("begins anew" in caplog.text) == (name == "MOST_STATES")
    monitor.catch_up("out/night-2")
    assert sorted(state["alpha"] for state in states().values()) == [0.05, 0.07]


def test_night__of_many_jobs_in_one_folder_has_a_series_for_each(model):
    """One job drops no series of another one, whatever it was fitted on."""
    Path("in").mkdir()
    both = pd.date_range("2026-11-20", periods=2)
    for day in both:
        rows(day.day).to_parquet(f"in/{day.date()}.parquet")
    for region in range(monitor.MOST_OF_JOB + 2):
        job = JOB.replace("out/{date}", f"out/{{date}}-{region}")
        Path(f"job-{region}.toml").write_text(job)
    for day in both:
        for path in sorted(Path().glob("job-*.toml")):
            told = lpe_dask.run(path, date=day.date())["drift"]
            assert told["night"] == day.day - 19

    assert len(states()) == monitor.MOST_OF_JOB + 2


def test_night__says_that_another_delta_holds_from_the_next_fit_on(model, caplog):
    night(1)
    Path("job.toml").write_text(
        "[model]\npath = 'model'\n[score]\ndata = 'night-2.parquet'\n"
        "output = 'out/night-2'\n[drift]\ndelta = 0.001\n"
    )
    rows(2).to_parquet("night-2.parquet")

    told = lpe_dask.run("job.toml")["drift"]

    assert (told["night"], told["delta"]) == (2, 0.01)
    assert "delta = 0.01 was set when the series of runs in" in caplog.text


def test_night__of_a_run_that_controls_the_rate_does_not_call_small_p_values_flagged(model):
    output = "out/flagged/night-1"
    told = night(1, fdr=0.05, output=output)

    assert told["flagged"] < told["drift"]["flagged"]
    assert "flagged" not in told["drift"]["text"]
    assert "% with p <= 0.05 (between" in told["drift"]["text"]
    # Names stay as they are.
    later = [night(i, fdr=0.05, shift=1.0, output=f"out/flagged/night-{i}") for i in (2, 3)]
    assert "out/flagged/night-2 (night 2)" in later[1]["drift"]["text"]


def test_catch_up__of_an_earlier_day_whose_run_died_before_it_was_counted(
    model, monkeypatch
):
    """A start on another day counts it, and removes its note."""
    Path("in").mkdir()
    for day in (20, 21):
        rows(day).to_parquet(f"in/2026-11-{day}.parquet")
    Path("job.toml").write_text(JOB)
    first, second = (pd.Timestamp(2026, 11, day) for day in (20, 21))
    with monkeypatch.context() as patch:
        patch.setattr(monitor.Night, "keep", lambda night: None)
        patch.setattr(DayOfJob, "forget", lambda day: None)
        lpe_dask.run("job.toml", date=first.date())
    later = second.tz_localize("UTC").to_pydatetime() + pd.Timedelta("9D")
    monkeypatch.setattr(days, "now", lambda: later)

    assert days.next_job("job.toml").today.day == later.date()

    assert only_state()["nights"] == 1
    assert not list(Path("out/_runs").iterdir())


def test_night__runs_at_the_same_time_are_all_counted(model):
    """Each holds the lock while it reads and writes the file."""
    for i in range(1, 5):
        rows(i).to_parquet(f"night-{i}.parquet")

    def score(i):
        lpe_dask.score_files(f"night-{i}.parquet", f"out/night-{i}", model=model)

    threads = [threading.Thread(target=score, args=[i]) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert only_state()["nights"] == 4


def test_night__of_a_job_has_a_series_of_its_own(model):
    Path("in").mkdir()
    for day in (20, 21):
        rows(day).to_parquet(f"in/2026-11-{day}.parquet")
    Path("job.toml").write_text(JOB)
    night(1)

    for day in (20, 21):
        lpe_dask.run("job.toml", date=pd.Timestamp(2026, 11, day).date())

    assert read_summary("out/2026-11-21")["drift"]["night"] == 2
    assert sorted(state["nights"] for state in states().values()) == [1, 2]


def test_night__takes_what_a_job_tolerates(model):
    Path("in").mkdir()
    rows(1, shift=4.0).to_parquet("in/2026-11-20.parquet")
    Path("job.toml").write_text(JOB + "[drift]\nanomalies = 0.99\nmoved = 0.9\n")

    summary = lpe_dask.run("job.toml", date=pd.Timestamp(2026, 11, 20).date())

    tolerances = summary["drift"]["series"]["tolerances"]
    assert (tolerances["anomalies"], tolerances["moved"]) == (0.99, 0.9)


def test_catch_up__counts_a_run_that_died_before_it_was_counted(model, monkeypatch):
    Path("in").mkdir()
    rows(1).to_parquet("in/2026-11-20.parquet")
    Path("job.toml").write_text(JOB)
    day = pd.Timestamp(2026, 11, 20).date()
    with monkeypatch.context() as patch:
        patch.setattr(monitor.Night, "keep", lambda night: None)
        lpe_dask.run("job.toml", date=day)
    assert not Path("out/monitor.json").exists()

    assert lpe_dask.run("job.toml", date=day) is None

    assert only_state()["nights"] == 1
    before = Path("out/monitor.json").read_bytes()
    assert lpe_dask.run("job.toml", date=day) is None
    assert Path("out/monitor.json").read_bytes() == before


@pytest.mark.parametrize(
    "content", ["", "{", '{"format": 1}', '{"format": 1, "states": 3}']
)
def test_night__keeps_a_damaged_file_and_begins_anew(model, caplog, content):
    Path("out").mkdir()
    Path("out/monitor.json").write_text(content)

    assert night(1)["drift"]["night"] == 1

    assert "is damaged" in caplog.text
    assert Path("out/damaged-monitor.json").read_text() == content
    assert only_state()["nights"] == 1


def test_night__begins_a_series_anew_whose_state_is_damaged(model, caplog):
    night(1)
    content = json.loads(Path("out/monitor.json").read_text())
    for state in content["states"].values():
        del state["sums"]
    Path("out/monitor.json").write_text(json.dumps(content))

    assert night(2)["drift"]["night"] == 1

    assert "begins anew" in caplog.text


@pytest.mark.parametrize("content", ['{"format": 2, "series": 1}', "[]", '{"cpu": 3}'])
def test_night__leaves_alone_what_it_does_not_know(model, caplog, content):
    """The file of a later version, or of another program."""
    Path("out").mkdir()
    Path("out/monitor.json").write_text(content)

    told = night(1)["drift"]

    assert (told["verdict"], told["is_counted"]) == ("fits", False)
    assert "is not of format 1" in caplog.text
    assert Path("out/monitor.json").read_text() == content


def test_night__that_cannot_be_counted_does_not_fail_the_run(model, caplog, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(monitor, "hold", refuse)

    assert night(1)["drift"]["verdict"] == "fits"

    assert "is not counted" in caplog.text
    assert not Path("out/monitor.json").exists()


def test_night__that_cannot_be_counted_is_judged_after_those_before_it(model, monkeypatch):
    """And is counted by the next start of the run."""
    for number in (1, 2):
        night(number)
    with monkeypatch.context() as patch:
        patch.setattr(monitor, "hold", lambda *args, **given: 1 / 0)
        told = night(3)["drift"]

    assert (told["night"], told["is_counted"]) == (3, True)
    assert [run["night"] for run in told["history"]] == [1, 2, 3]
    assert only_state()["nights"] == 2

    monitor.catch_up("out/night-3")

    assert only_state()["nights"] == 3
    assert only_state()["runs"] == told["history"]


def test_night__there_is_none_for_rows_scored_among_themselves():
    rows(1).to_parquet("rows.parquet")

    summary = lpe_dask.score_files("rows.parquet", "out/own", n_neighbors=5)

    assert summary["drift"]["verdict"] is None
    assert not Path("out/monitor.json").exists()


def test_night__does_not_depend_on_partitions(model):
    Path("cut").mkdir()
    for i in range(4):
        rows(1).iloc[100 * i : 100 * (i + 1)].to_parquet(f"cut/{i}.parquet")
    cut = lpe_dask.score_files("cut", "other/cut", model=model)["drift"]

    whole = night(1)["drift"]

    assert cut["counts"] == whole["counts"]
    assert cut["log10_evidence"] == whole["log10_evidence"]


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("s3://bucket/out/a", "s3://bucket/out"),
        ("s3://bucket/out/", "s3://bucket"),
        ("s3://bucket", None),
        ("file:///srv/out", "file:///srv"),
        ("file:///out", "file:///"),
        ("memory://out", "memory:///"),
    ],
)
def test_told__of_a_job_without_days_is_beside_the_output(url, folder):
    assert Told.of(score_job("rows.parquet", url, model="model"), url).folder == folder


def test_night__there_is_none_without_a_folder_beside_the_output(model, monkeypatch):
    monkeypatch.setattr(Told, "watched", lambda *args: None)

    assert "no folder beside" in night(1)["drift"]["reason"]
