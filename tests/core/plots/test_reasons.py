"""Columns of reasons as bars: their shares, names and what is left over."""

import re

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from drawing import legend
from lpe_dask import LPE


@pytest.fixture(scope="module")
def reasons():
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.random((200, 4)), columns=[*"abcd"])
    rows = pd.DataFrame(0.5, index=["x", "y", "z"], columns=[*"abcd"])
    rows.loc["x", "b"], rows.loc["y", "c"], rows.loc["z", "b"] = 4.25, -7, 5
    return LPE(scale="standard").fit(nominal).explain(rows, top=4)


def bars(ax):
    """The widths of the bars, by their names, from top to bottom."""
    names = [text.get_text() for text in ax.get_yticklabels()]
    patches = [patch for container in ax.containers for patch in container]
    return dict(zip(names, [patch.get_width() for patch in patches], strict=True))


def test_plot_reasons__draws_mean_shares_the_largest_first(reasons, ax):
    lpe_dask.plot_reasons(reasons, ax=ax)

    expected = reasons.groupby("column")["share"].sum() / 3
    drawn = bars(ax)
    assert drawn == pytest.approx(expected.to_dict())
    assert [*drawn][:2] == ["b", "c"]
    assert sum(drawn.values()) == pytest.approx(1)
    assert ax.yaxis_inverted()
    assert legend(ax) == ["typical of nominal rows", "mean share of 3 rows"]


def test_plot_reasons__marks_what_is_typical(reasons, ax):
    lpe_dask.plot_reasons(reasons, ax=ax)

    typical = reasons.drop_duplicates("column").set_index("column")["typical_share"]
    drawn = [line.get_xdata()[0] for line in ax.get_lines()[:4]]
    assert drawn == pytest.approx(typical[[*bars(ax)]].tolist())


def test_plot_reasons__marks_what_is_typical_of_all_groups(ax):
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.random((200, 2)), columns=["a", "b"])
    nominal["site"] = [*"xy"] * 100
    nominal.loc[nominal["site"] == "y", "a"] *= 20
    model = LPE(3, by=["site"], alpha=0.1).fit(nominal)
    rows = pd.DataFrame({"a": 30.0, "b": 30.0, "site": [*"xyy"]})

    reasons = [model.explain(rows[::step]) for step in (1, -1)]

    typical = reasons[0].groupby("column")["typical_share"]
    assert (typical.nunique() == 2).all()
    for table in reasons:
        lpe_dask.plot_reasons(table, ax=ax)
        marks = dict(zip(bars(ax), ax.get_lines(), strict=False))
        drawn = {name: mark.get_xdata()[0] for name, mark in marks.items()}
        assert drawn == pytest.approx(typical.mean().to_dict())
        ax.clear()


def test_plot_reasons__adds_up_what_has_no_bar(reasons, ax):
    lpe_dask.plot_reasons(reasons, top=1, ax=ax)

    drawn = bars(ax)
    assert [*drawn] == ["b", "other columns"]
    assert sum(drawn.values()) == pytest.approx(1)
    assert ax.patches[1].get_hatch() != ax.patches[0].get_hatch()


def test_plot_reasons__names_the_values_of_one_row(reasons, ax):
    lpe_dask.plot_reasons(reasons.loc[["x"]], ax=ax)

    assert next(iter(bars(ax))) == "b = 4.25"
    assert legend(ax)[-1] == "share in the row"


def test_plot_reasons__leaves_out_rows_without_shares(reasons, ax):
    without = reasons.assign(share=reasons["share"].where(reasons.index != "y"))

    lpe_dask.plot_reasons(without, ax=ax)

    assert legend(ax)[1:] == ["left out: NaN (1 row)", "mean share of 2 rows"]
    others = reasons.loc[["x", "z"]]
    expected = others.loc[others["column"] == "b", "share"].mean()
    assert bars(ax)["b"] == pytest.approx(expected)


def test_plot_reasons__takes_the_table_of_a_run(reasons, tmp_path, ax):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.random((200, 3)), columns=[*"abc"])
    rows.loc[[5, 150], "b"] = 9
    (tmp_path / "in").mkdir()
    for part in range(2):
        rows[part::2].to_parquet(tmp_path / f"in/{part}.parquet")
    lpe_dask.score_files(f"{tmp_path}/in/*.parquet", tmp_path / "out", report=False)
    table = pd.read_parquet(tmp_path / "out/_reasons.pqt")

    lpe_dask.plot_reasons(table, ax=ax)

    assert table["row"].nunique() == 100  # of two parts
    assert legend(ax)[-1] == "mean share of 200 rows"
    assert sum(bars(ax).values()) == pytest.approx(1)


@pytest.mark.parametrize("top", [1, 4])
@pytest.mark.parametrize("is_lazy", [False, True])
def test_plot_reasons__of_rows_with_the_same_label_says_what_works(top, is_lazy, ax):
    rng = np.random.default_rng(0)
    model = LPE().fit(pd.DataFrame(rng.random((200, 4)), columns=[*"abcd"]))
    rows = pd.DataFrame({"a": [9, 0.5], "b": [0.5, 9], "c": 0.5, "d": 0.5}, index=[0, 0])
    if is_lazy:  # each partition has its own numbers
        rows = dd.concat([dd.from_pandas(rows[i : i + 1], 1) for i in range(2)])
        rows = rows.reset_index(drop=True)

    with pytest.raises(ValueError, match="several rows with the same label") as error:
        lpe_dask.plot_reasons(model.explain(rows, top=top), ax=ax)

    remedies = re.findall(r"rows\.[\w.]*\(.*?=True\)", str(error.value))
    unique = eval(remedies[is_lazy], {"rows": rows})
    lpe_dask.plot_reasons(model.explain(unique, top=top), ax=ax)
    assert legend(ax)[-1] == "mean share of 2 rows"


def test_plot_reasons__has_room_for_negative_shares(reasons, ax):
    lpe_dask.plot_reasons(reasons.assign(share=-reasons["share"]), top=2, ax=ax)

    assert ax.get_xlim()[0] < min(bars(ax).values()) < 0


@pytest.mark.parametrize(
    "labels",
    [
        pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)]),
        pd.Index(["a", 1, None], dtype=object),
        pd.date_range("2026-11-20", periods=3, tz="Europe/Berlin"),
    ],
    ids=["levels", "mixed", "times"],
)
def test_plot_reasons__counts_rows_by_any_labels(labels, ax):
    rng = np.random.default_rng(0)
    model = LPE().fit(rng.random((200, 3)))
    rows = pd.DataFrame(rng.random((3, 3)) + 1, index=labels)

    lpe_dask.plot_reasons(model.explain(rows), ax=ax)

    assert legend(ax)[-1] == "mean share of 3 rows"
