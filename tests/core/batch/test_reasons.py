"""The reasons that a run gives for its most anomalous rows."""

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from interrupting import write_files
from lpe_dask.batch.explanations import explain_output, has_explanations
from lpe_dask.cli.reasons import format_reasons

COLUMNS = ["x", "y", "kind"]


def table(n_rows, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n_rows)],
            "x": rng.integers(0, 50, n_rows) * 0.1,
            "y": rng.integers(0, 50, n_rows),
            "kind": rng.choice(["a", "b"], n_rows),
        }
    )


@pytest.fixture
def rows():
    frame = table(200, 1)
    frame.loc[20, "x"], frame.loc[150, "kind"], frame.loc[60, "y"] = 99.0, "new", 900
    frame.loc[30, "x"] = np.nan
    return frame


@pytest.fixture
def model(tmp_path):
    model = lpe_dask.LPE(scale="minmax", categorical=["kind"], alpha=0.05, random_state=0)
    model.fit(table(300, 0)[COLUMNS]).save(tmp_path / "model")
    return model


def scored(rows, tmp_path, edges=(0, 70, 70, 200), **given):
    name = len(list(tmp_path.iterdir()))
    data = write_files(rows, tmp_path / f"in {name}", edges)
    out = tmp_path / f"out {name}"
    given = {"model": tmp_path / "model"} | given
    return lpe_dask.score_files(data, out, **given), out


def test_reasons__are_those_of_explain_for_the_most_anomalous_rows(tmp_path, model, rows):
    summary, out = scored(rows, tmp_path)

    stored = pd.read_parquet(out / "_reasons.pqt")
    parts = [pd.read_parquet(path) for path in sorted(out.glob("part-*"))]
    whole = pd.concat(parts, ignore_index=True)
    order = whole.sort_values(
        ["p_value", "statistic"], ascending=[True, False], kind="stable"
    )
    expected = order.index[:50]
    starts = dict(
        zip([f"part-0000{i}.parquet" for i in range(3)], [0, 70, 70], strict=True)
    )
    places = stored["part"].map(starts) + stored["row"]
    assert places.iloc[::3].tolist() == expected.tolist()
    assert stored["id_columns"].iloc[::3].tolist() == [f"id=row {i}" for i in expected]
    again = model.explain(rows.loc[expected], top=3)
    for name in ("p_value", "statistic", "share", "typical_share"):
        np.testing.assert_array_equal(stored[name], again[name])
    assert stored["column"].tolist() == again["column"].tolist()
    assert stored["usual"].tolist() == again["usual"].tolist()
    assert stored["value"].tolist() == again["value"].map(str).tolist()
    first = summary["reasons"]["rows"][0]
    assert (first["id_columns"], first["is_anomaly"]) == (
        {"id": whole["id"][expected[0]]},
        True,
    )
    assert [column["column"] for column in first["columns"]] == again["column"].tolist()[:3]
    assert sum(column["share"] for column in first["columns"]) == pytest.approx(
        1, abs=1e-12
    )


def test_reasons__leave_out_what_is_private(tmp_path, model, rows):
    rows.loc[20, "x"] = 1e6

    summary, out = scored(rows, tmp_path, private=["id", "x"])

    assert summary["reasons"]["n_private_columns"] == 2
    assert all(row["id_columns"] == {} for row in summary["reasons"]["rows"])
    named = {c["column"] for row in summary["reasons"]["rows"] for c in row["columns"]}
    assert named == {"y", "kind"}
    assert set(pd.read_parquet(out / "_reasons.pqt")["column"]) == {"y", "kind"}
    far = format_reasons(explain_output(out)).splitlines()[1]
    assert far.split()[:2] == ["part-00000.parquet", "20"]
    assert "spread" not in far  # the reason is private
    with pytest.raises(ValueError, match=r"no columns \['z'\] to keep private"):
        scored(rows, tmp_path, (0, 200), private=["z"])


def test_reasons__leave_out_what_is_private_of_a_model_that_has_no_names(tmp_path):
    """It was fitted on an array: names are those of the rows to score."""
    frame = table(150, 4)[["x", "y"]]
    frame.loc[3, "y"], frame.loc[7, "y"] = 7001, 7002
    model = lpe_dask.LPE(3, alpha=0.05).fit(table(300, 0)[["x", "y"]].to_numpy(float))
    model.save(tmp_path / "model")

    summary, out = scored(frame, tmp_path, (0, 70, 150), private=["y"])

    named = {c["column"] for row in summary["reasons"]["rows"] for c in row["columns"]}
    assert named == {"x"}
    reasons = pd.read_parquet(out / "_reasons.pqt")
    assert set(reasons["column"]) == {"x"}
    assert not reasons["value"].isin([7001, 7002]).any()
    assert set(explain_output(out, top=60)["column"]) == {"x"}


