"""Reasons name the column that is wrong, where we know which one that is."""

import numpy as np
import pandas as pd
import pytest

from choosing import mostly_slow
from lpe_dask import LPE

#: Of the rows with one column shifted, the least of which it has to come first.
N_ROWS, LEAST = 200, 195

#: Standard deviations by which it is shifted, by the number of columns.
SHIFTS = {10: 8, 50: 8, 200: 12}


def correlated(rng, n_rows, n_features):
    """Normal rows, all pairs of columns with a correlation of one half."""
    common = rng.standard_normal((n_rows, 1))
    return np.sqrt(0.5) * (common + rng.standard_normal((n_rows, n_features)))


def planted(n_features, seed):
    """Nominal rows, rows with one column shifted, and which one that is.

    A tenth of the columns is 100 times as wide.
    """
    rng = np.random.default_rng(seed)
    widths = np.where(rng.permutation(n_features) < n_features // 10, 100.0, 1.0)
    nominal, rows = (correlated(rng, n, n_features) for n in (10_000, N_ROWS))
    columns = rng.integers(0, n_features, N_ROWS)
    rows[np.arange(N_ROWS), columns] += SHIFTS[n_features]
    names = [f"c{i}" for i in range(n_features)]
    frames = (pd.DataFrame(some * widths, columns=names) for some in (nominal, rows))
    return *frames, np.array(names)[columns]


CASES = [(d, kind, seed) for d in SHIFTS for kind in ("kth", "mean") for seed in range(5)]
ALWAYS = [(d, kind, 0) for d in SHIFTS for kind in ("kth", "mean")]


@pytest.mark.parametrize(("n_features", "aggregation", "seed"), mostly_slow(CASES, ALWAYS))
def test_explain__names_the_column_that_is_shifted(n_features, aggregation, seed):
    """A row that is not flagged counts as missed."""
    nominal, rows, columns = planted(n_features, seed)
    model = LPE(scale="standard", aggregation=aggregation).fit(nominal)

    first = model.explain(rows, top=1)

    is_flagged = (first["p_value"] <= model.alpha).to_numpy()
    is_named = is_flagged & (first["column"].to_numpy() == columns)
    assert is_named.sum() >= LEAST
    # What is said to be enough is so, and nothing else: with that one value as shown.
    places = rows.columns.get_indexer(first["column"])
    copied = rows.to_numpy(copy=True)
    copied[np.arange(N_ROWS), places] = first["nominal_value"]
    is_nominal = model.score_samples(copied) > model.alpha
    is_said = first["enough"].fillna(1).to_numpy(int) == 1
    is_missing = first["enough"].isna().to_numpy()  # not even all columns are
    np.testing.assert_array_equal(is_nominal[~is_missing], is_said[~is_missing])
