"""NaN and inf, rows that are not there, and numbers out of range.

Elsewhere: other tables in memory (tables/test_input.py, tables/test_table.py) and in files
(tables/test_input_files.py), tables that differ between two readings
(tables/test_changing_tables.py), models on disk (model/test_manifest.py), full disks
(batch), lost schedulers and workers (cli/test_commands.py, system/test_cluster.py).
"""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from lpe_dask import LPE

RNG = np.random.default_rng(0)
NOMINAL = RNG.integers(0, 9, (40, 2)) * 0.5
ROWS = RNG.integers(0, 12, (10, 2)) * 0.5
MODEL = LPE(3).fit(NOMINAL)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dask.config.set(scheduler="sync"):
        yield


def frame_of(rows):
    return pd.DataFrame(rows, columns=["x", "y"])


def as_files(rows):
    """Write two files of Parquet."""
    half = len(rows) // 2
    frame_of(rows[:half]).to_parquet("a.parquet")
    frame_of(rows[half:]).to_parquet("b.parquet")
    return ["a.parquet", "b.parquet"]


KINDS = {
    "numpy": np.asarray,
    "dask array": lambda rows: da.from_array(rows, chunks=(3, 1)),
    "pandas": frame_of,
    "dask frame": lambda rows: dd.from_pandas(frame_of(rows), npartitions=2),
    "files": as_files,
}
of_each_kind = pytest.mark.parametrize("of_kind", KINDS.values(), ids=KINDS)


@pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")
@of_each_kind
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scored_row_with_nan_or_inf__has_no_p_value_and_leaves_others_alone(of_kind, value):
    rows = ROWS.copy()
    rows[4, 1] = value

    p_values = np.asarray(MODEL.score_samples(of_kind(rows)))

    assert np.flatnonzero(np.isnan(p_values)).tolist() == [4]
    expected = np.delete(MODEL.score_samples(ROWS), 4)
    np.testing.assert_array_equal(np.delete(p_values, 4), expected)
    assert np.asarray(MODEL.predict(of_kind(rows)))[4] == 1


@of_each_kind
def test_nominal_row_with_nan_or_inf__is_refused_or_dropped(of_kind):
    nominal, places = NOMINAL.copy(), [7, 9, 20]
    nominal[places, [1, 1, 0]] = np.nan, -np.inf, np.nan
    kept = np.delete(NOMINAL, places, axis=0)
    arguments = {"n_neighbors": 3, "scale": "minmax", "calibration": "loo"}

    with pytest.raises(
        ValueError,
        match=r"NaN or inf.*(x|column 0) \(1\), (y|column 1) \(2\)\..* missing='drop'"
        r" \(--missing drop\)",
    ):
        LPE(3).fit(of_kind(nominal))
    model = LPE(missing="drop", **arguments).fit(of_kind(nominal))

    assert (model.n_samples_, model.n_dropped_) == (37, 3)
    p_values = np.asarray(model.p_values_)
    assert np.flatnonzero(np.isnan(p_values)).tolist() == places
    expected = LPE(**arguments).fit(kept).p_values_
    np.testing.assert_array_equal(np.delete(p_values, places), expected)
    assert (np.asarray(model.fit_predict(of_kind(nominal)))[places] == 1).all()


@pytest.mark.parametrize(
    ("rows", "n_neighbors", "message"),
    [
        ([[1.0], [np.nan], [3.0], [4.0]], 3, r"n_neighbors=3 needs at least 4.* = 3"),
        ([[np.nan], [np.inf], [np.nan]], 1, "among 3 rows"),
    ],
)
def test_drop__counts_the_rows_that_are_kept(rows, n_neighbors, message):
    with pytest.raises(ValueError, match=message):
        LPE(n_neighbors, missing="drop").fit(rows)


@pytest.mark.parametrize("scale", [None, "minmax", "standard"])
@pytest.mark.parametrize("bad", [[], [0, 1, 2], [3, 4]])
def test_fit__with_chunks_that_are_or_become_empty(scale, bad):
    """A chunk without a row, or of which every row is dropped, changes nothing."""
    rows = np.random.default_rng(0).standard_normal((12, 2))
    rows[bad, 0] = np.nan
    chunked = da.from_array(rows, chunks=((3, 2, 0, 7), 2))
    kept = rows[np.isfinite(rows).all(axis=1)]

    model = LPE(2, missing="drop", scale=scale, calibration="loo").fit(chunked)

    expected = LPE(2, scale=scale, calibration="loo").fit(kept)
    np.testing.assert_array_equal(model.calibration_, expected.calibration_)
    p_values = model.p_values_.compute()
    np.testing.assert_array_equal(np.isnan(p_values), np.isin(np.arange(12), bad))
    np.testing.assert_array_equal(p_values[~np.isnan(p_values)], expected.p_values_)


@of_each_kind
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_empty_table__has_an_empty_result_and_nothing_to_learn_from(of_kind, missing):
    for method, dtype in (("score_samples", float), ("predict", np.int64)):
        result = getattr(MODEL, method)(of_kind(ROWS[:0]))
        values = np.asarray(result)
        assert (len(values), result.dtype, values.dtype) == (0, dtype, dtype)
    with pytest.raises(ValueError, match=r"no nominal rows .* 0 sample\(s\)"):
        LPE(3, missing=missing).fit(of_kind(NOMINAL[:0]))


@pytest.mark.parametrize("arguments", [{"alpha": 1.0}, {"max_p_error": 0}, {"recheck": 2}])
def test_shares__are_between_0_and_1(arguments):
    with pytest.raises(ValueError, match="between 0 and 1"):
        LPE(**arguments).fit(NOMINAL)
