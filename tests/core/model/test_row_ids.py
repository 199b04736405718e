"""Nearest nominal rows, and which rows of the input these are."""

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
import lpe_dask
from choosing import dealt, mostly_dealt, mostly_slow
from lpe_dask import LPE
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.row_ids import input_positions, reference_ids
from strategies import point_sets

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


def lattice(n_rows, seed, low=0, high=10):
    """Rounded measurements: they tie everywhere, and not in binary."""
    return np.random.default_rng(seed).integers(low, high, (n_rows, 3)) * 0.1 + 5.0


NOMINAL, NEW = lattice(150, 0), lattice(20, 1, -3, 13)
WITH_MISSING = NOMINAL.copy()
WITH_MISSING[[0, 3, 77, 149], [0, 1, 2, 0]] = [np.nan, np.inf, -np.inf, np.nan]


def nearest_places(rows, nominal, places, n):
    """Places and distances of the nearest of some nominal rows, by the definition."""
    right = [definitions.nearest_rows(row, nominal[places], n) for row in rows]
    numbers = [places[j] for row in right for _, j in row]
    return numbers, [d for row in right for d, _ in row]


def drawn(arguments, n_rows):
    """The rows that new ones are measured among, as the fits of this file draw them."""
    kind, seed = arguments["calibration"], arguments.get("random_state")
    if kind == "loo":
        return np.arange(n_rows)
    order = np.random.default_rng(seed).permutation(n_rows)
    half = (n_rows + 1) // 2 if kind == "split" else n_rows // 2
    n_measured = arguments.get("calibration_size", half) if kind == "conformal" else half
    return np.sort(order[n_measured:])


KINDS = {
    "array": lambda rows: rows,
    "frame": pd.DataFrame,
    "dask array": lambda rows: da.from_array(rows, chunks=(40, 2)),
    "dask frame": lambda rows: dd.from_pandas(pd.DataFrame(rows), npartitions=4),
}
CALIBRATIONS = {
    "loo": {"calibration": "loo"},
    "loo part": {"calibration": "loo", "calibration_size": 30},
    "loo part by seed": {"calibration": "loo", "calibration_size": 30, "random_state": 1},
    "split": {"calibration": "split", "random_state": 1},
    "split part": {"calibration": "split", "calibration_size": 30, "random_state": 2},
    "conformal": {"calibration": "conformal", "random_state": 1},
    "conformal part": {
        "calibration": "conformal", "calibration_size": 30, "random_state": 2
    },
}  # fmt: skip
CASES = [(kind, name) for kind in KINDS for name in CALIBRATIONS]
SOME = [case for case in CASES if case[0] == "array" or "part" not in case[1]]


@pytest.mark.parametrize(
    ("kind", "name", "is_missing"),
    mostly_slow(
        [(*case, is_missing) for case in CASES for is_missing in (False, True)],
        [(*case, is_missing) for case in SOME for is_missing in (False, True)],
        [(*case, is_missing) for case, is_missing in dealt(SOME, [False, True])],
    ),
)
def test_nearest_nominal__has_the_places_in_the_input(kind, name, is_missing):
    nominal, arguments = (WITH_MISSING if is_missing else NOMINAL), CALIBRATIONS[name]
    kept = np.flatnonzero(np.isfinite(nominal).all(axis=1))
    model = LPE(3, missing="drop", **arguments).fit(KINDS[kind](nominal))

    nearest = model.nearest_nominal(NEW, n=4)

    places = kept[drawn(arguments, len(kept))]
    right, distances = nearest_places(NEW, nominal, places, 4)
    assert nearest["nominal_row"].tolist() == right
    assert nearest["distance"].tolist() == distances
    assert nearest["rank"].tolist() == [1, 2, 3, 4] * len(NEW)
    assert model.n_dropped_ == (4 if is_missing else 0)
    fitted = fitted_of(model)
    numbers = np.arange(len(places))
    np.testing.assert_array_equal(input_positions(fitted, numbers), places)
    whole = np.full(len(nominal), -1)
    whole[places] = numbers
    found = reference_ids(fitted, np.arange(len(nominal)))
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(
        input_positions(fitted, np.array([-1, 0])), [-1, places[0]]
    )


@pytest.mark.parametrize(
    ("name", "is_missing"),
    mostly_dealt(CALIBRATIONS, [True, False]),
)
def test_nearest_nominal__of_a_model_that_was_loaded_or_copied(name, is_missing, tmp_path):
    """A loaded one does not know the place where rows were drawn, and others dropped."""
    nominal, arguments = (WITH_MISSING if is_missing else NOMINAL), CALIBRATIONS[name]
    model = LPE(3, missing="drop", **arguments).fit(nominal)
    right = model.nearest_nominal(NEW)
    model.save(tmp_path / "model")

    copied = pickle.loads(pickle.dumps(model)).nearest_nominal(NEW)
    loaded = lpe_dask.load(tmp_path / "model").nearest_nominal(NEW)

    pd.testing.assert_frame_equal(copied, right, check_exact=True)
    if is_missing and name != "loo":
        assert loaded["nominal_row"].isna().all()
        loaded["nominal_row"] = right["nominal_row"]
    pd.testing.assert_frame_equal(loaded, right, check_exact=True)