def test_reasons__say_of_what_distance_there_are_no_shares(tmp_path):
    nominal = table(200, 5)[["x", "y"]].astype(float)
    nominal.loc[:24] = [400.0, 400.0]  # a row of which there are 25
    lpe_dask.LPE(2).fit(nominal).save(tmp_path / "model")
    frame = nominal.iloc[30:70].reset_index(drop=True)
    frame.loc[3], frame.loc[7] = [400.0, 400.0], [1e300, 1e300]

    summary, out = scored(frame, tmp_path, (0, 20, 40))

    rows = summary["reasons"]["rows"]
    places = {(row["part"], row["row"]): row["note"] for row in rows}
    assert places["part-00000.parquet", 3] == "no shares: the distance is 0"
    assert places["part-00000.parquet", 7] == "no shares: the distance is inf"
    lines = format_reasons(explain_output(out, top=40))
    assert lines.count("no shares: the distance is 0 or inf") >= 2


def test_reasons__have_what_is_carried_over_as_it_was(tmp_path, model, rows):
    """Whole numbers stay whole, beside numbers that are not, and beside missing ones."""
    rows["id"] = np.arange(200) + 2**53 + 1
    rows.insert(1, "weight", np.arange(200) / 8)
    rows.insert(2, "batch", pd.array([None, 7] * 100, dtype="Int64"))

    summary, _ = scored(rows, tmp_path)

    starts = {"part-00000.parquet": 0, "part-00002.parquet": 70}
    for row in summary["reasons"]["rows"]:
        place = starts[row["part"]] + row["row"]
        right = {
            "id": 2**53 + 1 + place, "weight": place / 8,
            "batch": 7 if place % 2 else None,
        }  # fmt: skip
        assert row["id_columns"] == right
        assert [type(value) for value in row["id_columns"].values()] == [
            type(value) for value in right.values()
        ]


@pytest.mark.parametrize(
    ("private", "x", "reason", "refusal"),
    [
        (COLUMNS, 1.0, "all measured columns are private", "columns are private"),
        ([], np.nan, "no row has a p-value", "nothing to explain"),
    ],
)
def test_reasons__there_are_none_where_nothing_can_be_shown(
    tmp_path, model, rows, private, x, reason, refusal
):
    summary, out = scored(rows.assign(x=x), tmp_path, private=private)

    assert (summary["reasons"]["reason"], summary["reasons"]["rows"]) == (reason, [])
    assert not (out / "_reasons.pqt").exists()
    with pytest.raises(ValueError, match=refusal):
        explain_output(out)


def test_reasons__of_rows_scored_among_themselves_leave_each_out(tmp_path):
    frame = table(45, 3).drop(columns="kind")
    frame.loc[[7, 8], ["x", "y"]] = 1000.0, 77  # each is the nearest row of the other
    data = write_files(frame.astype({"y": float}), tmp_path / "rows", [0, 20, 45])

    summary = lpe_dask.score_files(
        data, tmp_path / "out", columns=["x", "y"], n_neighbors=1, alpha=0.1
    )

    places = {"part-00000.parquet": 0, "part-00001.parquet": 20}
    told = {places[row["part"]] + row["row"]: row for row in summary["reasons"]["rows"]}
    assert told[7]["statistic"] == 0  # its twin is not itself
    assert told[7]["note"] == "no shares: the distance is 0"
    assert [c["nominal_value"] for c in told[7]["columns"]] == [1000.0, 77.0]
    others = [row for place, row in told.items() if place not in (7, 8)]
    assert all(row["statistic"] > 0 or row["note"] for row in others)
    assert summary["drift"]["verdict"] is None
    assert "ranks" in summary["drift"]["reason"]


def test_reasons__have_q_values_where_a_rate_decides(tmp_path, model, rows):
    summary, out = scored(rows, tmp_path, fdr=0.2)
    known = pd.read_parquet(out / "_reasons.pqt")

    parts = {path.name: pd.read_parquet(path) for path in out.glob("part-*")}
    for row in summary["reasons"]["rows"]:
        line = parts[row["part"]].iloc[row["row"]]
        assert (row["q_value"], row["is_anomaly"]) == (line["q_value"], line["is_anomaly"])
    more = explain_output(out, 60)
    pd.testing.assert_frame_equal(more.head(len(known)), known)


