"""Runs that keep alpha for the nominal rows at hand, and bound their false alarms."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import lpe_dask
from lpe_dask.batch.api import score_files
from lpe_dask.batch.explanations import explain_output
from lpe_dask.model.false_alarms import false_discoveries_at_most
from lpe_dask.model.validity import confident_places
from lpe_dask.pages import report_page

GIVEN = {"nominal": "nominal.parquet", "columns": ["x", "y"], "random_state": 0}


@pytest.fixture(autouse=True)
def tables(tmp_path, monkeypatch):
    """Nominal rows and others, 30 of which are anomalies, in two groups."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n in (("nominal", 2000), ("rows", 1500)):
        frame = pd.DataFrame(rng.standard_normal((n, 2)).round(2), columns=["x", "y"])
        frame["site"] = rng.choice(["a", "b"], n, p=[0.8, 0.2])
        if name == "rows":
            frame.loc[:29, "x"] += 9
            frame.loc[40, "y"] = np.nan
        frame.to_parquet(f"{name}.parquet", row_group_size=400)


def flags(output):
    frame = pd.read_parquet(output)
    return frame["is_anomaly"].fillna(value=False).to_numpy(bool), frame


def test_a_run__flags_k_of_the_places_and_bounds_its_false_alarms():
    summary = score_files("rows.parquet", "out", alpha=0.05, confidence=0.9, **GIVEN)
    k = int(confident_places(0.05, 1000, 0.9))
    is_flagged, frame = flags("out")

    np.testing.assert_array_equal(is_flagged, frame["p_value"] <= k / 1001)
    assert is_flagged.sum() == summary["flagged"] < (frame["p_value"] <= 0.05).sum()
    assert summary["calibration_kind_"] == "conformal"
    assert (summary["confidence"], summary["parameters"]["confidence"]) == (0.9, 0.9)
    law = stats.betabinom(1499, k, 1001 - k)
    assert summary["false_alarms"] == {
        "expected": pytest.approx(law.mean()),
        "at_most": int(law.ppf(0.9)),
        "confidence": 0.9,
        "reason": None,
    }
    reasons = summary["reasons"]["rows"]
    assert [row["is_anomaly"] for row in reasons] == [
        is_flagged[row["row"] + 400 * int(row["part"][5:10])] for row in reasons
    ]
    page = report_page(summary)
    assert "at most" in page
    assert "90 %</data> confidence" in page


def test_conformal_runs_without_a_confidence__bound_theirs_with_95_percent():
    summary = score_files("rows.parquet", "out", calibration="conformal", **GIVEN)

    law = stats.betabinom(1499, 50, 951)
    assert summary["confidence"] is None
    assert summary["false_alarms"]["at_most"] == int(law.ppf(0.95))
    assert summary["false_alarms"]["confidence"] == 0.95


def test_fdr__is_bounded_for_all_cut_offs():
    summary = score_files("rows.parquet", "out", confidence=0.9, fdr=0.2, **GIVEN)
    without = score_files("rows.parquet", "out2", calibration="conformal", fdr=0.2, **GIVEN)

    assert summary["flagged"] == without["flagged"] > 0  # flags are those of fdr
    sizes = np.array([1499]), np.array([1000])
    at_most = false_discoveries_at_most(summary["fdr_cut_off"], 0.2, *sizes, 0.9)
    assert summary["false_alarms"]["at_most"] == min(at_most, summary["flagged"])
    # What is flagged depends on how many small p-values there are.
    assert summary["false_alarms"]["expected"] is None


def test_groups__have_a_k_each_and_one_bound():
    summary = score_files(
        "rows.parquet", "out", by=["site"], alpha=0.05, confidence=0.9, **GIVEN
    )
    is_flagged, frame = flags("out")
    model = lpe_dask.LPE(
        by=["site"], alpha=0.05, confidence=0.9, calibration="conformal",
        random_state=0,
    ).fit(pd.read_parquet("nominal.parquet"))  # fmt: skip
    groups = model.groups_.set_index("site")

    assert groups["offset"].nunique() == 2
    np.testing.assert_array_equal(
        is_flagged, frame["p_value"] < frame["site"].map(groups["offset"])
    )
    assert summary["flagged"] == is_flagged.sum() > 0
    law, n = np.ones(1), frame[frame["p_value"].notna()].groupby("site").size()
    for site, m, k in groups[["calibration_rows", "flagged_places"]].itertuples():
        numbers = range(n[site] + 1)
        law = np.convolve(law, stats.betabinom.pmf(numbers, n[site], k, m + 1 - k))
    expected = int(np.searchsorted(np.cumsum(law), 0.9))
    assert summary["false_alarms"]["at_most"] == min(expected, summary["flagged"])
    assert summary["groups"]["listed"][0]["up_to_alpha"] > 0


