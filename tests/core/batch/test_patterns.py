"""The patterns among the flagged rows of runs: what the summary has of them."""

import json
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpe_dask
from daily import day, prepare_folder
from daily import rows as rows_of_day
from interrupting import write_files
from lpe_dask.batch import patterns as patterns_module
from lpe_dask.batch import read_patterns
from lpe_dask.batch.column_values import PRIVATE
from lpe_dask.batch.flagged_rows import draw_flagged
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.summary import read_summary
from lpe_dask.storage import Lock

N_ROWS = 1200
START = "2026-11-01"
SPAN = ("first", "most_first", "most_last", "last")


def table(seed, n_rows):
    """Rows of three sensors that measure the same, of two sites."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n_rows, 1)) + 0.3 * rng.standard_normal((n_rows, 3))
    frame = pd.DataFrame(values, columns=["x", "y", "z"])
    frame["kind"] = rng.choice(["a", "b"], n_rows)
    frame["site"] = np.resize(["north", "south"], n_rows)
    frame["when"] = pd.date_range(START, periods=n_rows, freq="min")
    frame["id"] = [f"row {i}" for i in range(n_rows)]
    return frame


@pytest.fixture(scope="module")
def rows():
    """Two causes, one of them at one site; some rows of a new kind, and with gaps."""
    frame = table(1, N_ROWS)
    frame.loc[100:199, "y"] += 5
    frame.loc[frame.index[401:461:2], "x"] -= 5
    frame.loc[600:619, "kind"] = "new"
    frame.loc[700:709, "z"] = np.nan
    return frame


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The path of a model that measures gaps, with a calibration of each site."""
    path = tmp_path_factory.mktemp("model") / "model"
    given = {"scale": "standard", "missing": "measure", "alpha": 0.02, "by": ["site"]}
    given |= {"metric_params": {"w": [1, 1, 1, 9], "w_missing": 9}}
    model = lpe_dask.LPE(10, categorical=["kind"], calibration="conformal", **given)
    model.fit(table(0, 2000)[["x", "y", "z", "kind", "site"]]).save(path)
    return path


def scored(frame, folder, edges=(0, 130, 130, 700, N_ROWS), **given):
    data = write_files(frame, folder / f"in {len(list(folder.iterdir()))}", edges)
    return lpe_dask.score_files(data, folder / "out", overwrite=True, **given)


def test_patterns__are_one_for_each_cause(tmp_path, model, rows):
    summary = scored(rows, tmp_path, model=model)

    found = summary["patterns"]
    assert found["reason"] is None
    assert found["flagged_rows"] == found["explained_rows"] == summary["flagged"]
    assert (found["is_sample"], found["time_column"]) == (False, "when")
    texts = ["y high", "x low, site = south", "kind = new", "z missing"]
    listed = found["listed"][:4]
    assert [of["text"] for of in listed] == texts
    for of, n_rows in zip(listed, [100, 30, 20, 10], strict=True):
        assert n_rows <= of["rows"] == of["flagged_rows"] <= n_rows + 12
        assert of["share"] == of["rows"] / summary["flagged"]
        assert (of["is_new"], of["seen_runs"]) == (None, None)
    assert listed[1]["terms"] == [
        {"column": "x", "direction": "low", "value": None},
        {"column": "site", "direction": "=", "value": "south"},
    ]
    assert listed[1]["top_group"] == ["south"]
    assert 0.8 < listed[1]["top_group_share"] < 1
    kind = listed[2]
    start = pd.Timestamp(START)
    assert kind["first"] == (start + pd.Timedelta(600, "min")).isoformat()
    assert kind["last"] == (start + pd.Timedelta(619, "min")).isoformat()
    assert kind["most_first"] == (start + pd.Timedelta(602, "min")).isoformat()
    assert kind["most_last"] == (start + pd.Timedelta(617, "min")).isoformat()
    assert (kind["n_groups"], sorted(kind["top_group"])) == (2, ["north"])
    example = kind["example"]
    part = pd.read_parquet(tmp_path / "out" / example["part"])
    row = part.iloc[example["row"]]
    assert (row["kind"], row["is_anomaly"]) == ("new", True)
    assert example["id_columns"]["id"] == row["id"]
    assert sum(of["rows"] for of in found["listed"]) == summary["flagged"]
    assert found["listed_share"] == 1
    assert (found["n_earlier_runs"], found["history"]) == (0, [])


