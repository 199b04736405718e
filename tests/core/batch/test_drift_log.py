"""What the runs of a job say together: each summary has the state, and what it follows."""

import datetime
import json
import os
import shutil
from pathlib import Path

import fsspec
import pytest

import lpe_dask
from choosing import mostly_full
from daily import JOB, N_ROWS, day, fit_model, prepare_folder, rows, write_day
from lpe_dask.batch import drift_log
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.summary import read_summary
from storages import s3_server


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_folder()


def run(number, job="job.toml", *, overwrite=False, **given):
    """Run the job of a day, with new rows if there are none yet."""
    if given or not Path(f"in/{day(number)}.parquet").exists():
        write_day(number, **given)
    return lpe_dask.run(job, date=day(number), overwrite=overwrite)["drift"]


def followed(drift):
    """The day that a run says it follows."""
    before = drift["predecessor"]
    return before and datetime.date.fromisoformat(before["date"]).day


def counted(drift):
    """How many runs, and the rows of each, are in the state after a run."""
    assert drift["state"]["counted_runs"] == drift["number"]
    return [run["rows"] for run in drift["state"]["runs"]]


# Days


def test_run__follows_the_newest_earlier_day():
    told = [run(i, n_rows=100 + i) for i in (1, 2, 5)]

    assert [drift["number"] for drift in told] == [1, 2, 3]
    assert [drift["run"] for drift in told] == ["2026-11-01", "2026-11-02", "2026-11-05"]
    assert [drift["verdict"] for drift in told] == ["no drift"] * 3
    assert [followed(drift) for drift in told] == [None, 1, 2]
    assert counted(told[2]) == [101, 102, 105]
    assert told[2]["predecessor"] == {
        "output": f"file://{os.getcwd()}/out/2026-11-02",
        "date": "2026-11-02",
        "run": told[1]["run"],
    }
    assert told[0]["no_predecessor_reason"].startswith(
        "there is no summary of an earlier run"
    )
    assert told[2]["no_predecessor_reason"] is told[2]["fork_warning"] is None
    assert sorted(os.listdir("out")) == ["2026-11-01", "2026-11-02", "2026-11-05"]
    assert read_summary("out/2026-11-05")["drift"] == told[2]


def test_run__says_when_rows_have_drifted():
    """How many p-values are small, whether alpha or a rate decides what is flagged."""
    Path("job.toml").write_text(JOB + "fdr = 0.05\n")
    told = [run(i, shift=0.0 if i < 3 else 1.0) for i in range(1, 6)]

    verdicts = [drift["verdict"] for drift in told]
    assert verdicts[:2] == ["no drift", "no drift"]
    assert verdicts[-1] == "drift"
    assert told[-1]["changed_since"]["number"] >= 3
    assert f"since {told[-1]['changed_since']['run']}" in told[-1]["text"]
    assert "% have p <= 0.05 (95% interval" in told[0]["text"]


def test_run__of_other_rows_on_an_earlier_day_begins_a_fork_warning(caplog):
    for number in (1, 2, 4):
        run(number)

    backfilled = run(3, n_rows=333)
    repaired = run(2, seed=99, overwrite=True)

    here = f"file://{os.getcwd()}/out"
    assert counted(backfilled) == [N_ROWS, N_ROWS, 333]
    assert backfilled["fork_warning"] == (
        f"this run forks its series: {here}/2026-11-04 already follows "
        f"{here}/2026-11-02; later runs follow the newest date"
    )
    assert repaired["fork_warning"] == (
        f"this run forks its series: {here}/2026-11-03 already follows "
        f"{here}/2026-11-02 as it was before; later runs follow the newest date"
    )
    assert [r.getMessage() for r in caplog.records] == [
        backfilled["fork_warning"], repaired["fork_warning"]
    ]  # fmt: skip
    later = run(5)
    assert (followed(later), later["number"], later["fork_warning"]) == (4, 4, None)


def test_run__before_the_first_of_its_series_says_so():
    run(2)

    assert "2026-11-02 already is the first run; later runs" in run(1)["fork_warning"]


