"""All results of rows in groups at once, also weighed by a density of anomalies."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from choosing import mostly_dealt
from lpe_dask import LPE


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


def rows_of(n_rows, seed):
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 3, n_rows)
    columns = {"x": rng.integers(0, 9, n_rows) / 2 * (1 + site), "site": site}
    return pd.DataFrame(columns | {"y": rng.integers(0, 9, n_rows) / 4})


NOMINAL, NEW = rows_of(240, 0), rows_of(40, 1)
NEW.loc[3, "site"], NEW.loc[5, "x"] = 99, np.nan


def log_density(rows):
    """Of two columns; 0 where the first is 1."""
    assert rows.shape[1] == 2
    logs = -np.abs(rows).sum(axis=1)
    logs[rows[:, 0] == 1] = -np.inf
    return logs


OWN = [
    ("scale", "neighbors", "calibration"), ("neighbors",), ("calibration",),
    ("neighbors", "calibration"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "density", "lazy"), mostly_dealt(OWN, [None, log_density], [False, True])
)
def test_score_frame__has_what_other_methods_return(own, density, lazy):
    model = LPE(by=["site"], own=own, anomaly_log_density=density, calibration="loo")
    model.fit(dd.from_pandas(NOMINAL, npartitions=3) if lazy else NOMINAL)

    found = model.score_frame(dd.from_pandas(NEW, npartitions=2) if lazy else NEW)
    found = found.compute() if lazy else found

    names = {"check_names": False}
    pd.testing.assert_series_equal(found["p_value"], model.score_samples(NEW), **names)
    pd.testing.assert_series_equal(found["statistic"], model.statistic(NEW), **names)
    pd.testing.assert_series_equal(found["p_value_status"], model.status(NEW), **names)
    assert found["p_value"].isna().tolist() == [i in (3, 5) for i in range(40)]
    own_frame = model._current().own_score_frame()
    own_frame, p_values = dask.compute(own_frame, model.p_values_)
    np.testing.assert_array_equal(own_frame["p_value"], p_values)


@pytest.mark.parametrize(
    ("calibration", "graph"),
    mostly_dealt(["loo", "split", "conformal"], ["knn", "radius"]),
)
def test_anomaly_log_density__is_of_the_columns_that_are_measured(calibration, graph):
    """As in a model of the rows of each group."""
    arguments = {"calibration": calibration, "graph": graph, "random_state": 1}
    arguments |= {"anomaly_log_density": log_density}
    arguments |= {"radius": 1.5} if graph == "radius" else {}

    model = LPE(by=["site"], **arguments).fit(NOMINAL)
    found, own = model.score_samples(NEW), model.p_values_

    for site, rows in NOMINAL.groupby("site"):
        alone = LPE(**arguments).fit(rows[["x", "y"]])
        pd.testing.assert_series_equal(own[rows.index], alone.p_values_)
        new = NEW[NEW["site"] == site]
        right = alone.score_samples(new[["x", "y"]])
        pd.testing.assert_series_equal(found[new.index], right)