def unplaced(section):
    """What does not depend on how the output is cut."""
    listed = [{**of, "example": of["example"]["id_columns"]} for of in section["listed"]]
    return section | {"listed": listed}


@pytest.mark.parametrize("most", [40, 2000])
def test_patterns__do_not_depend_on_partitions_and_schedulers(
    tmp_path, model, rows, monkeypatch, most
):
    """Also those of a sample; with whole numbers that are floats beside missing ones."""
    monkeypatch.setattr(patterns_module, "MAX_ROWS", most)
    frame = rows.assign(count=pd.array([None, *range(N_ROWS - 1)], dtype="Int64"))

    whole = scored(frame, tmp_path, (0, N_ROWS), model=model)["patterns"]
    with dask.config.set(scheduler="threads", num_workers=2):
        cut = scored(frame, tmp_path, model=model)["patterns"]

    assert unplaced(cut) == unplaced(whole)
    assert whole["is_sample"] is (most == 40)
    if whole["is_sample"]:
        assert whole["explained_rows"] == 40 < whole["flagged_rows"]
        assert whole["listed"][0]["text"] == "y high"
        assert 60 < whole["listed"][0]["flagged_rows"] < 160
        assert 10 < whole["listed"][0]["rows"] < 40


def test_patterns__of_many_columns_are_of_fewer_rows(tmp_path, model, rows, monkeypatch):
    monkeypatch.setattr(patterns_module, "MAX_NUMBERS", 44)
    assert scored(rows, tmp_path, model=model)["patterns"]["explained_rows"] == 44 // 4


def test_patterns__show_nothing_that_is_private(tmp_path, model, rows):
    rows = rows.rename(columns={"when": "at"})

    summary = scored(rows, tmp_path, model=model, private=["y", "kind", "site", "at"])

    found = summary["patterns"]
    assert found["listed"][0]["text"] == PRIVATE
    assert found["listed"][0]["rows"] >= 120  # of both columns
    assert found["listed"][0]["top_group"] == [PRIVATE]
    assert found["listed"][0]["n_groups"] == 2
    assert found["time_column"] is None
    text = json.dumps(found)
    for name in ('"y', '"kind', "site", "north", "south", "at =", "new,", START):
        assert name not in text
    assert [of["text"] for of in found["listed"]].count("x low") == 1


def test_patterns__there_are_none_where_all_is_private(tmp_path, model, rows):
    private = ["x", "y", "z", "kind"]

    found = scored(rows, tmp_path, model=model, private=private)["patterns"]

    assert found["reason"] == "all measured columns are private"
    assert (found["listed"], found["history"]) == ([], [])
    with pytest.raises(ValueError, match="no patterns: all measured columns are private"):
        read_patterns(tmp_path / "out")


def test_patterns__of_a_run_without_flagged_rows(tmp_path, model, rows):
    found = scored(rows, tmp_path, model=model, fdr=1e-9)["patterns"]

    assert [found[name] for name in ("reason", "flagged_rows", "listed")] == [None, 0, []]
    assert found["listed_share"] is None


@pytest.mark.parametrize("fdr", [None, 0.3])
def test_patterns__are_of_the_rows_that_are_flagged(tmp_path, fdr):
    """Scored against each other, too, and where a rate decides."""
    frame = table(1, 400).drop(columns=["kind", "site"])
    frame.loc[0:29, "z"] += 9
    nominal = None
    if fdr is not None:
        table(0, 2000).to_parquet(tmp_path / "nominal.parquet")
        nominal = tmp_path / "nominal.parquet"

    summary = scored(
        frame, tmp_path, (0, 150, 400), nominal=nominal, columns=["x", "y", "z"],
        fdr=fdr, alpha=0.075, n_neighbors=40,
    )  # fmt: skip

    found = summary["patterns"]
    assert found["listed"][0]["text"] == "z high"
    assert 27 <= found["listed"][0]["rows"] <= 35
    assert found["flagged_rows"] == summary["flagged"] < 60


