"""Runs of rows that are divided into groups: their output, and what it tells of groups."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

import lpe_dask
from breaking import parts_in
from calling import invoke
from interrupting import stop_run, write_files
from lpe_dask import LPE
from lpe_dask.batch.api import score_files
from lpe_dask.batch.column_values import PRIVATE
from lpe_dask.batch.fit import _result_parameters
from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.batch.group_summary import N_LISTED
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.cli.outcome import summary_lines
from lpe_dask.model import checked_parameters
from lpe_dask.monitoring import pack
from lpe_dask.pages import report_page

GIVEN = {
    "columns": ["x", "y"], "by": ["site", "hour"], "scale": "standard", "alpha": 0.05,
    "calibration": "conformal", "random_state": 3,
}  # fmt: skip
STATUSES = ["small group", "unknown group", "no group", "missing value"]


def table(seed, n_rows, n_sites=4):
    """Rows of sites, each of them elsewhere, in two hours."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, n_sites, n_rows)
    return pd.DataFrame(
        {
            "id": np.arange(n_rows),
            "x": rng.normal(size=n_rows) + 9 * site,
            "y": rng.normal(size=n_rows),
            "site": [f"0{s}" for s in site],
            "hour": rng.integers(0, 2, n_rows),
        }
    )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with nominal rows, and rows to score in four files.

    The first ones have no p-value, and many of one group are anomalous.
    """
    monkeypatch.chdir(tmp_path)
    nominal = pd.concat([table(0, 800), table(1, 3).assign(site="few")])
    nominal.to_parquet("nominal.parquet")
    rows = table(2, 300)
    rows.loc[0, "site"], rows.loc[1, "site"], rows.loc[2, "site"] = "few", "new", None
    rows.loc[3, "x"] = np.nan
    rows.loc[(rows["site"] == "01") & (rows["hour"] == 1), "y"] += 2.5
    write_files(rows, "rows", [0, 2, 100, 100, 300])


def score(output="out", **given):
    return score_files("rows", output, **{"nominal": "nominal.parquet"} | GIVEN | given)


def frames():
    return pd.read_parquet("nominal.parquet"), pd.read_parquet("rows")


def counted_groups(output="out"):
    """What the output itself has of each group."""
    rows = pd.read_parquet(output).dropna(subset=["p_value"])
    rows = rows.assign(up_to_alpha=rows["p_value"] <= GIVEN["alpha"])
    return rows.groupby(["site", "hour"]).agg(
        rows=("id", "size"), flagged=("is_anomaly", "sum"),
        up_to_alpha=("up_to_alpha", "sum"),
    )  # fmt: skip


def listed(summary):
    """The groups of a summary, by their values."""
    lines = pd.DataFrame(summary["groups"]["listed"])
    lines.index = pd.MultiIndex.from_tuples(map(tuple, lines.pop("group")))
    return lines


# Results


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_score_files__of_groups_are_those_of_a_model_of_each(ending):
    nominal, rows = frames()
    if ending == "csv":
        nominal.to_csv("nominal.csv", index=False)

    summary = score(nominal=f"nominal.{ending}") if ending == "parquet" else None
    if summary is None:
        rows.to_csv("rows.csv", index=False)
        summary = score_files("rows.csv", "out", nominal="nominal.csv", **GIVEN)

    own = {n: GIVEN[n] for n in ("scale", "alpha", "calibration", "random_state")}
    expected = np.full(len(rows), np.nan)
    for (site, hour), of_group in nominal.groupby(["site", "hour"]):
        is_here = ((rows["site"] == site) & (rows["hour"] == hour)).to_numpy()
        if site != "few":
            model = LPE(**own).fit(of_group[["x", "y"]])
            expected[is_here] = model.score_samples(rows.loc[is_here, ["x", "y"]])
    found = pd.read_parquet("out")
    np.testing.assert_array_equal(found["p_value"], expected)
    assert found["p_value_status"].tolist() == [*STATUSES, *["ok"] * 296]
    assert summary["p_value_status"] == {
        "ok": 296, "infinite value": 0, **dict.fromkeys(STATUSES, 1),
    }  # fmt: skip
    assert list(found.columns[:5]) == list(rows.columns)


@pytest.mark.parametrize("fdr", [None, 0.2])
def test_score_files__resumes_with_the_same_parts_and_counts(fdr):
    expected = score(fdr=fdr)
    given = {"data": "rows", "nominal": "nominal.parquet", "fdr": fdr, **GIVEN}
    stop_run(2, output="again", **given)

    found = score_files(output="again", **given)

    assert parts_in(Path("again")) == parts_in(Path("out"))
    assert found["groups"] == expected["groups"]
    assert all(
        "lpe_group" not in pq.read_schema(part).names for part in Path("out").glob("p*")
    )


def test_run__of_a_job_keeps_its_groups(caplog):
    frame = table(7, 200)
    for day in ("2026-11-01", "2026-11-02"):
        frame.to_parquet(f"{day}.parquet")
    text = (
        '[nominal]\ndata = "nominal.parquet"\ncolumns = ["x", "y"]\n'
        '[model]\npath = "model"\nby = ["site", "hour"]\n'
        'own = ["neighbors", "calibration"]\n'
        'small_groups = "nan"\n'
        'scale = "standard"\n[score]\ndata = "{date}.parquet"\noutput = "out/{date}"\n'
        "report = false\n"
    )
    Path("job.toml").write_text(text)

    first, second = (
        lpe_dask.run("job.toml", date=day) for day in ("2026-11-01", "2026-11-02")
    )

    assert first["groups"] == second["groups"]
    assert first["groups"]["own"] == ["calibration", "neighbors"]
    model = LPE(by=["site", "hour"], own=["neighbors", "calibration"], scale="standard")
    nominal = frames()[0][["x", "y", "site", "hour"]]
    expected = model.fit(nominal).score_samples(frame)
    np.testing.assert_array_equal(pd.read_parquet("out/2026-11-02")["p_value"], expected)
    assert lpe_dask.run("job.toml", date="2026-11-02") is None
    Path("job.toml").write_text(text.replace('"site", "hour"', '"site"'))
    with pytest.raises(ValueError, match=r"fitted with by=\['site', 'hour'\] instead of"):
        lpe_dask.run("job.toml", date="2026-11-02")


def test_run__compares_what_arguments_of_groups_mean(caplog):
    """The model is used as it is where they mean the same, once the rows have changed."""
    caplog.set_level("INFO", "lpe_dask")
    frame = table(7, 600).assign(site=np.arange(600) % 10)  # 60 rows each
    frame.to_parquet("nominal.parquet")
    text = (
        '[nominal]\ndata = "nominal.parquet"\ncolumns = ["x", "y"]\n'
        '[model]\npath = "model"\nby = ["site"]\nscale = "standard"\n'
        'own = ["neighbors", "scale", "calibration"]\ncalibration = "loo"\n'
    )
    Path("job.toml").write_text(text)
    lpe_dask.run("job.toml")
    frame.tail(590).to_parquet("nominal.parquet")

    Path("job.toml").write_text(
        text.replace('"neighbors", "scale"', '"scale", "neighbors"')
    )
    lpe_dask.run("job.toml")
    assert "is used as it is; the nominal rows have changed" in caplog.text
    Path("job.toml").write_text(text.replace("loo", "auto"))
    with pytest.raises(ValueError, match="calibration='loo' instead of 'auto'"):
        lpe_dask.run("job.toml")


def test_source__of_a_model_without_groups_does_not_depend_on_their_arguments():
    """They came later: a model of a version without them is not fitted again."""
    decisive = [
        _result_parameters(checked_parameters(given))
        for given in ({}, {"by": ["site"], "own": ["neighbors", "scale"]}, {"by": ["site"]})
    ]

    assert not {"by", "own", "small_groups", "alpha"} & decisive[0].keys()
    assert decisive[1]["own"] == ["neighbors", "scale"]
    assert decisive[2]["own"] == ["calibration", "neighbors", "scale"]


@pytest.mark.parametrize("by", ["site", "site,hour"])
def test_command__divides_rows(by):
    nominal, rows = frames()
    nominal.to_csv("nominal.csv", index=False)

    result = invoke(
        "score", "rows", "--nominal", "nominal.parquet", "--output", "out", "--columns",
        "x,y", "--by", by, "--own", "scale,calibration", "--small-groups", "nan",
        "--scheduler", "threads",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    model = LPE(by=by.split(","), own=["scale", "calibration"])
    model.fit(nominal[["x", "y", *by.split(",")]])
    np.testing.assert_array_equal(
        pd.read_parquet("out")["p_value"], model.score_samples(rows)
    )
    n_groups = 4 * len(by.split(","))
    assert f"more rows than expected in 1 of {n_groups} groups" in result.stderr
    assert "1 small group" in result.stderr
    assert f"{n_groups + 1} groups, of which 1 are small" in result.stderr


def test_columns__of_groups_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"by=\['sight'\] names \['sight'\]"):
        score(by="sight")
    Path("job.toml").write_text(
        '[nominal]\ndata="nominal.parquet"\n[model]\npath="m"\nby="sight"\n'
    )
    with pytest.raises(ValueError, match=r"^job\.toml, \[model\] by: .*'sight'"):
        lpe_dask.run("job.toml")
    assert not Path("out").exists()


# What it tells of groups


@pytest.mark.parametrize("fdr", [None, 0.2])
def test_summary__has_the_counts_of_groups_and_what_is_expected(fdr):
    summary = score(fdr=fdr)

    groups, lines = summary["groups"], listed(summary)
    counts, model = counted_groups(), LPE(**{n: GIVEN[n] for n in GIVEN if n != "columns"})
    known = model.fit(frames()[0][["x", "y", "site", "hour"]]).groups_
    known = known.set_index(["site", "hour"]).loc[lines.index]
    pd.testing.assert_frame_equal(
        lines[list(counts)].sort_index().astype(int), counts.sort_index().astype(int),
        check_names=False,
    )  # fmt: skip
    m, n = known["calibration_rows"].to_numpy(), lines["rows"].to_numpy()
    k = np.floor(0.05 * (m + 1) + 1e-9)
    np.testing.assert_allclose(lines["expected"], n * k / (m + 1))
    tails = betabinom.sf(lines["up_to_alpha"] - 1, n, k, m + 1 - k)
    np.testing.assert_allclose(lines["p_value"], tails, rtol=1e-6, atol=1e-12)
    assert lines["p_value"].is_monotonic_increasing
    assert lines["adjusted_p_value"].iloc[0] == pytest.approx(8 * tails[0])
    assert lines.index[0] == ("01", 1)
    assert lines["nominal_rows"].tolist() == known["nominal_rows"].tolist()
    lines = groups.pop("listed")
    assert groups == {
        "by": ["site", "hour"], "own": ["calibration", "neighbors", "scale"],
        "n_groups": 9, "n_small": 1, "n_with_rows": 8, "is_exact": True,
        "not_compared": None, "n_conspicuous": 1,
    }  # fmt: skip
    assert json.loads(Path("out/_summary.json").read_text())["groups"]["listed"] == lines


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"own": ["scale", "neighbors"]}, "groups have no calibration of their own"),
        ({"nominal": None, "calibration": "loo"}, "rows are scored against each other"),
    ],
)
def test_summary__does_not_compare_where_nothing_is_promised(given, why):
    if "nominal" in given:
        write_files(frames()[0], "other", [0, 500, 803])
        summary = score_files("other", "out", **GIVEN | given)
    else:
        summary = score(**given)

    groups = summary["groups"]
    assert groups["not_compared"].startswith(why)
    assert groups["n_conspicuous"] is None
    assert {*groups["listed"][0]} == {
        "group", "rows", "flagged", "up_to_alpha", "share", "nominal_rows",
    }  # fmt: skip
    counts, lines = counted_groups(), listed(summary)
    assert lines["flagged"].to_dict() == counts["flagged"].to_dict()
    assert (lines["share"] == lines["flagged"] / lines["rows"]).all()
    section = report_page(summary).split("<h2>Groups")[1].split("</section>")[0]
    assert why in section
    assert ">expected<" not in section


def test_summary__lists_the_most_conspicuous_of_many_groups():
    nominal, rows = table(0, 4000, 30), table(1, 900, 30)
    nominal.to_parquet("nominal.parquet")
    write_files(rows, "many", [0, 450, 900])

    groups = score_files("many", "out", nominal="nominal.parquet", **GIVEN | {"by": "site"})
    groups = groups["groups"]

    assert (groups["n_with_rows"], len(groups["listed"])) == (30, N_LISTED)
    assert groups["by"] == ["site"]
    p_values = [line["p_value"] for line in groups["listed"]]
    assert p_values == sorted(p_values)


def test_page__shows_groups_but_no_private_values():
    open_page = report_page(score())
    page = report_page(score("other", private=["site"]))

    section = page.split("<h2>Groups")[1].split("</section>")[0]
    assert PRIVATE in section
    assert ">01<" not in section
    shown = open_page.split("<h2>Groups")[1].split("</section>")[0]
    assert ">01<" in shown
    assert "more rows flagged than expected in" in open_page
    assert "<h2>Groups" not in report_page({})


@pytest.mark.parametrize("nominal", ["nominal.parquet", None])
def test_pooled_rows__have_p_values_of_which_nothing_is_expected(nominal):
    data = "rows"
    if nominal is None:
        data = "nominal.parquet"

    summary = score_files(data, "out", nominal=nominal, **GIVEN, small_groups="pool")

    statuses, rows = summary["p_value_status"], pd.read_parquet("out")
    is_pooled = rows["p_value_status"].isin(["small group", "unknown group"])
    assert is_pooled.sum() == statuses["small group"] + statuses["unknown group"] > 0
    assert rows.loc[is_pooled, "p_value"].notna().all()
    page, text = report_page(summary), summary_lines(summary, "out")
    assert "compared with all nominal rows, and nothing is promised for them" in page
    reasons = "2 without a p-value: 1 missing value, 1 no group"
    assert (reasons in text) == (nominal is not None)
    assert "small group" not in page + text
    few = [line for line in summary["groups"]["listed"] if line["group"][0] == "few"]
    assert [(line.get("expected"), line.get("p_value")) for line in few] == [(None, None)]


def test_parts__count_their_own_groups():
    summary = score()

    paths = sorted(Path("out").glob("part-*"))
    counts = [json.loads(pq.read_metadata(path).metadata[b"lpe_dask"]) for path in paths]
    assert [of["groups"]["n_groups"] for of in counts] == [0, 8, 0, 8]
    merged = GroupCounts.merge([GroupCounts.from_json(of["groups"]) for of in counts], 9)
    assert merged.rows.sum() == summary["rows"] - summary["rows_nan"]
    assert merged.flagged.sum() == summary["flagged"]
    assert [of["groups"]["up_to_alpha"] for of in counts] == [None] * 4


@pytest.mark.parametrize("fdr", [None, 0.2])
def test_run__never_holds_the_groups_of_several_parts(fdr, monkeypatch):
    """Neither of parts that it writes, nor of those that it finds."""
    held, merge = [], PartStats.merge

    def merged(some, *given):
        held.extend(of.groups for of in some)
        return merge(some, *given)

    monkeypatch.setattr(PartStats, "merge", merged)
    given = {"data": "rows", "nominal": "nominal.parquet", "fdr": fdr, **GIVEN}
    stop_run(2, output="out", **given)

    summary = score_files(output="out", **given)

    assert held == [None] * 4
    assert summary["groups"]["n_with_rows"] == 8


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-1, 4), st.sampled_from([0.0, 0.1, 0.5, np.nan]))),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_group_counts__do_not_depend_on_how_rows_are_cut(parts):
    found = GroupCounts.merge(map(counts_of, parts), 5)

    expected = counts_of([row for part in parts for row in part])
    assert found.as_json() == expected.as_json()
    measured = [(code, p) for part in parts for code, p in part if code >= 0 and p == p]
    assert found.codes.tolist() == sorted({code for code, _ in measured})
    for i, code in enumerate(found.codes.tolist()):
        p_values = [p for of, p in measured if of == code]
        assert found.rows[i] == len(p_values)
        assert found.flagged[i] == p_values.count(0.0)
        assert found.up_to_alpha[i] == sum(p <= 0.1 for p in p_values)
    is_same = found.flagged.tolist() == found.up_to_alpha.tolist()
    assert (found.flagged is found.up_to_alpha) == is_same
    copy = GroupCounts.from_json(json.loads(json.dumps(found.as_json())))
    for name in ("codes", "rows", "flagged", "up_to_alpha"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(found, name))
    assert copy.as_json() == found.as_json()


@pytest.mark.parametrize(
    "changed",
    [
        {"n_groups": 3}, {"n_groups": -1},
        {"packed": pack(np.array([[1, 0], [1, 1], [0, 0]]))},
        {"packed": pack(np.array([[-1, 2], [1, 1], [0, 0]]))},
        {"packed": pack(np.array([[1, 2], [1, 0], [0, 0]]))},
        {"packed": pack(np.array([[1, 2], [1, 1], [0, -1]]))},
        {"up_to_alpha": "no text of numbers"}, {"up_to_alpha": pack(np.array([1, -1]))},
    ],
)  # fmt: skip
def test_group_counts__that_are_damaged_are_refused(changed):
    """Then the part is written again."""
    content = counts_of([(1, 0.1), (3, 0.0)]).as_json()
    assert GroupCounts.from_json(content).codes.tolist() == [1, 3]

    with pytest.raises(ValueError, match=r"packed|counts"):
        GroupCounts.from_json(content | changed)


def counts_of(rows):
    codes, p_values = (np.array([row[i] for row in rows]) for i in (0, 1))
    return GroupCounts.of(codes.astype(int), p_values.astype(float), p_values == 0.0, 0.1)
