"""What is said of false alarms and of false discoveries where rows are in groups."""

import logging

import numpy as np
import pandas as pd
import pytest

from lpe_dask import LPE
from lpe_dask.model.calibration_warnings import warn_if_nothing_can_be_flagged
from lpe_dask.model.detector import fitted_of
from lpe_dask.tables import RowStatus

ALL = ("scale", "neighbors", "calibration")


def rows_of(*sizes, seed=0):
    """Two columns, and one of as many groups as there are sizes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((sum(sizes), 2)), columns=["x", "y"])
    return frame.assign(site=np.repeat(np.arange(len(sizes)), sizes))


def fitted(sizes, **arguments):
    return fitted_of(LPE(by=["site"], **arguments).fit(rows_of(*sizes)))


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({"calibration": "conformal"}, 1 / 51),  # 100 rows, of which 50 are compared with
        ({"calibration": "conformal", "own": ("neighbors",)}, 1 / 81),
        ({"calibration": "loo"}, 0.0),
    ],
)
def test_least_p_value__is_that_of_the_largest_group(arguments, least):
    model = LPE(by=["site"], **arguments).fit(rows_of(40, 100, 20))
    far = pd.DataFrame({"x": 1e9, "y": 0.0, "site": [0, 1, 2]})

    found = fitted_of(model).calibration.least_p_value()

    assert found == least == model.score_samples(far).min()


def test_warning__that_nothing_can_be_flagged_is_one_for_all_groups(caplog):
    """Of counts none may be rare enough in any group."""
    caplog.set_level(logging.WARNING, "lpe_dask")
    one = fitted((60, 90), graph="radius", radius=0.01, calibration="loo", alpha=0.037)
    assert one.calibration.least_p_value() >= one.offset

    assert [r.getMessage()[:42] for r in caplog.records] == [
        "no row can be flagged at alpha=0.037: the "
    ]
    assert "with 90 calibration rows in the largest group" in caplog.text
    caplog.clear()
    warn_if_nothing_can_be_flagged(fitted((60, 90), alpha=0.036, calibration="loo"))
    assert not caplog.records


def test_warning__of_false_alarms_is_about_the_smallest_group(caplog):
    arguments = {"calibration": "loo", "scale": "standard"}
    fitted((400, 150), **arguments)
    fitted((400, 100, 3), **arguments)
    fitted((400, 100), own=("neighbors", "calibration"), **arguments)

    (found,) = [r.getMessage() for r in caplog.records if "learned from" in r.getMessage()]
    assert "same 100 nominal rows of the smallest group needs 140 rows" in found


@pytest.mark.parametrize(
    ("arguments", "doubt"),
    [
        ({"calibration": "conformal"}, None),
        ({"calibration": "conformal", "own": ("neighbors",)}, "holds only if rows to scor"),
        ({"calibration": "loo"}, "does not hold: about"),
    ],
)
def test_fdr_caveat__is_none_where_all_groups_are_conformal(arguments, doubt):
    found = fitted((60, 200), **arguments).fdr_caveat(0.1, 1000, 20)

    assert (found is None) == (doubt is None)
    assert doubt is None or doubt in found
    nothing = fitted((60, 200), **arguments).fdr_caveat(0.1, 1000, 0)
    largest = 100 if "own" not in arguments else 130
    if arguments["calibration"] == "conformal":
        assert nothing.startswith(f"fdr=0.1 flags nothing: with {largest} calibration rows")


def test_fdr_caveat__is_about_rows_that_are_compared_with_all():
    """Rows of unknown groups are, too, where no group is small."""
    arguments = {"calibration": "conformal", "small_groups": "pool"}
    model = fitted((60, 200), **arguments)
    counts = dict.fromkeys(RowStatus.NAMES, 0) | {"ok": 999, "unknown group": 1}

    found = model.fdr_caveat(0.1, 1000, 20, np.array([*counts.values()]))

    assert found.startswith("fdr=0.1 does not hold for rows of small and unknown groups")
    assert model.fdr_caveat(0.1, 1000, 20) == found
    counts["unknown group"] = 0
    assert model.fdr_caveat(0.1, 1000, 20, np.array([*counts.values()])) is None
    counts["small group"] = 1
    some_small = fitted((60, 200, 3), **arguments)
    assert some_small.fdr_caveat(0.1, 1000, 20, np.array([*counts.values()])) == found
