"""Runs that stop as often as can be, at any part, or while files change."""

import contextlib

import dask
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breaking import parts_in
from interrupting import N_PARTS, copy_of, stop_after, uninterrupted, write_tables
from lpe_dask.batch.api import score_files
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def expected(tables, tmp_path_factory):
    return uninterrupted(tables, tmp_path_factory.mktemp("expected"))


@given(stops=st.lists(st.integers(0, N_PARTS), max_size=4))
def test_score_files__gives_the_same_bytes_however_often_it_stops(
    tables, expected, tmp_path_factory, stops
):
    out = tmp_path_factory.mktemp("stopped") / "out"
    for n_written in stops:
        with (
            stop_after(PartFolder, "publish", n_written),
            contextlib.suppress(RunError, FileExistsError),
        ):
            score_files(**tables, output=out, n_neighbors=5)

        there = parts_in(out)
        assert there.items() <= expected.items()
        assert (out / "_summary.json").exists() == (len(there) == N_PARTS)

    if not (out / "_summary.json").exists():
        score_files(**tables, output=out, n_neighbors=5)

    assert parts_in(out) == expected
    about = ["_reasons.pqt", "_report.html", "_summary.json"]
    assert sorted(path.name for path in out.iterdir()) == [*about, *expected]


def test_score_files__keeps_nothing_of_changed_files_if_a_rate_decides(tables, tmp_path):
    """What is flagged in each part follows from the p-values of all."""
    data = copy_of(tables["data"], tmp_path / "data")
    given = {**tables, "data": data, "n_neighbors": 5, "fdr": 0.3}
    n_calls = N_PARTS + 2  # all are measured, and two are decided
    with stop_after(PartFolder, "publish", n_calls), pytest.raises(RunError, match="Stop"):
        score_files(**given, output=tmp_path / "out")
    far = pd.read_parquet(data / "5.parquet") + 1000
    far.to_parquet(data / "5.parquet")

    score_files(**given, output=tmp_path / "out")

    score_files(**given, output=tmp_path / "anew")
    assert parts_in(tmp_path / "out") == parts_in(tmp_path / "anew")
