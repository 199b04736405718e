"""What a run says of missing values, and of values that no nominal row has."""

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch.column_values import PRIVATE

N_ROWS = 60


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def table(seed):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["a", "b"], N_ROWS)
    return pd.DataFrame({"x": rng.random(N_ROWS), "y": rng.random(N_ROWS), "kind": kinds})


def files(frame, folder, edges=(0, 7, 7, N_ROWS)):
    folder.mkdir()
    for i in range(len(edges) - 1):
        frame.iloc[edges[i] : edges[i + 1]].to_parquet(folder / f"{i}.parquet")
    return folder


@pytest.fixture
def new():
    """Rows with gaps in each column, numbers out of range, and new categories."""
    frame = table(1)
    frame.loc[[1, 2, 50], "x"], frame.loc[3, "y"] = np.nan, np.inf
    frame.loc[[4, 51], "x"], frame.loc[5, "y"] = [-1.0, 2.0], 9.0
    frame.loc[[6, 8, 9], "kind"], frame.loc[[10, 11], "kind"] = "new", None
    return frame


def test_values__are_counted_column_by_column(tmp_path, new):
    summary = lpe_dask.score_files(
        files(new, tmp_path / "new"), tmp_path / "out", categorical="auto",
        nominal=files(table(0), tmp_path / "nominal"),
    )  # fmt: skip

    known = {"x": 57, "y": 59, "kind": 58}
    nominal = table(0)
    beyond = {
        name: int((~new[name].between(nominal[name].min(), nominal[name].max())).sum())
        - (N_ROWS - known[name])  # missing ones are in no range to pandas
        for name in "xy"
    }
    found = {of["column"]: (of["missing"], of["unseen"]) for of in summary["values"]}
    assert found == {"x": (3, beyond["x"]), "y": (1, beyond["y"]), "kind": (2, 3)}
    totals = [of["missing"] + of["unseen"] for of in summary["values"]]
    assert totals == sorted(totals, reverse=True)
    assert summary["rows_nan"] == 6


def test_values__of_private_columns_have_no_names(tmp_path, new):
    summary = lpe_dask.score_files(
        files(new, tmp_path / "new"), tmp_path / "out", categorical="auto",
        nominal=files(table(0), tmp_path / "nominal"), private=["kind", "x"],
    )  # fmt: skip

    names = sorted(of["column"] for of in summary["values"])
    assert names == [PRIVATE, PRIVATE, "y"]


@pytest.mark.parametrize("edges", [(0, N_ROWS), (0, 7, 7, N_ROWS)])
def test_values__that_are_missing_are_counted_where_rows_are_the_nominal_ones(
    tmp_path, new, edges
):
    summary = lpe_dask.score_files(
        files(new, tmp_path / "new", edges), tmp_path / "out", categorical="auto",
        missing="drop",
    )  # fmt: skip

    found = {of["column"]: (of["missing"], of["unseen"]) for of in summary["values"]}
    assert found == {"x": (3, 0), "y": (1, 0), "kind": (2, 0)}
    assert summary["rows_nan"] == 6


def test_values__of_whole_nominal_rows_are_not_read_again(tmp_path):
    summary = lpe_dask.score_files(
        files(table(0), tmp_path / "new"), tmp_path / "out", exclude=["kind"]
    )

    assert summary["values"] == []
