"""A job fits its model again by policy, and keeps the old one if the new one is worse."""

import json
import os
import re
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from daily import day, fit_model, rows, write_day
from lpe_dask.batch import refit, scoring
from lpe_dask.batch.explanations import explain_output
from lpe_dask.batch.fit import Fit
from lpe_dask.batch.status import read_status
from lpe_dask.batch.summary import read_summary
from lpe_dask.cli.commands import cli
from lpe_dask.model import ModelFolder

JOB = """
[nominal]
data = "nominal/{date-3d..date-1d}.parquet"
[model]
path = "model"
n_neighbors = 5
calibration = "conformal"
random_state = 0
refit = "every 2 days"
[score]
data = "in/{date}.parquet"
output = "out/{date}"
"""
ON_DRIFT = JOB.replace("every 2 days", "on drift")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with the job, and nominal rows of some days."""
    monkeypatch.chdir(tmp_path)
    for name in ("in", "nominal"):
        Path(name).mkdir()
    for number in range(-2, 6):
        write_nominal(number)
    Path("job.toml").write_text(JOB)


def write_nominal(number, width=1.0, shift=0.0):
    (rows(100 + number) * width + shift).to_parquet(f"nominal/{day(number)}.parquet")


def run(number, **given):
    """Run the job of a day; its rows are new if something is given, or none are there."""
    if given or not Path(f"in/{day(number)}.parquet").exists():
        write_day(number, **given)
    return lpe_dask.run("job.toml", date=day(number))


def checksum():
    return ModelFolder("model").load().checksum


def output(number):
    return pd.read_parquet(f"out/{day(number)}")


# Replaced


def test_run__after_some_days_replaces_the_model():
    first = run(1)
    before = checksum()
    second, third = run(2), run(3)
    after, fourth = checksum(), run(4)

    assert first["refit"] is None
    assert second["refit"] | {"old": None} == {
        "policy": "every 2 days", "due": None, "outcome": None, "reason": None,
        "text": None, "old": None, "new": None, "nominal_flagged_by_old": None,
        "seconds": None,
    }  # fmt: skip
    swap = third["refit"]
    assert (swap["outcome"], swap["reason"]) == ("swapped", None)
    assert swap["due"] == "the model is of 2026-11-01, 2 days ago"
    assert [swap[name]["checksum"] for name in ("old", "new")] == [before, after]
    assert [swap[name]["run_date"] for name in ("old", "new")] == [
        "2026-11-01", "2026-11-03"
    ]  # fmt: skip
    assert before != after
    assert [of["model_checksum"] for of in (first, second, third, fourth)] == [
        before, before, before, after
    ]  # fmt: skip
    assert [of["drift"]["number"] for of in (first, second, third, fourth)] == [1, 2, 3, 1]
    assert read_summary(f"out/{day(3)}") == third


def test_run__counts_what_either_model_flags():
    run(1)
    write_nominal(2, shift=2)
    old, swap = lpe_dask.load("model"), run(3)["refit"]
    new = lpe_dask.load("model")

    nominal = pd.concat(
        [pd.read_parquet(f"nominal/{day(i)}.parquet") for i in range(3)], ignore_index=True
    )
    own = rows(3)
    assert swap["new"]["nominal_rows"] == len(nominal) == 1200
    assert swap["nominal_flagged_by_old"] == (old.predict(nominal) == -1).sum() > 200
    assert swap["new"]["flagged"] == (new.predict(own) == -1).sum() > 0
    assert swap["new"]["flagged_share"] == swap["new"]["flagged"] / len(own)
    assert swap["new"]["most_flagged_share"] == 0.05 * 1.25 + 0.05
    assert swap["new"]["calibration_check"]["holds"] is True


def test_run__on_drift_replaces_the_model():
    Path("job.toml").write_text(ON_DRIFT)
    run(1)
    for number in range(-1, 3):
        write_nominal(number, shift=1.0)
    drifted, later = run(2, shift=1.0), run(3, shift=1.0)

    assert drifted["drift"]["verdict"] == "drift"
    assert drifted["refit"]["due"] == drifted["drift"]["text"]
    assert drifted["refit"]["outcome"] == "swapped"
    assert drifted["flagged_share"] > 0.15 > later["flagged_share"]
    assert later["drift"]["verdict"] == "no drift"
    assert later["drift"]["number"] == 1
    assert later["refit"]["due"] is None


def test_previous_model__can_be_moved_back():
    run(1)
    expected = lpe_dask.load("model").score_samples(rows(9))
    before = checksum()
    run(3)
    assert checksum() != before

    os.replace("model/_previous.json", "model/manifest.json")

    assert checksum() == before
    assert (lpe_dask.load("model").score_samples(rows(9)) == expected).all()


def test_run__of_a_model_that_no_run_has_fitted_takes_the_day_it_was_saved():
    fit_model(0)
    content = json.loads(Path("model/manifest.json").read_text())

    assert run(2)["refit"]["due"] is None  # of the time when it was saved, which is later
    assert content["run_date"] is None
    with patch.object(refit.RefitPolicy, "due_reason", return_value="as it is old"):
        assert run(3)["refit"]["outcome"] == "swapped"


GROUPED = """
by = ["site"]
own = ["calibration"]
categorical = ["kind"]
missing = "drop"
"""


@pytest.mark.parametrize("text", ["confidence = 0.9", "fdr = 0.1", "alpha = 0.1"])
def test_run__of_groups_and_categories_counts_what_predict_flags(text):
    Path("job.toml").write_text(JOB.replace("[score]", f"{GROUPED}[score]\n{text}"))
    for folder, numbers in ("nominal", range(-2, 6)), ("in", (1, 3)):
        for number in numbers:
            table = rows(number + 100 * (folder == "nominal"))
            table["site"] = ["a", "b"] * 200
            table["kind"] = ["u", "v", "v", "w"] * 100
            table.loc[number + 3, "x"] = None
            table.to_parquet(f"{folder}/{day(number)}.parquet")
    run(1)
    old, swap = lpe_dask.load("model"), run(3)["refit"]

    assert swap["outcome"] == "swapped", swap["reason"]
    new = ModelFolder("model").load()
    levels = {"confidence = 0.9": (0.05, 0.9), "alpha = 0.1": (0.1, None)}
    new = new.at_level(*levels.get(text, (0.05, None)))
    assert (
        swap["new"]["flagged"]
        == (new.margins(pd.read_parquet(f"in/{day(3)}.parquet")) < 0).sum()
    )
    nominal = pd.concat(pd.read_parquet(f"nominal/{day(i)}.parquet") for i in range(3))
    scores = old.score_samples(nominal.dropna())
    if text == "fdr = 0.1":
        assert swap["nominal_flagged_by_old"] == (scores <= 0.05).sum()


# Kept


def test_run__rejects_a_model_that_flags_too_much():
    run(1)
    before = checksum()
    for number in range(3):
        write_nominal(number, width=0.4)
    write_day(3)

    done = CliRunner().invoke(cli, ["run", "job.toml", "--date", f"{day(3)}"])

    assert done.exit_code == 4
    swap = read_summary(f"out/{day(3)}")["refit"]
    assert swap["outcome"] == "rejected"
    assert swap["new"]["flagged_share"] > 0.4
    assert swap["new"]["checksum"] is None
    assert swap["reason"] == (
        f"it would flag {swap['new']['flagged_share']:.2%} of the rows of this run, and at "
        f"most 11.25% are to be expected. Look at the newest nominal rows; if they are "
        f"right, raise tolerance or anomalies in [drift]."
    )
    line = f"the new model was rejected, and the old one goes on: {swap['reason']}"
    assert line in done.stderr.replace("\n", " ")
    assert checksum() == before
    assert sorted(os.listdir("model"))[1:] == ["manifest.json"]
    again = CliRunner().invoke(cli, ["run", "job.toml", "--date", f"{day(3)}"])
    assert (again.exit_code, again.stderr.split(":")[0]) == (0, "nothing to do")

    for number in range(1, 4):
        write_nominal(number)
    assert run(4)["refit"]["outcome"] == "swapped"


def test_run__rejects_a_model_with_more_false_alarms_than_promised(caplog):
    run(1)

    def broken(*args):
        check = refit_check(*args)
        object.__setattr__(check, "holds", False)
        return check

    refit_check = refit.check_calibration
    with patch.object(refit, "check_calibration", broken):
        swap = run(3)["refit"]

    assert swap["outcome"] == "rejected"
    assert swap["reason"].startswith(
        "it flags more nominal rows that were held out than it promises. Look at"
    )
    assert caplog.records[-1].levelname == "WARNING"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"PAR1"), "is not a readable Parquet file"),
        (
            lambda path: rows(1).assign(x=float("nan")).to_parquet(path),
            "NaN or inf",
        ),
        (lambda path: rows(1)[["x"]].to_parquet(path), "columns ..x.. instead of ..x., .y"),
        (lambda path: rows(1).iloc[:2].to_parquet(path), "n_neighbors"),
    ],
    ids=["no-parquet", "gaps", "columns", "few"],
)  # fmt: skip
def test_run__scores_where_nominal_rows_are_damaged(damage, reason):
    run(1)
    before = checksum()
    for number in range(3):
        path = Path(f"nominal/{day(number)}.parquet")
        path.unlink()
    damage(path)

    done = run(3)

    assert len(output(3)) == 400
    assert done["refit"]["outcome"] == "rejected"
    assert re.search(reason, done["refit"]["reason"])
    assert checksum() == before


def test_run__of_the_same_nominal_rows_keeps_the_model():
    Path("job.toml").write_text(JOB.replace("{date-3d..date-1d}", "2026-11-01"))
    run(1)
    before = checksum()

    write_day(3)
    done = CliRunner().invoke(cli, ["run", "job.toml", "--date", f"{day(3)}"])

    assert done.exit_code == 0, done.stderr
    swap = read_summary(f"out/{day(3)}")["refit"]
    assert (swap["outcome"], swap["reason"]) == (
        "unchanged", "the nominal rows are the same"
    )  # fmt: skip
    assert checksum() == before


@pytest.mark.parametrize("given", [{"n_rows": 0}, {"shift": 5.0}], ids=["empty", "invalid"])
def test_run__of_rows_that_judge_nothing_is_no_time_for_it(given):
    run(1)

    assert run(3, **given)["refit"]["due"] is None
    assert run(4)["refit"]["outcome"] == "swapped"


def test_run__with_other_arguments_than_the_model_is_refused():
    run(1)
    Path("job.toml").write_text(JOB.replace("n_neighbors = 5", "n_neighbors = 6"))

    with pytest.raises(ValueError, match=r"fitted with n_neighbors=5 instead of 6"):
        run(3)


# Interrupted


class Killed(BaseException):
    """Nothing that a run would handle."""


def killed(*args, **kwargs):
    raise Killed


@pytest.mark.parametrize(
    "where",
    [
        (Fit, "_fit"), (refit.Refit, "_judgement"), (refit, "_check_judgement"),
        (ModelFolder, "write"),
    ],
    ids=lambda where: where[1],
)  # fmt: skip
def test_run__that_is_killed_goes_on_with_the_new_model(where, tmp_path_factory):
    run(1)
    write_day(3)
    with patch.object(*where, killed), pytest.raises(Killed):
        run(3)
    before, scored = checksum(), output(3)
    pending = read_summary(f"out/{day(3)}")
    assert pending["refit"]["outcome"] == "pending"
    status = read_status(f"out/{day(3)}")
    assert status.state == "interrupted"
    assert status.text.endswith("is due: start the run of that day again to resume.")

    with patch.object(scoring, "execute_scoring", killed):  # there is nothing to score
        done = run(3)

    assert done["refit"]["outcome"] == "swapped"
    assert done | {"refit": None} == pending | {"refit": None}
    assert checksum() == done["refit"]["new"]["checksum"] != before
    pd.testing.assert_frame_equal(output(3), scored)
    assert run(3) is None
    assert read_status(f"out/{day(3)}").state == "done"
    assert run(4)["model_checksum"] == checksum()


def test_run__that_is_killed_when_the_model_is_replaced_knows_it():
    run(1)
    write_day(3)
    write = ModelFolder.write

    def killed_after(*args):
        write(*args)
        raise Killed

    with patch.object(ModelFolder, "write", killed_after), pytest.raises(Killed):
        run(3)
    after = checksum()

    swap = run(3)["refit"]

    assert swap["outcome"] == "swapped"
    assert swap["new"]["flagged"] > 0
    assert swap["new"]["checksum"] == checksum() == after != swap["old"]["checksum"]


def test_run__leaves_a_model_alone_that_another_run_has_replaced():
    run(1)
    write_day(3)
    with patch.object(Fit, "_fit", killed), pytest.raises(Killed):
        run(3)
    assert run(4)["refit"]["outcome"] == "swapped"
    after = checksum()

    swap = run(3)["refit"]

    assert (swap["outcome"], checksum()) == ("superseded", after)


def test_run__that_was_interrupted_before_the_swap_is_scored_by_the_new_model():
    run(1)
    write_day(2)
    with patch.object(scoring, "score_summary", killed), pytest.raises(Killed):
        run(2)
    run(3)
    after = checksum()

    assert run(2)["model_checksum"] == after
    assert run(1) is None
    assert (output(2)["p_value"] == lpe_dask.load("model").score_samples(rows(2))).all()


def test_run__whose_model_is_locked_says_so():
    run(1)
    write_day(3)
    with ModelFolder("model").lock():
        done = CliRunner().invoke(cli, ["run", "job.toml", "--date", f"{day(3)}"])
        assert done.exit_code == 75, done.stderr
        assert len(output(3)) == 400

    assert run(3)["refit"]["outcome"] == "swapped"


@pytest.mark.parametrize("policy", [JOB, ON_DRIFT])
def test_run__of_an_earlier_day_leaves_a_newer_model_alone(policy):
    Path("job.toml").write_text(policy)
    run(5)
    before = checksum()

    done = run(1, shift=1.4)

    assert done["drift"]["verdict"] == "drift"
    assert done["refit"]["due"] is None
    assert checksum() == before


def test_run__that_replaces_its_output_keeps_the_model():
    run(5)
    before = checksum()
    run(4)
    write_day(4, seed=44)

    done = lpe_dask.run("job.toml", date=day(4), overwrite=True)

    assert done["model_checksum"] == checksum() == before
    assert (output(4)["x"].to_numpy() == rows(44)["x"].to_numpy()).all()


def test_run__without_a_day_in_its_output_has_the_same_policy():
    Path("job.toml").write_text(JOB.replace("out/{date}", "out"))
    before, outcomes = [], []
    for number in range(1, 5):
        write_day(number)
        done = lpe_dask.run("job.toml", date=day(number), overwrite=number > 1)
        before.append(done["model_checksum"])
        outcomes.append((done["refit"] or {}).get("outcome"))

    assert outcomes == [None, None, "swapped", None]
    assert before[0] == before[1] == before[2] != before[3] == checksum()


def test_run__does_not_replace_a_model_that_came_in_the_meantime():
    run(1)
    write_day(3)
    execute = Fit.execute

    def later(fit, folder, accept):
        fit_model(1)  # of another run, between the scoring of this one and its fit
        return execute(fit, folder, accept)

    with patch.object(Fit, "execute", later):
        swap = run(3)["refit"]

    assert swap["outcome"] == "superseded"
    assert swap["text"] == "another run has replaced the model in the meantime"
    assert ModelFolder("model").load().run_date is None


def test_run__whose_parts_are_lost_before_the_new_model_scores_again():
    run(1)
    write_day(3)
    with patch.object(Fit, "_fit", killed), pytest.raises(Killed):
        run(3)
    (part,) = Path(f"out/{day(3)}").glob("part-*")
    part.unlink()

    assert run(3)["refit"]["outcome"] == "swapped"
    assert len(output(3)) == 400


def test_run__that_was_killed_while_another_day_fitted_the_same_rows():
    Path("job.toml").write_text(JOB.replace("{date-3d..date-1d}", "*"))
    run(1)
    write_nominal(9)
    write_day(3)
    with patch.object(Fit, "_fit", killed), pytest.raises(Killed):
        run(3)
    assert run(4)["refit"]["outcome"] == "swapped"

    assert run(3)["refit"]["outcome"] == "superseded"


def test_run__that_is_pending_goes_on_with_another_version():
    run(1)
    write_day(3)
    with patch.object(Fit, "_fit", killed), pytest.raises(Killed):
        run(3)
    path = Path(f"out/{day(3)}/_summary.json")
    content = json.loads(path.read_text())
    content["fingerprint"]["settings"]["versions"] = ["0.0.1", "2025.1.0"]
    path.write_text(json.dumps(content))

    assert run(3)["refit"]["outcome"] == "swapped"


def test_run__takes_a_list_of_confirmed_rows_from_the_next_fit_on():
    run(1)
    before = checksum()
    for number in range(3):
        table = rows(100 + number)
        table.iloc[:3] = 50.0
        table.to_parquet(f"nominal/{day(number)}.parquet")
    files = sorted(f"nominal/{day(number)}.parquet" for number in range(3))
    lpe_dask.score_files(files, "confirm")
    explain_output("confirm", 9, confirm="list.csv")
    marked = pd.read_csv("list.csv", dtype=object)
    marked["is_anomaly_confirmed"] = "x"
    marked.to_csv("list.csv", index=False)
    text = JOB.replace("[model]", 'without_rows = "list.csv"\n[model]')
    Path("job.toml").write_text(text)

    assert run(2)["model_checksum"] == before
    done = run(3)

    assert done["refit"]["outcome"] == "swapped", done["refit"]["reason"]
    assert ModelFolder("model").load().n_confirmed == len(marked) == 9