@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_nearest_nominal__of_rows_drawn_without_a_seed(calibration, tmp_path):
    """The model that drew them knows them; one that was loaded cannot."""
    model = LPE(3, calibration=calibration).fit(NOMINAL)
    model.save(tmp_path / "model")

    nearest = model.nearest_nominal(NEW)
    copied = pickle.loads(pickle.dumps(model)).nearest_nominal(NEW)
    loaded = lpe_dask.load(tmp_path / "model").nearest_nominal(NEW)

    (places,) = np.nonzero(reference_ids(fitted_of(model), np.arange(150)) >= 0)
    assert len(places) == 75
    right, distances = nearest_places(NEW, NOMINAL, places, 3)
    assert nearest["nominal_row"].tolist() == right
    pd.testing.assert_frame_equal(copied, nearest, check_exact=True)
    assert loaded["nominal_row"].isna().all()
    with pytest.raises(ValueError, match="does not tell which nominal rows were drawn"):
        reference_ids(fitted_of(lpe_dask.load(tmp_path / "model")), np.arange(3))
    assert loaded["nominal_row"].dtype == nearest["nominal_row"].dtype
    assert loaded["distance"].tolist() == distances
    assert loaded["rank"].tolist() == nearest["rank"].tolist()


@pytest.mark.parametrize("random_state", [None, 0, 5])
def test_nearest_nominal__of_rows_that_auto_has_drawn(random_state, tmp_path):
    """Without a seed it always draws the same."""
    model = LPE(3, scale="standard", random_state=random_state).fit(NOMINAL)
    model.save(tmp_path / "model")
    assert model.calibration_kind_ == "conformal"

    nearest = model.nearest_nominal(NEW)
    loaded = lpe_dask.load(tmp_path / "model")

    pd.testing.assert_frame_equal(loaded.nearest_nominal(NEW), nearest, check_exact=True)
    loaded.save(tmp_path / "again")
    again = lpe_dask.load(tmp_path / "again").nearest_nominal(NEW)
    pd.testing.assert_frame_equal(again, nearest, check_exact=True)
    by_place = NOMINAL[nearest["nominal_row"].to_numpy(int)]
    scaled = model.explain(NEW, top=1)["nominal_value"].to_numpy()
    columns = model.explain(NEW, top=1)["column"].to_numpy()
    np.testing.assert_array_equal(by_place[::3][np.arange(20), columns], scaled)


DRAWING = ["split", "conformal", "auto"]
TRY_LATER = [
    {"random_state": 8}, {"random_state": None}, {"calibration_size": 50},
    {"calibration": "split", "random_state": 8}, {"calibration": "loo"},
    {"calibration": "auto"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("calibration", "later"),
    mostly_dealt(DRAWING, TRY_LATER),
)
def test_nearest_nominal__has_the_rows_of_the_fit_whatever_is_set_later(
    calibration, later, tmp_path
):
    model = LPE(3, scale="standard", calibration=calibration, random_state=1).fit(NOMINAL)
    right = model.nearest_nominal(NEW)
    kind = model.calibration_kind_

    model.set_params(**later).save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")

    pd.testing.assert_frame_equal(loaded.nearest_nominal(NEW), right, check_exact=True)
    assert loaded.calibration_kind_ == kind
    assert loaded.get_params() == model.get_params()


# Which rows are near


@given(data=st.data())
def test_nearest_nominal__is_the_definition(data):
    nominal = data.draw(point_sets(min_rows=2, n_features=2))
    rows = data.draw(point_sets(n_features=2))
    n = data.draw(st.integers(1, len(nominal)))
    scale = data.draw(st.sampled_from(SCALES))
    reference, queries = (definitions.forms(r, nominal, scale) for r in (nominal, rows))
    w = definitions.weights_of_forms(nominal, scale)

    model = LPE(1, scale=scale, calibration="loo").fit(nominal)
    nearest = model.nearest_nominal(rows, n=n)

    right = [definitions.nearest_rows(query, reference, n, w=w) for query in queries]
    assert nearest["rank"].tolist() == list(range(1, n + 1)) * len(rows)
    assert nearest["nominal_row"].tolist() == [j for row in right for _, j in row]
    assert nearest["distance"].tolist() == [d for row in right for d, _ in row]


def test_nearest_nominal__of_rows_at_no_distance():
    """A row with NaN is not measured; one that is too far is at distance inf of all."""
    nominal = np.array([[0.0], [1.0], [2.0]])
    rows = pd.DataFrame({"x": [0.9, np.nan, 1e300, -np.inf]}, index=list("abcd"))

    nearest = LPE(1).fit(nominal).nearest_nominal(rows, n=2)

    assert nearest.index.tolist() == list("aabbccdd")
    assert nearest["nominal_row"].fillna(-1).tolist() == [1, 0, -1, -1, -1, -1, -1, -1]
    np.testing.assert_array_equal(
        nearest["distance"], [1 - 0.9, 0.9, np.nan, np.nan, np.inf, np.inf, np.nan, np.nan]
    )
    assert str(nearest["nominal_row"].dtype) == "Int64"


@pytest.mark.parametrize("graph", ["directed", "union"])
def test_nearest_nominal__of_a_walk_is_straight(graph):
    nominal, rows = lattice(80, 0), lattice(20, 1, -3, 13)
    params = {"n_neighbors": 2, "graph": graph}
    model = LPE(4, metric="geodesic", metric_params=params, calibration="conformal")
    model.set_params(random_state=0).fit(nominal)

    nearest = model.nearest_nominal(rows, n=5)

    searched = np.sort(np.random.default_rng(0).permutation(80)[40:])
    right = [definitions.nearest_rows(row, nominal[searched], 5) for row in rows]
    assert nearest["nominal_row"].tolist() == [searched[j] for row in right for _, j in row]
    assert nearest["distance"].tolist() == [d for row in right for d, _ in row]
