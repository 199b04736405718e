"""Jobs from start to end: what is done, what is left alone, and what is refused."""

import datetime
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from choosing import mostly_full
from indexes import right_lists
from lpe_dask.batch.fit import Fit
from lpe_dask.cli.commands import cli
from lpe_dask.kernels import nn_descent
from lpe_dask.model.persistence import model_folder
from lpe_dask.storage import Lock

DAY = datetime.date(2026, 11, 20)
JOBS = Path(__file__).parents[3] / "jobs"
HEADER = """
[nominal]
data = "nominal.parquet"
columns = ["x", "y"]
"""
SCORE = """
[score]
data = "in/{date}/*.parquet"
keep = ["id"]
output = "out/{date}"
alpha = 0.1
"""
WITHOUT_SCORE = HEADER + '[model]\npath = "model"\nn_neighbors = 3\n'
WITH_MODEL = WITHOUT_SCORE + SCORE


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with nominal rows and the rows of three days."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 9, (60, 2)) * 0.5, columns=["x", "y"])
    frame.to_parquet("nominal.parquet")
    for day in (18, 19, 20):
        rows = pd.DataFrame(rng.integers(-3, 14, (20, 2)) * 0.5, columns=["x", "y"])
        path = Path(f"in/2026-11-{day}")
        path.mkdir(parents=True)
        rows.assign(id=range(day * 100, day * 100 + 20)).to_parquet(path / "a.parquet")
    return tmp_path


def write_job(text, name="job.toml"):
    Path(name).write_text(text)
    return name


def run(text, **options):
    return lpe_dask.run(write_job(text), date=DAY, **options)


def scored(path="out/2026-11-20"):
    return pd.read_parquet(path)


def expected(**arguments):
    nominal = pd.read_parquet("nominal.parquet")
    rows = pd.read_parquet("in/2026-11-20")
    return lpe_dask.score(rows[["x", "y"]], nominal, **arguments)


# What is done


def test_run__fits_saves_and_scores(caplog):
    summary = run(WITH_MODEL)

    pd.testing.assert_series_equal(scored()["p_value"], expected(n_neighbors=3))
    results = ["p_value", "statistic", "is_anomaly", "p_value_status"]
    assert list(scored().columns) == ["id", *results]
    assert summary["alpha"] == 0.1
    assert summary["flagged"] == (scored()["p_value"] <= 0.1).sum()
    assert lpe_dask.load("model").n_neighbors_ == 3


def test_run__does_nothing_twice(caplog, at_most_computes):
    caplog.set_level("INFO")
    run(WITH_MODEL)
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.*")}

    with at_most_computes(0):
        assert run(WITH_MODEL) is None

    assert "nothing to do" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.*")} == before


def test_run__loads_the_model_that_is_there(monkeypatch):
    run(WITH_MODEL)
    monkeypatch.setattr(Fit, "execute", None)

    lpe_dask.run("job.toml", date=DAY - datetime.timedelta(1))

    assert len(scored("out/2026-11-19")) == 20


def test_run__looks_again_at_a_model_that_is_replaced_meanwhile(monkeypatch):
    """The second one was fitted with something else than the job says."""
    run(WITH_MODEL)
    lpe_dask.LPE(4).fit(pd.read_parquet("nominal.parquet")).save("other")
    read, urls = model_folder.read_manifest, []

    def read_and_replace(url):
        manifest = read(url)
        if not urls:
            shutil.copytree("other", "model", dirs_exist_ok=True)
        urls.append(url)
        return manifest

    monkeypatch.setattr(model_folder, "read_manifest", read_and_replace)

    with pytest.raises(ValueError, match="fitted with n_neighbors=4 instead of 3"):
        lpe_dask.run("job.toml", date=DAY - datetime.timedelta(1))


def test_run__notices_another_alpha_where_it_only_fits():
    text = HEADER + '[model]\npath = "model"\nalpha = 0.1\n'
    run(text)
    text = text.replace("0.1", "0.3")

    with pytest.raises(ValueError, match=r"fitted with alpha=0.1 instead of 0.3"):
        run(text)

    assert run(text + "refit = true\n")["nominal_rows"] == 60
    assert lpe_dask.load("model").alpha == 0.3


