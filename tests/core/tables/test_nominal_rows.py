import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask import LPE

FRAME = pd.DataFrame(
    {
        "size": [1.0, np.nan, 3.0, 5.0, np.nan, 8.0],
        "age": [1.0, 2.0, np.inf, 4.0, 5.0, 6.0],
        "rank": np.arange(6.0),
    }
)
KINDS = {
    "numpy": FRAME.to_numpy(),
    "pandas": FRAME,
    "dask array": da.from_array(FRAME.to_numpy(), chunks=(2, 1)),
    "dask frame": dd.from_pandas(FRAME, npartitions=3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fit__names_columns_with_missing_values_and_the_remedy(kind):
    names = ("column 0", "column 1") if kind in ("numpy", "dask array") else ("size", "age")

    with pytest.raises(ValueError, match=r"NaN or inf.*missing='drop'") as caught:
        LPE(2).fit(KINDS[kind])

    message = str(caught.value)
    assert f"{names[0]} (2), {names[1]} (1)." in message
    assert "--missing drop" in message


@pytest.mark.parametrize("kind", KINDS)
def test_drop__leaves_the_rows_out_and_keeps_their_places(kind):
    kept = FRAME[np.isfinite(FRAME).all(axis=1)]

    model = LPE(1, missing="drop", scale="minmax", calibration="loo").fit(KINDS[kind])

    p_values = np.asarray(model.p_values_)
    assert (model.n_samples_, model.n_dropped_) == (3, 3)
    np.testing.assert_array_equal(np.isnan(p_values), ~FRAME.index.isin(kept.index))
    expected = LPE(1, scale="minmax", calibration="loo").fit(kept.to_numpy()).p_values_
    np.testing.assert_array_equal(p_values[kept.index], expected)
    assert (np.asarray(model.fit_predict(KINDS[kind])) == 1).all()


def test_drop__counts_neighbors_among_the_kept():
    with pytest.raises(ValueError, match=r"n_neighbors=3 needs at least 4.* = 3"):
        LPE(3, missing="drop").fit(FRAME)


@pytest.mark.parametrize("missing", ["error", "drop"])
@pytest.mark.parametrize("kind", KINDS)
def test_fit__needs_a_row(kind, missing):
    with pytest.raises(ValueError, match="0 sample"):
        LPE(missing=missing).fit(
            KINDS[kind][:0] if kind != "dask frame" else KINDS[kind].loc[99:]
        )


def test_drop__of_all_rows():
    with pytest.raises(ValueError, match="among 3 rows"):
        lpe_dask.score(np.full((3, 2), np.nan), missing="drop")


@pytest.mark.parametrize("scale", [None, "minmax", "standard"])
@pytest.mark.parametrize("bad", [[], [0, 1, 2], [3, 4]])
def test_fit__with_chunks_that_are_or_become_empty(scale, bad):
    """A chunk without a row, or of which every row is dropped, changes nothing."""
    rows = np.random.default_rng(0).standard_normal((12, 2))
    rows[bad, 0] = np.nan
    cut = da.from_array(rows, chunks=((3, 2, 7), 2))
    chunked = da.concatenate([cut[:5], cut[5:5], cut[5:]])
    kept = rows[np.isfinite(rows).all(axis=1)]

    model = LPE(2, missing="drop", scale=scale, calibration="loo").fit(chunked)

    expected = LPE(2, scale=scale, calibration="loo").fit(kept)
    np.testing.assert_array_equal(model.calibration_, expected.calibration_)
    p_values = model.p_values_.compute()
    np.testing.assert_array_equal(np.isnan(p_values), np.isin(np.arange(12), bad))
    np.testing.assert_array_equal(p_values[~np.isnan(p_values)], expected.p_values_)