def test_run__with_the_input_of_an_earlier_day_counts_it_once(caplog):
    """Such as a file without a day in its name, that was not written again."""
    Path("job.toml").write_text(JOB.replace("{date}.parquet", "newest.parquet"))
    rows(1).to_parquet("in/newest.parquet")
    numbers = [run(1)["number"], run(2)["number"]]
    rows(2).to_parquet("in/newest.parquet")

    later = run(3)

    assert [*numbers, later["number"]] == [1, 1, 2]
    assert followed(later) == 2
    assert not caplog.records


def test_run__with_a_refit_another_level_or_another_delta_begins_a_new_series():
    assert run(1)["number"] == run(2, n_rows=50)["number"] - 1 == 1
    Path("other.toml").write_text(JOB + "alpha = 0.1\n")
    assert run(3, "other.toml")["number"] == 1
    Path("strict.toml").write_text(JOB + "[drift]\ndelta = 0.001\n")
    assert run(4, "strict.toml")["number"] == 1
    assert followed(run(5)) == 2
    fit_model(1)

    refitted = run(6)

    assert (refitted["number"], refitted["predecessor"]) == (1, None)
    assert [followed(run(7)), run(8, "other.toml")["number"]] == [6, 1]


def test_run__takes_what_a_job_tolerates():
    tolerant = "[drift]\nanomalies = 0.99\nshift = 0.9\n"
    Path("tolerant.toml").write_text(JOB + tolerant)

    assert run(1, shift=1.5)["verdict"] == "drift"
    assert run(2, "tolerant.toml", shift=1.5)["verdict"] == "no drift"


OUTPUTS = {
    "another day": ("out/{date}", "out/{date-1d}-other"),
    "no folder": ("{date}-a", "{date}"),
    "a folder each day": ("out/{date}/a", "out/{date}/b"),
    "a letter before": ("out/a-{date}", "out/b-{date}"),
    "a day that stays": ("out/2020-01-01-{date}", "out/2020-01-01-{date}-{date-7d}"),
}


@pytest.mark.parametrize("kind", mostly_full(OUTPUTS, ["another day", "no folder"]))
def test_run__of_two_jobs_that_share_a_folder_has_a_series_for_each(kind):
    for name, output in zip("ab", OUTPUTS[kind], strict=True):
        Path(f"{name}.toml").write_text(JOB.replace("out/{date}", output))
    Path("out/notes").mkdir(parents=True)
    Path("out/2026-11-99").mkdir()
    for number in (1, 2, 3):
        for name in "ab":
            drift = run(number, f"{name}.toml")

            assert drift["number"] == number
            assert followed(drift) == (number - 1 or None)


def test_run__does_not_read_all_summaries_of_a_job_that_is_fitted_daily(monkeypatch):
    monkeypatch.setattr(drift_log, "MAX_SUMMARIES", 2)
    run(1)
    fit_model(1)
    for number in (2, 3):
        run(number)
    fit_model(0)
    assert run(4)["number"] == 1

    monkeypatch.setattr(drift_log, "MAX_SUMMARIES", 3)

    assert run(5)["number"] == 2
    assert [followed(run(4, overwrite=True)), followed(run(6))] == [1, 5]


# What cannot be read


def with_drift(**changed):
    def change(text):
        summary = json.loads(text)
        return json.dumps(summary | {"drift": summary["drift"] | changed})

    return change


DAMAGES = {
    "empty": lambda text: "",
    "cut short": lambda text: text[:-100],
    "a list": lambda text: "[1]",
    "nested": lambda text: "[" * 100_000,
    "no drift": lambda text: json.dumps(json.loads(text) | {"drift": 3}),
    "no state": with_drift(state=None),
    "a damaged state": with_drift(state={"sums": [3]}),
}


@pytest.mark.parametrize(
    "damage", mostly_full(DAMAGES, ["cut short", "no drift", "a damaged state"])
)
def test_run__passes_over_a_damaged_summary(caplog, damage):
    for number in (1, 2, 4):
        run(number)
    for number in (2, 4):
        path = Path(f"out/{day(number)}/_summary.json")
        path.write_text(DAMAGES[damage](path.read_text()))

    drift = run(3)

    assert followed(drift) == 1
    if damage != "no drift":
        assert "2026-11-02 is passed over, as it is damaged" in caplog.text


