"""Rows of groups that were held out judge the promise within groups, and over all."""

import json

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lpe_dask import LPE
from lpe_dask.model.calibration_check import ERROR, judge_groups
from lpe_dask.model.flagged_counts import Counts, total
from lpe_dask.pvalues import holm


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


def test_sum__is_that_of_all_combinations():
    """Of groups of several sizes, some of them equal, and one that flags none."""
    sizes = [(5, 2, 19), (5, 2, 19), (5, 2, 19), (3, 1, 9), (4, 0, 6)]
    laws = [Counts.flagged(*of) for of in sizes]
    right = np.ones(1)
    for h, k, m in sizes:
        law = stats.betabinom(h, k, m + 1 - k).pmf(np.arange(h + 1)) if k else np.ones(1)
        right = np.convolve(right, law)

    found = total([laws[0].times(3), *laws[3:]])

    np.testing.assert_allclose(found.shares.sum(), 1, rtol=1e-13)
    whole = np.zeros(len(right))
    whole[found.first : found.first + len(found.shares)] = found.shares
    np.testing.assert_allclose(whole, right, rtol=0, atol=1e-15)
    for level in (0.001, 0.3, 0.999):
        assert found.quantile(level) == np.searchsorted(np.cumsum(right), level)


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_sum__of_many_groups_stays_short(n):
    """Only what is next to impossible is left out."""
    law = Counts.flagged(40, 5, 99)

    found = law.times(n)

    mean = n * 40 * 5 / 100
    numbers = found.first + np.arange(len(found.shares))
    assert abs(found.shares @ numbers - mean) < 1e-9 * mean
    assert abs(found.shares.sum() - 1) < 1e-12
    assert len(found.shares) <= min(40 * n + 1, 20 * np.sqrt(n * 40 * 0.05 * 1.4) + 60)


def test_holm__rejects_as_it_is_defined():
    p_values = np.array([0.04, 0.001, 0.02, 0.0124, 0.9])
    kept, rejected = list(range(5)), []
    while kept and (best := min(kept, key=p_values.__getitem__)) is not None:
        if p_values[best] > 0.05 / len(kept):
            break
        rejected.append(best)
        kept.remove(best)
    assert np.flatnonzero(holm(p_values) <= 0.05).tolist() == sorted(rejected) == [1, 3]
    assert (holm(np.full(3, 0.01)) <= 0.05).all()
    assert holm(np.empty(0)).shape == (0,)


SIZES = np.array([19, 19, 99, 0, 499])


@pytest.mark.parametrize(
    ("calibration", "places"), [("conformal", [1, 1, 5, 25]), ("loo", [1, 1, 5, 25])]
)
def test_judge__bounds_are_those_of_the_sum_over_groups(calibration, places):
    codes, sizes = np.repeat([0, 1, 2, 4], [10, 20, 30, 100]), SIZES[[0, 1, 2, 4]]
    alpha = 0.05
    if calibration == "loo":  # floor(a m) + 1
        places = [int(np.floor(alpha * m)) + 1 for m in sizes]
    right = np.ones(1)
    for h, k, m in zip([10, 20, 30, 100], places, sizes, strict=True):
        right = np.convolve(right, stats.betabinom(h, k, m + 1 - k).pmf(np.arange(h + 1)))
    p_values = np.where(np.arange(160) % 16 == 0, 0.05, 0.06)

    check = judge_groups(p_values, codes, calibration, SIZES, (alpha,))

    (line,) = check.table.to_dict("records")
    summed = np.cumsum(right)
    assert line["flagged"] == 10
    assert line["lower"] == np.searchsorted(summed, ERROR)
    assert line["upper"] == np.searchsorted(summed, 1 - ERROR / 2)
    assert (line["odd_groups"], line["verdict"]) == (0, "holds")
    assert check.odd_groups.empty
    assert (check.n_held_out, check.n_calibration) == (160, 636)
    assert check.is_exact == (calibration == "conformal")
    assert json.loads(json.dumps(check.as_json()))["levels"][0]["odd_groups"] == 0


def test_judge__finds_one_group_that_is_wrong_and_many_that_are_a_little():
    codes, sizes = np.repeat(np.arange(200), 20), np.full(200, 99)
    rng = np.random.default_rng(0)
    right = np.ceil(100 * rng.random(len(codes))) / 100
    one, little = right.copy(), np.ceil(80 * rng.random(len(codes))) / 100
    one[codes == 7] = 0.01

    checks = [
        judge_groups(of, codes, "conformal", sizes, (0.05,)) for of in (right, one, little)
    ]

    assert [check.holds for check in checks] == [True, False, False]
    assert [check.table["odd_groups"].item() for check in checks] == [0, 1, 0]
    assert checks[1].table["flagged"].item() <= checks[1].table["upper"].item()
    assert checks[2].table["flagged"].item() > checks[2].table["upper"].item()
    odd = {"group": 7, "alpha": 0.05, "flagged": 20, "held_out": 20}
    assert checks[1].odd_groups.to_dict("records") == [odd | {"calibration_rows": 99}]