def test_a_saved_model__takes_a_confidence_if_it_is_conformal():
    columns = ["x", "y"]
    nominal = pd.read_parquet("nominal.parquet")[columns]
    conformal = lpe_dask.LPE(calibration="conformal", alpha=0.05, random_state=0)
    conformal.fit(nominal).save("conformal")
    lpe_dask.LPE().fit(nominal).save("loo")

    summary = score_files("rows.parquet", "out", model="conformal", confidence=0.9)
    k = int(confident_places(0.05, 1000, 0.9))
    is_flagged, frame = flags("out")
    np.testing.assert_array_equal(is_flagged, frame["p_value"] <= k / 1001)
    assert summary["confidence"] == 0.9

    lpe_dask.load("conformal").set_params(confidence=None).save("again")
    plain = score_files("rows.parquet", "out2", model="again")
    assert plain["flagged"] == (frame["p_value"] <= 0.05).sum() > summary["flagged"]

    with pytest.raises(ValueError, match=r"calibration='loo'.*calibration='conformal'"):
        score_files("rows.parquet", "out3", model="loo", confidence=0.9)


def test_reasons_that_are_worked_out_later__know_what_was_flagged():
    nominal = pd.read_parquet("nominal.parquet")[["x", "y"]]
    model = lpe_dask.LPE(confidence=0.9, random_state=0, scale="standard").fit(nominal)
    model.save("model")
    summary = score_files("rows.parquet", "out", model="model")

    table = explain_output("out", 80)

    assert table.groupby(["part", "row"]).ngroups == 80
    assert summary["confidence"] == 0.9


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "calibration='loo' promises a rate on average"),
        ({"by": ["site"], "own": ["scale", "calibration"]}, "on average"),
        ({"by": ["site"], "own": ["neighbors"]}, "no calibration of their own"),
        ({"by": ["site"], "small_groups": "pool"}, "compared with all nominal rows"),
        ({"nominal": None, "calibration": "conformal"}, "against each other"),
    ],
)
def test_what_is_not_known__is_said(more, reason):
    given = GIVEN | {"scale": "standard", "missing": "drop"} | more

    found = score_files("rows.parquet", "out", **given)["false_alarms"]

    assert found["at_most"] is None
    assert reason in found["reason"]
    assert (found["expected"] is None) == ("on average" not in reason)


def test_jobs__take_it_with_the_model_or_the_score(caplog):
    caplog.set_level("INFO")
    job = """
    [nominal]
    data = "nominal.parquet"
    columns = ["x", "y"]
    [model]
    path = "model"
    {model}
    [score]
    data = "rows.parquet"
    output = "{output}"
    {score}
    """
    results = []
    for output, model, score in (
        ("a", "confidence = 0.9", ""), ("b", "", "confidence = 0.9"),
        ("c", "confidence = 0.8", ""),
    ):  # fmt: skip
        path = Path(f"{output}.toml")
        path.write_text(job.format(model=model, score=score, output=output))
        results.append(lpe_dask.run(path))

    assert [of["confidence"] for of in results] == [0.9, 0.9, 0.8]
    assert results[0]["flagged"] == results[1]["flagged"] <= results[2]["flagged"]
    manifest = json.loads(Path("model/manifest.json").read_text())
    assert manifest["confidence"] == 0.9  # one model for all
    assert not [line for line in caplog.messages if "have changed" in line]

    Path("loo.toml").write_text(
        job.format(model="", score="", output="e").replace('"model"', '"loo"')
    )
    lpe_dask.run("loo.toml")
    text = job.format(model="{}", score="confidence = 0.9", output="f")
    text = text.replace('"model"', '"loo"')
    Path("loo.toml").write_text(text.format(""))
    with pytest.raises(ValueError, match=r"confidence=None instead of 0\.9.* refit = true"):
        lpe_dask.run("loo.toml")
    assert not [line for line in caplog.messages if "have changed" in line]
    Path("loo.toml").write_text(text.format("refit = true"))
    assert lpe_dask.run("loo.toml")["confidence"] == 0.9
    Path("loo.toml").write_text(text.format('calibration = "conformal"'))
    assert lpe_dask.run("loo.toml") is None
    (line,) = (line for line in caplog.messages if "have changed" in line)
    assert "the nominal rows or the arguments that name the same calibration" in line

    bad, path = ("confidence = 0.9", "confidence = 0.8"), Path("d.toml")
    path.write_text(job.format(model=bad[0], score=bad[1], output="d"))
    with pytest.raises(ValueError, match=r"confidence=0.8, but \[model\] has 0.9"):
        lpe_dask.run(path)
    path.write_text(job.format(model="", score="confidence = 0.4", output="d"))
    with pytest.raises(ValueError, match=r"confidence=0\.4 must be a number between 0.5"):
        lpe_dask.run(path)