@pytest.mark.parametrize(
    ("when", "time_column", "first"),
    [
        (pd.date_range(START, periods=N_ROWS, freq="min").astype(str), "when",
         "2026-11-01T01:40:00"),
        (pd.date_range(START, periods=N_ROWS, freq="min", tz="UTC"), "when",
         "2026-11-01T01:40:00+00:00"),
        (pd.date_range(START, periods=N_ROWS).date.astype(str), "when",
         "2027-02-09T00:00:00"),
        ([f"{20261101 + i}" for i in range(N_ROWS)], None, None),
        ([f"row {i}" for i in range(N_ROWS)], None, None),
        ([None] * N_ROWS, None, None),
    ],
)  # fmt: skip
def test_patterns__find_times_in_columns_and_in_texts(
    tmp_path, model, rows, when, time_column, first
):
    frame = rows.assign(when=when, y=rows["y"].where(rows["y"].index < 200, 0))
    frame[["x", "z"]] = frame[["x", "z"]].where(rows.index.to_series() < 200, 0)
    frame.loc[frame.index[:100], ["x", "y", "z"]] = 0.0

    found = scored(frame, tmp_path, model=model)["patterns"]

    assert found["time_column"] == time_column
    assert found["listed"][0]["text"] == "y high"
    assert found["listed"][0]["first"] == first
    is_known = {name: found["listed"][0][name] is not None for name in SPAN}
    assert is_known == dict.fromkeys(SPAN, first is not None)


