"""Runs from files to files, however these are cut, and however often a run stops."""

import contextlib
import tempfile
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import interrupting
import lpe_dask
from breaking import parts_in
from interrupting import N_PARTS, stop_after, write_files
from lpe_dask.batch.api import score_files
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@st.composite
def tables(draw):
    """Rows on a coarse grid, some not measurable, and edges that cut them into files."""
    n_rows = draw(st.integers(0, 12))
    values = st.one_of(st.integers(-3, 3).map(float), st.just(np.nan))
    rows = draw(npst.arrays(np.float64, (n_rows, 2), elements=values))
    index = draw(st.lists(st.integers(-50, 50), min_size=n_rows, max_size=n_rows))
    cuts = draw(st.lists(st.integers(0, n_rows), max_size=3))
    frame = pd.DataFrame(rows, index=pd.Index(index, dtype="int64"), columns=["x", "y"])
    return frame, [0, *sorted(cuts), n_rows]


@given(
    table=tables(), n_nominal=st.integers(2, 9), alpha=st.sampled_from([0.05, 0.25, 0.5])
)
def test_score_files__equals_score_for_any_files(table, n_nominal, alpha):
    """However the rows are cut into files, OUT has the numbers of `score`, in order."""
    frame, edges = table
    reference = pd.DataFrame({"x": np.arange(n_nominal) // 2.0, "y": 0.0})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_files(frame, place / "data", edges)
        known = place / "nominal.parquet"
        reference.to_parquet(known)

        summary = score_files(place / "data", place / "out", nominal=known, alpha=alpha)

        actual = pd.read_parquet(place / "out")
    model = lpe_dask.LPE(alpha=alpha).fit(reference)
    p_value = model.score_samples(frame)
    pd.testing.assert_frame_equal(actual[["x", "y"]], frame)
    pd.testing.assert_series_equal(actual["p_value"], p_value)
    pd.testing.assert_series_equal(actual["statistic"], model.statistic(frame))
    is_anomaly = (p_value <= alpha).astype("boolean").mask(p_value.isna())
    pd.testing.assert_series_equal(actual["is_anomaly"], is_anomaly, check_names=False)
    assert summary["rows"] == len(frame)
    assert summary["rows_nan"] == p_value.isna().sum()
    assert summary["flagged"] == (p_value <= alpha).sum()


@pytest.fixture(scope="module")
def stopped_tables(tmp_path_factory):
    """Paths of rows, and the parts of a run that nothing interrupted."""
    rows = interrupting.write_tables(tmp_path_factory.mktemp("tables"))
    out = tmp_path_factory.mktemp("expected") / "out"
    score_files(**rows, output=out, n_neighbors=5)
    return rows, parts_in(out)


@given(stops=st.lists(st.integers(0, N_PARTS), max_size=4))
def test_score_files__gives_the_same_bytes_however_often_it_stops(
    stopped_tables, tmp_path_factory, stops
):
    rows, expected = stopped_tables
    out = tmp_path_factory.mktemp("stopped") / "out"
    for n_written in stops:
        with (
            stop_after(PartFolder, "publish", n_written),
            contextlib.suppress(RunError, FileExistsError),
        ):
            score_files(**rows, output=out, n_neighbors=5)

        there = parts_in(out)
        assert there.items() <= expected.items()
        assert (out / "_summary.json").exists() == (len(there) == N_PARTS)

    if not (out / "_summary.json").exists():
        score_files(**rows, output=out, n_neighbors=5)

    assert parts_in(out) == expected
    about = ["_metrics.prom", "_reasons.pqt", "_report.html", "_summary.json"]
    assert sorted(path.name for path in out.iterdir()) == [*about, *expected]