def test_run__scores_with_a_model_that_is_not_kept(folder):
    run(HEADER + "[model]\nn_neighbors = 2\n" + SCORE)

    pd.testing.assert_series_equal(scored()["p_value"], expected(n_neighbors=2))
    assert not list(folder.glob("**/manifest.json"))


def test_run__scores_rows_with_an_id_among_themselves_as_the_error_says():
    rows = pd.read_parquet("nominal.parquet").assign(id=[f"row {i}" for i in range(60)])
    rows.to_parquet("named.parquet")
    job = '[score]\ndata = "named.parquet"\noutput = "out/self"\n'

    with pytest.raises(TypeError, match=r"'id'.* Choose the columns") as refused:
        run(job)
    advice = re.search(r"columns=\[.*?\]", str(refused.value))[0]
    run(job + advice)

    expected = lpe_dask.score(rows[["x", "y"]])
    pd.testing.assert_series_equal(scored("out/self")["p_value"], expected)
    assert list(scored("out/self").columns)[:3] == ["x", "y", "id"]


@pytest.mark.parametrize("is_named", [True, False])
def test_run__takes_columns_for_a_model_that_is_there(is_named):
    nominal = pd.read_parquet("nominal.parquet")
    model = lpe_dask.LPE(3).fit(nominal if is_named else nominal.to_numpy())
    model.save("model")

    run('[model]\npath = "model"\n' + SCORE + 'columns = ["x", "y"]\n')

    pd.testing.assert_series_equal(scored()["p_value"], expected(n_neighbors=3))


def test_run__scores_several_days(caplog):
    text = WITH_MODEL.replace("in/{date}/", "in/{date-5d..date}/")

    summary = run(text)

    assert summary["rows"] == 60
    assert scored()["id"].tolist() == [
        *range(1800, 1820),
        *range(1900, 1920),
        *range(2000, 2020),
    ]
    assert "in/2026-11-15/*.parquet" in caplog.text
    assert "left out" in caplog.text


@pytest.mark.parametrize(
    ("days", "message"),
    [
        ("{date-50d..date-40d}", "At least one day of the range"),
        ("{date-10d}", "there is no table at in/2026-11-10"),
    ],
)
def test_run__refuses_days_without_files(days, message):
    with pytest.raises(FileNotFoundError, match=message):
        run(WITH_MODEL.replace("in/{date}/", f"in/{days}/"))


# What has changed since


def change_nominal():
    nominal = pd.read_parquet("nominal.parquet")
    nominal.iloc[:40].to_parquet("nominal.parquet")


def test_run__keeps_its_model_when_nominal_rows_change(caplog):
    caplog.set_level("INFO")
    run(WITH_MODEL)
    change_nominal()

    assert run(WITH_MODEL) is None
    assert "have changed since" in caplog.text
    assert lpe_dask.load("model").n_samples_ == 60
    summary = run(WITH_MODEL, overwrite=True)
    assert summary["nominal_rows"] == lpe_dask.load("model").n_samples_ == 40


def test_run__fits_again_when_told_to(monkeypatch):
    text = WITH_MODEL.replace("[model]", "[model]\nrefit = true")
    run(text)
    assert run(text) is None
    change_nominal()

    lpe_dask.run("job.toml", date=DAY - datetime.timedelta(1))
    with pytest.raises(FileExistsError, match="the nominal rows, the model"):
        run(text)

    assert lpe_dask.load("model").n_samples_ == 40


def test_run__replaces_a_model_that_was_damaged_when_told_to():
    run(WITH_MODEL)
    Path("model/manifest.json").write_text("{")

    with pytest.raises(ValueError, match=r"manifest.json was cut short"):
        run(WITH_MODEL)

    assert run(WITH_MODEL, overwrite=True)["rows"] == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("n_neighbors = 3", "n_neighbors = 4"), "n_neighbors=3 instead of 4"),
        (("n_neighbors = 3\n", ""), "n_neighbors=3 instead of None"),  # it was taken out
        (("n_neighbors = 3", 'scale = "minmax"'), ".*scale=None instead of 'minmax'"),
        (("3", '3\naggregation = "mean"'), "aggregation='kth' instead of 'mean'"),
        (('["x", "y"]', '["y", "x"]'), r"columns \['x', 'y'\] instead of \['y', 'x'\]"),
    ],
)
def test_run__refuses_a_model_of_another_kind(change, words):
    run(WITHOUT_SCORE)

    with pytest.raises(ValueError, match=rf"fitted with {words}.*refit = true"):
        run(WITH_MODEL.replace(*change))