def test_judge__of_groups_none_of_which_can_flag_a_row():
    check = judge_groups(np.ones(9), np.repeat([0, 1], [4, 5]), "conformal", SIZES, (0.01,))
    none = judge_groups(np.empty(0), np.empty(0, int), "loo", SIZES, (0.05,))
    for of in (check, none):
        assert of.table["verdict"].tolist() == ["cannot be judged"]
        assert of.holds is None
        assert of.odd_groups.empty


@pytest.mark.full
def test_judge__finds_a_promise_that_holds_in_99_of_100_cases():
    rng = np.random.default_rng(0)
    sizes, held_out = np.array([19, 39, 39, 99]), np.array([8, 8, 30, 50])
    codes, broken = np.repeat(np.arange(4), held_out), 0
    for _ in range(300):
        p_values = np.concatenate(
            [
                (1 + (rng.random(m) > rng.random((h, 1))).sum(axis=1)) / (m + 1)
                for h, m in zip(held_out, sizes, strict=True)
            ]
        )
        broken += not judge_groups(p_values, codes, "conformal", sizes, (0.05, 0.1)).holds
    assert broken <= stats.binom.ppf(1 - 1e-6, 300, 0.01)


def table(seed=0, sizes=(300, 90, 12, 200)):
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(len(sizes)), sizes)
    frame = pd.DataFrame(rng.standard_normal((len(site), 2)), columns=["x", "y"])
    frame["x"] *= 1 + site
    frame.insert(0, "site", np.array(list("abcd"))[site])
    return frame.sample(frac=1, random_state=1, ignore_index=True)


@pytest.mark.parametrize("calibration", ["loo", "conformal"])
def test_check_calibration__fits_others_of_groups_and_scores_those_held_out(calibration):
    rows = table()
    arguments = {"by": ["site"], "calibration": calibration, "scale": "standard"}
    model = LPE(**arguments, random_state=4, alpha=0.1).fit(rows)

    check = model.check_calibration(fraction=0.3, alphas=(0.1, 0.2))

    order = np.random.default_rng(4).permutation(len(rows))
    n_held_out = round(0.3 * len(rows))
    held_out, kept = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    alone = LPE(**arguments, random_state=4, alpha=0.1).fit(rows.iloc[kept])
    p_values = alone.score_samples(rows.iloc[held_out])
    assert p_values.isna().any()  # of the small group
    assert check.n_held_out == p_values.notna().sum()
    assert check.table["flagged"].tolist() == [(p_values <= a).sum() for a in (0.1, 0.2)]
    assert check.n_calibration == alone.groups_["calibration_rows"].sum()
    assert check.holds
    by_dask = LPE(**arguments, random_state=4, alpha=0.1)
    by_dask.fit(dd.from_pandas(rows, npartitions=3))
    found = by_dask.check_calibration(fraction=0.3, alphas=(0.1, 0.2))
    pd.testing.assert_frame_equal(found.table, check.table)


def test_check_calibration__names_groups_with_too_many_false_alarms():
    """Of few rows a covariance is learned that fits these better than others."""
    sizes, rng = (2000, 80, 1500), np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((sum(sizes), 24))).add_prefix("x")
    rows["site"] = np.repeat([*"abc"], sizes)
    rows["day"] = pd.Timestamp("2026-05-01")
    arguments = {"by": ["site", "day"], "metric": "mahalanobis", "n_neighbors": 3}

    loo = (
        LPE(**arguments, calibration="loo")
        .fit(rows)
        .check_calibration(alphas=[0.05], fraction=0.3)
    )
    taken = LPE(**arguments, random_state=0).fit(rows).check_calibration(fraction=0.3)

    assert loo.holds is False
    assert (loo.table["flagged"] <= loo.table["upper"]).all()  # of all groups together
    (odd,) = loo.odd_groups.to_dict("records")
    assert (odd["site"], odd["day"]) == ("b", pd.Timestamp("2026-05-01"))
    assert odd["flagged"] > odd["held_out"] / 2
    assert odd["calibration_rows"] + odd["held_out"] == 80
    assert taken.holds
    assert taken.odd_groups.columns.tolist() == [
        "site", "day", "alpha", "flagged", "held_out", "calibration_rows"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "own", [("neighbors",), ("calibration",), ("neighbors", "calibration")]
)
def test_check_calibration__of_groups_that_share_something(own):
    arrays = table().assign(
        site=lambda of: of["site"].map({"a": 5, "b": 7, "c": 0, "d": 1})
    )
    rows = arrays.to_numpy(float)
    rows[3, 0] = np.nan  # no group
    model = LPE(by=[0], own=own, n_neighbors=4, missing="drop", calibration="loo").fit(rows)

    check = model.check_calibration(fraction=0.2)

    assert check.holds
    assert (check.odd_groups is None) == ("calibration" not in own)
    assert check.n_held_out <= round(0.2 * (len(rows) - 1))