def test_reasons__a_run_does_not_fail_for_want_of_them(
    tmp_path, model, rows, monkeypatch, caplog
):
    def fail(*args, **options):
        raise RuntimeError("no memory")

    monkeypatch.setattr("lpe_dask.model.explanation.Explanation.of", fail)

    summary, out = scored(rows, tmp_path)

    assert "no reasons can be given" in caplog.text
    assert "flagged rows cannot be grouped" in caplog.text
    assert summary["reasons"]["reason"] == "RuntimeError: no memory."
    assert summary["patterns"]["reason"] == "RuntimeError: no memory."
    assert len(pd.read_parquet(out)) == 200


def test_explain_output__shows_what_the_run_knows_and_works_out_more(tmp_path, model, rows):
    _, out = scored(rows, tmp_path)

    few, known = explain_output(out, 10), has_explanations(out, 51)
    assert few.groupby(["part", "row"]).ngroups == 10
    assert not known

    more = explain_output(out, 120)

    assert more.groupby(["part", "row"]).ngroups == 120
    pd.testing.assert_frame_equal(more.iloc[: len(few)].reset_index(drop=True), few)
    assert has_explanations(out, 120)
    assert explain_output(out, 1000).groupby(["part", "row"]).ngroups == 199
    assert has_explanations(out, 2000)  # as all are that have a p-value
    (out / "_reasons.pqt").unlink()
    assert not has_explanations(out, 1)
    lines = format_reasons(few).splitlines()
    assert len(lines) == 11
    assert "part-00000.parquet" in lines[1] or "part-00002.parquet" in lines[1]
    assert lines[0].split() == [
        "part",
        "row",
        "id_columns",
        "p_value",
        "statistic",
        "reasons",
    ]
    assert few["id_columns"].iloc[0] in lines[1]


@pytest.mark.parametrize("numbers_only", [False, True])
def test_format_reasons__have_values_as_they_were(tmp_path, numbers_only):
    nominal = pd.DataFrame({"amount": np.arange(100) / 7, "when": 1.767e9 + np.arange(100)})
    nominal = nominal if numbers_only else nominal.assign(kind="a", flag=True)
    new = nominal.assign(amount=1234567.125)
    lpe_dask.LPE(3, categorical="auto").fit(nominal).save(tmp_path / "model")

    _, out = scored(new.assign(id="row"), tmp_path, (0, 100))

    line = format_reasons(explain_output(out)).splitlines()[1]
    assert "amount=1234567.125 (100%, usual " in line
    assert "when=17670000" in line


def test_format_reasons__say_that_a_row_is_odd_in_many_columns(tmp_path):
    nominal = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (100, 40)) / 8.0)
    nominal.columns = nominal.columns.map(str)
    lpe_dask.LPE(3).fit(nominal).save(tmp_path / "model")

    _, out = scored((nominal.iloc[:5] + 7).assign(id="row"), tmp_path, (0, 5))

    assert "spread over many columns; " in format_reasons(explain_output(out))


def test_format_reasons__have_no_empty_column(tmp_path, model, rows):
    _, out = scored(rows, tmp_path, keep=[], private=["id"])

    assert "id_columns" not in format_reasons(explain_output(out)).splitlines()[0]


@pytest.mark.parametrize("top", [0, -1, 2.5, True])
def test_explain_output__refuses_no_rows(tmp_path, top):
    with pytest.raises(ValueError, match="at least 1"):
        explain_output(tmp_path, top)


def test_explain_output__says_what_it_needs(tmp_path, model, rows):
    with pytest.raises(FileNotFoundError, match="no summary of a finished run"):
        explain_output(tmp_path / "nothing")
    nominal = write_files(table(300, 0)[COLUMNS], tmp_path / "nominal", [0, 300])
    _, out = scored(
        rows, tmp_path, (0, 200), model=None, nominal=nominal, columns=COLUMNS,
        categorical=["kind"],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"model was not saved.*--top"):
        explain_output(out, 60)
    _, kept = scored(rows, tmp_path, keep=["id"])
    with pytest.raises(ValueError, match="x"):
        explain_output(kept, 60)
    lpe_dask.LPE(n_neighbors=3, scale="minmax", categorical=["kind"]).fit(
        table(300, 5)[COLUMNS]
    ).save(tmp_path / "model", overwrite=True)
    with pytest.raises(ValueError, match="not the one"):
        explain_output(kept, 60)
