"""Nearest nominal rows, and which rows of the input these are."""

import pickle

import dask
import numpy as np
import pandas as pd
import pytest

import definitions
import lpe_dask
from choosing import mostly_dealt
from lpe_dask import LPE
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.row_ids import reference_ids
from problems import lattice


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


NOMINAL, NEW = lattice(150, 0), lattice(20, 1, -3, 13)
WITH_MISSING = NOMINAL.copy()
WITH_MISSING[[0, 3, 77, 149], [0, 1, 2, 0]] = [np.nan, np.inf, -np.inf, np.nan]


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
    right = [definitions.nearest_rows(row, NOMINAL[places], 3) for row in NEW]
    pairs = [pair for of_row in right for pair in of_row]
    assert nearest["nominal_row"].tolist() == [places[j] for _, j in pairs]
    pd.testing.assert_frame_equal(copied, nearest, check_exact=True)
    assert loaded["nominal_row"].isna().all()
    with pytest.raises(ValueError, match="does not know which nominal rows were drawn"):
        reference_ids(fitted_of(lpe_dask.load(tmp_path / "model")), np.arange(3))
    assert loaded["nominal_row"].dtype == nearest["nominal_row"].dtype
    assert loaded["distance"].tolist() == [d for d, _ in pairs]
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