@pytest.mark.parametrize("calibrations", [("auto", "loo"), ("loo", "auto")])
def test_run__takes_a_model_whose_calibration_is_what_the_job_means(calibrations):
    first, second = [
        WITH_MODEL.replace("3", f'3\ncalibration = "{kind}"', 1) for kind in calibrations
    ]
    run(first)
    Path("out").rename("earlier")

    assert run(second)["calibration_kind_"] == "loo"


LED = 'algorithm = "nn_descent"\nrandom_state = 0\nn_neighbors = 3'


CHANGES = {
    "algorithm": ('"nn_descent"', '"brute"', "'nn_descent' instead of 'brute'"),
    "recheck": ("3", "3\nrecheck = 0.5", "None instead of 0.5"),
}


@pytest.mark.parametrize("name", mostly_full(CHANGES, ["algorithm"]))
def test_run__refuses_a_model_that_misses_other_neighbors(name, monkeypatch):
    before, after, words = CHANGES[name]
    monkeypatch.setattr(nn_descent, "neighbor_lists", right_lists)
    job = WITH_MODEL.replace("n_neighbors = 3", LED)
    run(job)

    with pytest.raises(ValueError, match=f"fitted with {name}={words}.*refit = true"):
        run(WITH_MODEL.replace("n_neighbors = 3", LED.replace(before, after)))
    assert run(job) is None  # nothing to do


def test_run__takes_a_model_of_another_exact_algorithm():
    job = WITH_MODEL.replace("n_neighbors = 3", 'n_neighbors = 3\nalgorithm = "brute"')
    run(job)

    changed = job.replace('"brute"', '"pruned"\nmax_p_error = 0.5')

    assert run(changed) is None  # nothing to do
    Path("out").rename("earlier")
    assert run(changed)["algorithm_"] == "brute"


@pytest.mark.parametrize(
    ("before", "after", "place", "message"),
    [
        ('["id"]', '["idd"]', "[score] keep", r"no columns \['idd'\] to keep"),
        ("alpha", 'private = ["z"]\nalpha', "[score] private", r"no columns \['z'\]"),
        ("n_n", "metric_params.w = [1.0]\nn_n", "[model] metric_params", "has shape"),
        ("columns", 'exclude = ["z"]\n#', "[nominal] exclude", r"no columns \['z'\]"),
        ("n_neighbors = 3", "n_neighbors = 0", "[model] n_neighbors", "at least 1"),
        ("n_neighbors = 3", "graph = 'radius'", "[model] radius", "or give radius"),
    ],
)
def test_run__names_the_key_of_what_does_not_go_with_the_files(
    before, after, place, message
):
    text = WITH_MODEL.replace(before, after, 1)

    for function in (run, lambda text: lpe_dask.plan(write_job(text), date=DAY)):
        with pytest.raises(ValueError, match=message) as caught:
            function(text)

        assert str(caught.value).startswith(f"job.toml, {place}: ")
        assert str(caught.value).count("job.toml") == 1


def test_run__needs_no_nominal_rows_once_there_is_a_model(caplog):
    run(WITH_MODEL)
    Path("nominal.parquet").unlink()

    lpe_dask.run("job.toml", date=DAY - datetime.timedelta(1))

    assert len(scored("out/2026-11-19")) == 20
    assert "is used as it is: there is no table at nominal.parquet" in caplog.text
    with pytest.raises(FileNotFoundError, match=r"no table at nominal\.parquet"):
        run(WITH_MODEL.replace("[model]", "[model]\nrefit = true"))


# The command line


def invoke(*arguments):
    return CliRunner().invoke(cli, [*arguments, "--scheduler", "threads"])


