"""Held-out nominal rows judge the promise: right, and in every place where users ask."""

import json
import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

import lpe_dask
from lpe_dask import LPE
from lpe_dask.cli.commands import cli
from lpe_dask.model.calibration_check import judge


def normal_rows(n_rows, n_features=3):
    return np.random.default_rng(0).standard_normal((n_rows, n_features))


@pytest.mark.parametrize(
    ("calibration", "places"), [("conformal", [1, 5, 10]), ("loo", [2, 6, 11])]
)
def test_judge__bounds_are_those_of_the_promise(calibration, places):
    """k = floor(a (m + 1)), or floor(a m) + 1, of m + 1 = 101 places are flagged."""
    p_values = np.repeat([0.005, 0.03, 0.07, 0.5], [3, 50, 20, 127])

    check = judge(p_values, calibration, 100, (0.01, 0.05, 0.1))

    expected = [stats.betabinom(200, k, 101 - k) for k in places]
    assert check.table["flagged"].tolist() == [3, 53, 73]
    assert check.table["lower"].tolist() == [d.ppf(0.01 / 3) for d in expected]
    assert check.table["upper"].tolist() == [d.ppf(1 - 0.01 / 3) for d in expected]
    assert check.table["verdict"].tolist() == ["holds", "too many", "too many"]
    assert check.holds is False
    assert check.is_exact == (calibration == "conformal")


def test_judge__where_few_are_flagged_or_none_can_be():
    few = judge(np.ones(5000), "loo", 1000, (0.05,))
    none = judge(np.ones(100), "conformal", 50, (0.01,))

    assert few.table["verdict"].tolist() == ["conservative"]
    assert few.holds is True
    assert none.table["verdict"].tolist() == ["cannot be judged"]
    assert none.holds is None
    assert json.loads(json.dumps(none.as_json()))["levels"][0]["upper"] is None


@pytest.mark.full
def test_judge__finds_a_promise_that_holds_in_99_of_100_cases():
    """By the exact distribution of p-values of h rows against m calibration rows."""
    rng = np.random.default_rng(0)
    n_checks, m, h = 200, 99, 50
    ranks = rng.random((n_checks, m + h))
    broken = 0
    for row in ranks:
        smaller = np.searchsorted(np.sort(row[:m]), row[m:])
        p_values = (1 + m - smaller) / (m + 1)
        broken += judge(p_values, "conformal", m, (0.01, 0.05, 0.1)).holds is False

    assert broken <= stats.binom.ppf(1 - 1e-6, n_checks, 0.01)


