"""Reasons and nearest rows of a model with groups are those of a model of each group."""

import dask
import numpy as np
import pandas as pd
import pytest

from choosing import dealt, mostly_full
from lpe_dask import LPE


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


ALL = ("scale", "neighbors", "calibration")


def table(n_rows, seed, n_groups=6):
    """Groups of unequal sizes, each with another place and scale; columns that tie."""
    rng = np.random.default_rng(seed)
    groups = np.minimum(rng.integers(0, n_groups, n_rows), rng.integers(0, 9, n_rows))
    columns = {
        "x": rng.integers(0, 9, n_rows) / 2 * (1 + groups) + 1000 * groups,
        "site": np.array(list("abcdefghi"))[groups],
        "y": rng.integers(0, 5, n_rows) / 4,
        "kind": rng.integers(0, 3, n_rows),
        "hour": rng.integers(0, 2, n_rows),
    }
    return pd.DataFrame(columns)


def without_groups(arguments):
    return {k: v for k, v in arguments.items() if k not in ("by", "own", "small_groups")}


def of_groups(rows, by):
    """The labels and the measured columns of the rows of each group."""
    for key, index in rows.groupby(by).groups.items():
        key = key if isinstance(key, tuple) else (key,)
        yield key, index, rows.loc[index].drop(columns=by)


def chosen(rows, by, key):
    return rows[(rows[by] == list(key)).all(axis=1)].drop(columns=by)


CASES = {
    "plain": {"scale": None},
    "standard": {"scale": "standard", "aggregation": "mean"},
    "both forms": {"scale": "minmax+quantile"},
    "quantile": {"scale": "quantile"},
    "covariance": {"metric": "mahalanobis", "scale": "standard"},
    "variances": {"metric": "seuclidean", "n_neighbors": 3},
    "radius": {"graph": "radius", "radius": 1.5},
    "categories": {"scale": "standard", "categorical": ["kind"]},
    "gaps": {"scale": "standard", "categorical": ["kind"], "missing": "measure"},
    "weights": {"scale": "minmax", "metric_params": {"w": [1, 0, 2]}},
}
CALIBRATIONS = ("loo", "split", "conformal")


@pytest.mark.parametrize(
    ("case", "calibration"),
    mostly_full(
        [(case, kind) for case in CASES for kind in CALIBRATIONS],
        dealt(CASES, CALIBRATIONS),
    ),
)
def test_explain__is_that_of_a_model_of_the_group(case, calibration):
    """All columns of it, bit for bit, of new rows and of those that were fitted."""
    by = ["site", "hour"]
    arguments = {"by": by, "calibration": calibration, "alpha": 0.1, "random_state": 3}
    arguments |= CASES[case]
    nominal, new = table(400, 0), table(40, 1)
    if case == "gaps":
        nominal.loc[::7, "y"] = np.nan
        new.loc[::5, "kind"] = np.nan
    model = LPE(**arguments).fit(nominal)

    found, nearest = model.explain(new), model.nearest_nominal(new)
    places = list(range(0, 400, 9))
    own, own_nearest = model.explain(rows=places), model.nearest_nominal(rows=places)

    n_compared = 0
    for key, index, rows in of_groups(nominal, by):
        is_small = (model.groups_[by] == list(key)).all(axis=1)
        if model.groups_[is_small]["why_small"].iloc[0]:
            continue
        alone, of_new = LPE(**without_groups(arguments)).fit(rows), chosen(new, by, key)
        labels = index.to_numpy()
        if len(of_new):
            check_same(found.loc[of_new.index], alone.explain(of_new))
            right = alone.nearest_nominal(of_new)
            check_same(nearest.loc[of_new.index], in_input(right, labels))
            n_compared += len(of_new)
        mine = [place for place in places if place in index]
        if mine:
            which = np.searchsorted(labels, mine).tolist()
            right = alone.explain(rows=which)
            check_same(own.loc[mine], right.set_axis(labels[right.index], axis=0))
            right = in_input(alone.nearest_nominal(rows=which), labels)
            right = right.set_axis(labels[right.index], axis=0)
            check_same(own_nearest.loc[mine], right)
    assert n_compared > 20


def in_input(nearest, labels):
    """The places that a model of a group gives, in the rows of all groups."""
    places = [labels[place] for place in nearest["nominal_row"]]
    return nearest.assign(nominal_row=pd.array(places, "Int64"))


def check_same(found, right):
    pd.testing.assert_frame_equal(found, right, check_exact=True)