def test_command__runs_a_job_twice_and_then_with_a_changed_input():
    write_job(WITH_MODEL)
    given = ["run", "job.toml", "--date", "2026-11-20"]

    first, second = invoke(*given), invoke(*given)
    os.utime("in/2026-11-20/a.parquet", (1, 1))
    third, fourth = invoke(*given), invoke(*given, "--overwrite")

    codes = [result.exit_code for result in (first, second, third, fourth)]
    assert codes == [0, 0, 2, 0]
    assert first.stderr.endswith("written to out/2026-11-20\n")
    assert second.stderr == "nothing to do: out/2026-11-20 exists already\n"
    assert first.stdout == second.stdout == ""
    assert "a.parquet is changed" in third.stderr
    assert "20 rows against 60 nominal rows" in fourth.stderr


def test_command__only_fits():
    write_job(HEADER + '[model]\npath = "model"\n')

    first, second = invoke("run", "job.toml"), invoke("run", "job.toml")

    assert "60 nominal rows fitted" in first.stderr
    assert first.stderr.endswith("/model\n")
    assert second.stderr == "nothing to do: model exists already\n"
    assert first.stdout == second.stdout == ""


def test_command__gives_each_problem_a_line():
    write_job("[score]\nalpha = 2\n")

    lines = invoke("run", "job.toml").stderr.splitlines()

    assert len(lines) == 3
    assert all("job.toml, [score] " in line for line in lines)


def test_command__refuses_a_second_run_of_the_same_job():
    write_job(WITH_MODEL)
    Path("out/2026-11-20").mkdir(parents=True)

    with Lock("out/2026-11-20").hold("a test"):
        result = invoke("run", "job.toml", "--date", "2026-11-20")

    assert result.exit_code == 75
    assert "Only one run at a time" in result.stderr
    Path("out/2026-11-20/_lock.json").unlink(missing_ok=True)
    assert invoke("run", "job.toml", "--date", "2026-11-20").exit_code == 0


# The jobs that come with the project


def write_logs(data_folder, folder):
    """Write some logs of KDD Cup 1999 as the ready jobs expect them."""
    table = pd.read_parquet(data_folder / "kdd99.parquet")
    is_nominal = (table["label"] == "normal") & (table["part"] == "train10pct")
    # The first rows are nearly all of http, unlike those that are scored.
    nominal = table[is_nominal].sample(3000, random_state=0)
    nominal.to_parquet(folder / "nominal.parquet")
    (folder / "nominal").mkdir()
    (folder / "nominal.parquet").rename(folder / "nominal" / "0.parquet")
    test = table[table["part"] == "test_corrected"]
    for day in range(14, 21):
        (folder / "in" / f"2026-11-{day}").mkdir(parents=True, exist_ok=True)
        n_rows = 2000 if day == 20 else 500  # the days before are only fitted
        rows = test.iloc[day * 2000 : day * 2000 + n_rows]
        rows.to_parquet(folder / "in" / f"2026-11-{day}" / "a.parquet")


@pytest.mark.full
def test_ready_jobs__run_on_logs(data_folder, tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    logs.mkdir()
    write_logs(data_folder, logs)
    monkeypatch.setenv("LPE_DATA", str(logs))
    nightly = JOBS / "nightly-scoring.toml"

    assert lpe_dask.run(JOBS / "first-fit.toml")["nominal_rows"] == 3000
    night = lpe_dask.run(nightly, date=DAY)
    rolling = lpe_dask.run(JOBS / "rolling-refit.toml", date=DAY)

    table = pd.read_parquet(logs / "in" / "2026-11-20")
    out = pd.read_parquet(logs / "out" / "2026-11-20")
    is_attack = (table["label"] != "normal").to_numpy()
    assert night["rows"] == rolling["rows"] == len(out) == 2000
    assert out["is_anomaly"].to_numpy(bool)[is_attack].mean() > 0.5
    assert out["is_anomaly"].to_numpy(bool)[~is_attack].mean() < 0.1
    assert rolling["nominal_rows"] == 6 * 500  # six of the seven days before have files
    assert lpe_dask.run(nightly, date=DAY) is None