def test_run__does_not_fail_where_earlier_outputs_cannot_be_read(caplog, monkeypatch):
    run(1)

    def refuse(series, *arguments):
        raise PermissionError("no such permission")

    with monkeypatch.context() as patch:
        patch.setattr(drift_log.RunSeries, "_summary", refuse)
        drift = run(2)

    assert (drift["number"], drift["predecessor"]) == (1, None)
    assert "cannot be read: PermissionError: no such" in drift["no_predecessor_reason"]
    assert "counts as the first one of its series" in caplog.text
    # A replay finds what was not there.
    assert run(2, overwrite=True)["number"] == 2


# Outputs without a day in their name


SCORED = """
[model]
path = "model"
[score]
"""


def score(seed, *, output="scored", **given):
    """Run a job without a day in its output."""
    if seed is not None:
        rows(seed, n_rows=100 + seed).to_parquet("rows.parquet")
    keys = {"data": "rows.parquet", "output": output, **given}
    lines = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    Path("scored.toml").write_text(SCORED + "\n".join(lines))
    return lpe_dask.run("scored.toml", overwrite=True)["drift"]


def test_run__without_a_day_follows_the_run_that_it_replaces():
    told = [score(seed) for seed in (1, 2, 3, None, None, 4)]

    assert [drift["number"] for drift in told] == [1, 2, 3, 3, 3, 4]
    assert told[3] == told[4] == told[2]
    assert counted(told[5]) == [101, 102, 103, 104]
    output = f"file://{os.getcwd()}/scored"
    assert told[5]["predecessor"] == {
        "output": output, "date": None, "run": told[2]["run"]
    }  # fmt: skip
    assert score(5, output="elsewhere")["predecessor"] is None


def test_run__without_a_day_with_a_refit_or_another_level_begins_a_new_series():
    told = [score(1), score(2), score(None, keep=["x"]), score(3, alpha=0.1)]
    fit_model(1)
    told += [score(4), score(5)]

    assert [drift["number"] for drift in told] == [1, 2, 2, 1, 1, 2]


def test_run__without_a_day_keeps_no_value_of_a_run_that_it_replaces():
    score(1)
    score(2, private=["x"])

    copied = json.loads(Path("scored/_predecessor.json").read_text())
    assert sorted(copied) == ["before", "drift", "fingerprint", "patterns"]
    assert sorted(copied["before"]) == ["drift", "fingerprint", "patterns"]
    (known,) = copied["patterns"]["history"]
    assert {*map(len, known["rows"])} == {16}
    assert known["private_columns"] == []


def interrupt(seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpe_dask.batch.parts.PartFolder.publish", lambda *given: 1 / 0)
        with pytest.raises(RunError):
            score(seed)


def test_run__without_a_day_counts_runs_whose_replacement_was_interrupted(caplog):
    score(1)
    interrupt(2)
    interrupt(3)
    assert not Path("scored/_summary.json").exists()

    assert counted(score(4)) == [101, 104]
    assert counted(score(None)) == [101, 104]
    assert not caplog.records


def test_run__without_a_day_counts_a_run_once_that_another_one_was_to_replace(caplog):
    score(1)
    before = score(2)
    shutil.copy2("rows.parquet", "2.parquet")
    interrupt(3)
    shutil.copy2("2.parquet", "rows.parquet")

    again = score(None)

    assert counted(again) == [101, 102]
    assert again == before
    assert not caplog.records


# Other storages


@pytest.fixture(params=mostly_full(["memory", "s3"], ["memory"]))
def place(request):
    if request.param == "memory":
        yield "memory://series"
        fsspec.filesystem("memory").store.clear()
        return
    with s3_server({}):
        yield "s3://bucket/series"


def test_run__has_its_series_on_every_storage(place):
    Path("job.toml").write_text(JOB.replace("out/", f"{place}/"))
    told = [run(number) for number in (1, 2, 3)]

    assert [followed(drift) for drift in told] == [None, 1, 2]
    assert told[2]["predecessor"]["output"].endswith("/series/2026-11-02")
    assert run(2, overwrite=True) == told[1]
    assert "forks its series" in run(2, seed=8, overwrite=True)["fork_warning"]
    told = [score(seed, output=f"{place}/scored") for seed in (1, 2, None)]
    assert [drift["number"] for drift in told] == [1, 2, 2]