def test_patterns__have_times_of_an_index(tmp_path, model, rows):
    found = scored(rows.set_index("when"), tmp_path, model=model)["patterns"]
    assert found["time_column"] == "when"


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any),
    most=st.integers(1, 30),
    only_flagged=st.booleans(),
)
def test_draw_flagged__draws_the_same_rows_from_any_parts(
    tmp_path_factory, counts, most, only_flagged
):
    """The ranks of the whole table decide, whatever the parts."""
    folder = tmp_path_factory.mktemp("parts")
    parts = [
        pd.DataFrame(
            {
                "p_value": np.arange(2 * n + 1) / 10, "statistic": np.arange(2 * n + 1) / 3,
                "is_anomaly": pd.array([None, *[True, False] * n], dtype="boolean"),
            }
        )
        for n in counts
    ]  # fmt: skip
    store, first, stats = PartFolder(str(folder), len(parts), Lock(folder)), 0, []
    for number, (part, n_flagged) in enumerate(zip(parts, counts, strict=True)):
        stats.append(SimpleNamespace(counts={"rows": len(part), "flagged": n_flagged}))
        if only_flagged:  # a row without a p-value is written, too
            part.insert(0, "row_number", first + np.arange(len(part)))
            first += len(part)
            part = part[part["is_anomaly"].fillna(value=True)]
        part.to_parquet(folder / store.name(number))
    flagged = [(i, 1 + 2 * k) for i, n in enumerate(counts) for k in range(n)]

    with dask.config.set(scheduler="sync"):
        found = draw_flagged(store, stats, most, only_flagged=only_flagged)

    drawn = list(zip(found["part"], found["place"], strict=True))
    n_drawn = min(most, len(flagged))
    ranks = np.random.default_rng(0).choice(len(flagged), n_drawn, replace=False)
    assert drawn == [flagged[rank] for rank in sorted(ranks)]
    assert found["p_value"].tolist() == [place / 10 for _, place in drawn]
    assert found["statistic"].tolist() == [place / 3 for _, place in drawn]
    in_files = [(place + 1) // 2 if only_flagged else place for _, place in drawn]
    assert found["row"].tolist() == in_files


def test_read_patterns__of_an_earlier_version_says_what_to_do(tmp_path, model, rows):
    summary = scored(rows, tmp_path, model=model)
    del summary["patterns"]
    (tmp_path / "out" / "_summary.json").write_text(json.dumps(summary))

    with pytest.raises(ValueError, match=r"an earlier version .* again .*--overwrite"):
        read_patterns(tmp_path / "out")


# Series of runs


@pytest.fixture
def daily(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_folder()


def run(number, *, bad=0, **given):
    """The patterns of a day with some bad rows."""
    if not Path(f"in/{day(number)}.parquet").exists():
        frame = rows_of_day(number)
        frame.loc[: bad - 1, "x"] += 9 * (bad > 0)
        frame.to_parquet(f"in/{day(number)}.parquet")
    return lpe_dask.run("job.toml", date=day(number), **given)["patterns"]


def of_text(section, text):
    (found,) = (of for of in section["listed"] if of["text"] == text)
    return [found[name] for name in ("is_new", "seen_runs")]


def test_patterns__are_new_or_have_been_seen_in_earlier_runs(daily):
    first = run(1)
    second, third = run(2, bad=70), run(3, bad=50)
    again = run(3, overwrite=True)

    assert first["listed"][0]["is_new"] is None
    n_before = sum(of["rows"] for of in first["listed"] if of["text"] == "x high")
    n_second = second["listed"][0]["flagged_rows"]
    assert 0 < n_before < n_second / 10 > 6  # false alarms are not the same cause
    assert of_text(second, "x high") == [True, 0]
    assert of_text(third, "x high") == [False, 1]
    assert again == third  # a run that replaces itself counts once
    sizes = [max(of["rows"].values()) for of in third["history"]]
    listed = [max(of["flagged_rows"] for of in run["listed"]) for run in (third, second)]
    assert sizes[:2] == listed
    for number in range(4, 11):
        last = run(number)
    assert (last["n_earlier_runs"], len(last["history"])) == (7, 8)
    assert of_text(last, "x high")[1] >= 1


def test_patterns__of_runs_before_a_column_became_private_are_forgotten(daily):
    run(1, bad=60)
    text = Path("job.toml").read_text()
    private = 'private = ["y"]'
    Path("job.toml").write_text(text.replace("[score]", f"[score]\n{private}"))
    hidden, later = run(2, bad=60), run(3, bad=60)
    Path("job.toml").write_text(text)
    shown = run(4, bad=60)

    assert [of["n_earlier_runs"] for of in (hidden, later, shown)] == [0, 1, 2]
    assert [of["private_columns"] for of in shown["history"]] == [[], ["y"], ["y"]]


def test_patterns__without_a_day_follow_the_run_that_they_replace(daily):
    text = Path("job.toml").read_text().replace("out/{date}", "out/all")
    Path("job.toml").write_text(text)

    sections = [run(i, bad=60, overwrite=True) for i in (1, 2, 2, 3)]

    assert [of["n_earlier_runs"] for of in sections] == [0, 1, 1, 2]
    assert sections[2] == sections[1]
    assert of_text(sections[3], "x high") == [False, 2]


def test_patterns__do_not_fail_for_a_damaged_history(daily, caplog):
    run(1, bad=60)
    path = Path(f"out/{day(1)}/_summary.json")
    summary = json.loads(path.read_text())
    summary["patterns"]["history"] = [{"date": 7, "rows": 5}]
    path.write_text(json.dumps(summary))

    found = run(2, bad=60)

    assert "patterns of earlier runs cannot be read" in caplog.text
    assert found["listed"][0]["is_new"] is None
    assert read_summary(f"out/{day(2)}")["patterns"] == found
    del summary["patterns"]  # of an earlier version
    path.write_text(json.dumps(summary))
    assert run(2, overwrite=True)["n_earlier_runs"] == 0