KINDS = {
    "array": lambda frame: frame.to_numpy(),
    "dask frame": lambda frame: dd.from_pandas(frame, npartitions=3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_check_calibration__is_the_same_for_every_kind_of_rows(kind):
    rows = pd.DataFrame(normal_rows(600), columns=["a", "b", "c"])
    expected = LPE(scale="standard").fit(rows).check_calibration().table

    check = LPE(scale="standard").fit(KINDS[kind](rows)).check_calibration()

    pd.testing.assert_frame_equal(check.table, expected)
    assert (check.n_held_out, check.n_calibration) == (60, 540)
    assert check.holds


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
def test_check_calibration__fits_the_others_and_scores_those_held_out(aggregation):
    rows = normal_rows(200)
    arguments = {"scale": "minmax", "calibration": "conformal", "random_state": 3}
    model = LPE(7, aggregation=aggregation, **arguments).fit(rows)

    check = model.check_calibration(fraction=0.25, alphas=(0.2,))

    order = np.random.default_rng(3).permutation(200)
    held_out, others = np.sort(order[:50]), np.sort(order[50:])
    p_values = model.fit(rows[others]).score_samples(rows[held_out])
    assert check.table["flagged"].tolist() == [(p_values <= 0.2).sum()]
    assert (check.n_held_out, check.n_calibration) == (50, 75)


@pytest.mark.usefixtures("compiled_kernels")
def test_check_calibration__finds_what_learning_breaks():
    rows = normal_rows(240, 60)

    loo = LPE(metric="mahalanobis", calibration="loo").fit(rows).check_calibration()
    taken = LPE(metric="mahalanobis", random_state=0).fit(rows).check_calibration()

    assert loo.holds is False
    assert taken.holds is True
    assert taken.calibration == "conformal"


def test_check_calibration__of_a_model_without_its_rows(tmp_path):
    rows = normal_rows(100)
    model = LPE(3).fit(rows)
    model.save(tmp_path / "model")
    for copy in (lpe_dask.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=r"check_calibration\(X\)"):
            copy.check_calibration()
        pd.testing.assert_frame_equal(
            copy.check_calibration(rows).table, model.check_calibration().table
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fraction": 0}, "fraction=0 must be a number between 0 and 1"),
        ({"fraction": 0.999}, "leaves none to fit"),
        ({"alphas": (0.05, 1.0)}, r"alphas=1\.0 must be a number between 0 and 1"),
        ({"fraction": 0.5}, "n_neighbors=60 needs at least 61 nominal rows"),
    ],
)
def test_check_calibration__refuses_what_cannot_be_done(arguments, message):
    rows = normal_rows(100)
    model = LPE(60).fit(rows)

    with pytest.raises(ValueError, match=message):
        model.check_calibration(**arguments)


def test_fit_run__checks_the_calibration_when_asked_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(normal_rows(400), columns=["a", "b", "c"])
    frame.to_parquet("nominal.parquet")
    frame.iloc[:50].to_parquet("rows.parquet")
    threads = ["--scheduler", "threads"]

    said = CliRunner().invoke(
        cli, ["fit", "nominal.parquet", "--model", "m", "--check-calibration", *threads]
    )
    summary = lpe_dask.score_files(
        "rows.parquet", "scored", nominal="nominal.parquet", check_calibration=True
    )

    assert said.exit_code == 0, said.output
    expected = LPE().fit(frame).check_calibration()
    upper = expected.table["upper"].tolist()[1]
    assert "40 nominal rows were held out; flagged (approximate bounds):" in said.output
    assert f" at alpha 0.05, 0 to {upper} are expected: holds" in said.output
    assert summary["calibration_check"] == expected.as_json()
    assert json.loads((tmp_path / "scored/_summary.json").read_text()) == summary


def test_job__checks_the_calibration_when_asked_to(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(normal_rows(200), columns=["a", "b", "c"]).to_parquet("rows.parquet")
    job = (
        "[nominal]\ndata = 'rows.parquet'\n"
        "[model]\npath = 'm'\ncheck_calibration = true\n"
        "[score]\ndata = 'rows.parquet'\noutput = 'out'\n"
    )
    (tmp_path / "job.toml").write_text(job)

    summary = lpe_dask.run("job.toml")

    assert summary["calibration_check"]["n_held_out"] == 20
    assert summary["calibration_check"]["holds"] is True
    assert "not as rare" not in caplog.text
    with pytest.raises(ValueError, match="check_calibration cannot be combined"):
        lpe_dask.score_files("rows.parquet", "other", model="m", check_calibration=True)


def test_score_files__goes_on_where_the_calibration_cannot_be_checked(tmp_path, caplog):
    rows = tmp_path / "rows.parquet"
    pd.DataFrame(normal_rows(12), columns=["a", "b", "c"]).to_parquet(rows)

    summary = lpe_dask.score_files(
        rows, tmp_path / "out", nominal=rows, n_neighbors=11, calibration="loo",
        check_calibration=True,
    )  # fmt: skip

    assert summary["calibration_check"] is None
    assert summary["rows"] == 12
    assert "the calibration could not be checked: n_neighbors=11 needs" in caplog.text


@pytest.mark.usefixtures("compiled_kernels")
def test_score_files__warns_of_a_calibration_that_does_not_hold(tmp_path, caplog):
    names = [f"x{k}" for k in range(60)]
    pd.DataFrame(normal_rows(200, 60), columns=names).to_parquet(tmp_path / "rows.parquet")

    summary = lpe_dask.score_files(
        tmp_path / "rows.parquet", tmp_path / "out", nominal=tmp_path / "rows.parquet",
        metric="mahalanobis", calibration="loo", check_calibration=True,
    )  # fmt: skip

    assert summary["calibration_check"]["holds"] is False
    assert "not as rare as calibration='loo' promises" in caplog.text
    assert "too many" in caplog.text
