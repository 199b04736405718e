"""What is promised of rows in groups: false alarms of each group, and false discoveries.

Each set of nominal rows is one fit of 50 groups of unequal sizes and of several laws, and
its new rows are scored at once.
"""

import math

import dask
import numpy as np
import pytest
from scipy import stats

from bands import flagged_band
from choosing import mostly_full
from lpe_dask import LPE, false_discovery_control
from lpe_dask.model.validity import false_alarm_bound, min_rows_for_loo

N_GROUPS, N_FEATURES = 50, 2

#: New rows of each group, in each set.
N_NEW = 20

ALPHAS = (0.05, 0.1)

#: How probable it is at most that a test fails though all is as promised.
RISK = 1e-6

#: Sets: of `make test`, and of `make test-full`.
SETS = mostly_full([40, 200], [40])


def sizes(least, most, n_groups=N_GROUPS):
    return np.geomspace(least, most, n_groups).round().astype(int)


def drawn(rng, n_rows):
    """Rows of groups that differ in place, width and law, and the group of each last."""
    codes = np.repeat(np.arange(len(n_rows)), n_rows)
    shape = (len(codes), N_FEATURES)
    laws = [rng.standard_normal(shape), rng.standard_t(3, shape), rng.exponential(1, shape)]
    rows = np.choose(codes[:, None] % 3, laws)
    return np.c_[rows * (1 + codes % 7)[:, None] + 10 * codes[:, None], codes]


def flagged_in_sets(model, n_rows, n_sets, draw=drawn):
    """How many of the new rows are flagged, of shape (sets, levels, groups)."""
    rng, counts = np.random.default_rng(20261129), []
    n_new = np.full(len(n_rows), N_NEW)
    with dask.config.set(scheduler="sync"):
        for seed in range(n_sets):
            model.set_params(random_state=seed).fit(draw(rng, n_rows))
            p_values = model.score_samples(draw(rng, n_new)).reshape(len(n_rows), N_NEW)
            counts.append([(p_values <= alpha).sum(axis=1) for alpha in ALPHAS])
    return np.array(counts)


def in_groups(**given):
    return LPE(by=[N_FEATURES], alpha=ALPHAS[0], **given)


@pytest.mark.parametrize("n_sets", SETS)
def test_conformal__keeps_its_promise_within_each_group(n_sets):
    """Both ends are exact: there are no ties. The bands are for all groups at once."""
    model = in_groups(calibration="conformal", scale="standard")

    counts = flagged_in_sets(model, sizes(40, 400), n_sets).sum(axis=0)

    risk = RISK / (2 * counts.size)
    for alpha, of_level in zip(ALPHAS, counts, strict=True):
        bands = [
            flagged_band(n_sets, N_NEW, alpha, m, risk)
            for m in model.groups_["calibration_rows"]
        ]
        least, most = np.transpose(bands)
        assert (least <= of_level).all()
        assert (of_level <= most).all()


@pytest.mark.parametrize("n_sets", SETS)
def test_loo__keeps_its_promise_within_each_group_where_scales_are_given(n_sets):
    n_rows = sizes(20, 200)
    model = in_groups(calibration="loo")

    shares = flagged_in_sets(model, n_rows, n_sets) / N_NEW

    assert not model.groups_["why_small"].any()
    assert_near(shares, n_rows, most=1, least=0.85)


@pytest.mark.parametrize("n_sets", SETS)
def test_loo__adds_at_most_a_tenth_where_scales_are_learned_from_enough_rows(n_sets):
    """From as many rows of each group as the rule asks for "auto" takes it."""
    n_rows = sizes(int(min_rows_for_loo("variances", N_FEATURES)), 400)
    model = in_groups(scale="standard")

    shares = flagged_in_sets(model, n_rows, n_sets) / N_NEW

    assert model.calibration_kind_ == "loo"
    assert_near(shares, n_rows, most=1.1, least=0.85)
    n_rows[0] -= 1
    model.fit(drawn(np.random.default_rng(0), n_rows))
    assert model.calibration_kind_ == "conformal"


def assert_near(shares, n_rows, most, least):
    """Assert that shares of sets are on average what "loo" promises, times two factors."""
    bounds = [[false_alarm_bound(alpha, int(n)) for n in n_rows] for alpha in ALPHAS]
    over = shares / np.array(bounds)
    of_groups, errors = over.mean(axis=0), over.std(axis=0) / math.sqrt(len(over))
    assert (of_groups <= most + stats.norm.isf(RISK / of_groups.size) * errors).all()
    of_sets = over.mean(axis=2)  # of all groups together, which are many more rows
    total, errors = of_sets.mean(axis=0), of_sets.std(axis=0) / math.sqrt(len(over))
    assert (errors < 0.03).all()
    assert (least - 4 * errors <= total).all()
    assert (total <= most + 4 * errors).all()


def with_heavy_tails(rng, n_rows, n_heavy=1):
    """Rows of which the first groups have heavy tails, and the group of each last."""
    codes = np.repeat(np.arange(len(n_rows)), n_rows)
    rows = rng.standard_normal((len(codes), N_FEATURES))
    is_heavy = codes < n_heavy
    rows[is_heavy] = rng.standard_t(2, (is_heavy.sum(), N_FEATURES))
    return np.c_[rows, codes]


@pytest.mark.parametrize("n_sets", SETS)
def test_own_neighbors__alone_flag_a_small_group_with_heavy_tails(n_sets):
    """All rows together keep the promise, a group does not without its own calibration."""
    n_rows = sizes(40, 400)

    alone, with_own = (
        flagged_in_sets(
            in_groups(calibration="conformal", own=own), n_rows, n_sets,
            with_heavy_tails,
        ).sum(axis=0)
        for own in (("neighbors",), ("neighbors", "calibration"))
    )  # fmt: skip

    for i, alpha in enumerate(ALPHAS):
        _, most = flagged_band(n_sets, N_NEW, alpha, n_rows[0] // 2, RISK)
        assert with_own[i, 0] <= most < alone[i, 0]
        assert alone[i, 0] > 4 * alpha * n_sets * N_NEW


@pytest.mark.parametrize("n_sets", SETS)
@pytest.mark.parametrize("calibration", ["conformal", "loo"])
def test_own_neighbors__keep_the_promise_on_average_over_groups(calibration, n_sets):
    """Of new rows among which each group is as frequent as among the nominal ones."""
    n_rows, rng = sizes(40, 400), np.random.default_rng(20261129)
    model = in_groups(calibration=calibration, own=("neighbors",))

    with dask.config.set(scheduler="sync"):
        shares = np.array([
            [(p_values <= alpha).mean() for alpha in ALPHAS]
            for p_values in (
                model.set_params(random_state=seed)
                .fit(with_heavy_tails(rng, n_rows))
                .score_samples(with_heavy_tails(rng, n_rows))
                for seed in range(n_sets)
            )
        ])  # fmt: skip

    mean, error = shares.mean(axis=0), shares.std(axis=0) / math.sqrt(n_sets)
    assert (np.abs(mean - ALPHAS) <= 4 * error + 1 / n_rows.sum()).all()
    assert (error < 0.03 * np.array(ALPHAS)).all()


#: Groups, and sets of these.
MANY = [(1, 40), (30, 20), (1000, 4), (1, 400), (30, 200), (1000, 40)]


@pytest.mark.parametrize(("n_groups", "n_sets"), mostly_full(MANY, MANY[:3]))
def test_false_discoveries__of_all_groups_together_are_kept_rare(n_groups, n_sets):
    """Blocks of groups are independent, and within each dependence is positive."""
    mean, error, found = false_discoveries(
        n_groups, n_sets, own=("scale", "neighbors", "calibration")
    )

    assert mean <= Q + 4 * error
    assert error < 0.15 * Q
    assert found > 0.9  # or there was little to be false


@pytest.mark.parametrize(("n_groups", "n_sets"), mostly_full([MANY[1], MANY[4]], MANY[1:2]))
def test_false_discoveries__are_too_many_without_own_calibration(n_groups, n_sets):
    """New rows are as many in small groups, which have heavy tails, as in large ones."""
    mean, error, _ = false_discoveries(n_groups, n_sets, own=("scale", "neighbors"))

    assert mean >= 1.2 * Q + 4 * error


#: The level of false discoveries.
Q = 0.1


def false_discoveries(n_groups, n_sets, own):
    """Mean share of nominal rows among those flagged, its error, and the share found.

    The three largest groups, or one of each hundred, have anomalies.
    """
    rng, n_rows = np.random.default_rng(20261129), sizes(1000, 100, n_groups)[::-1]
    n_new = np.full(n_groups, 20 if n_groups > 1 else 200)
    n_heavy, n_odd = n_groups // 2, np.zeros(n_groups, int)
    n_odd[-max(3, n_groups // 100) :] = max(20, n_groups // 5)
    model = LPE(by=[N_FEATURES], calibration="conformal", scale="standard", own=own)
    shares = []
    with dask.config.set(scheduler="sync"):
        for seed in range(n_sets):
            model.set_params(random_state=seed).fit(with_heavy_tails(rng, n_rows, n_heavy))
            nominal = with_heavy_tails(rng, n_new, n_heavy)
            odd = with_heavy_tails(rng, n_odd, n_heavy)
            odd[:, :-1] += 9
            is_flagged = false_discovery_control(
                model.score_samples(np.r_[nominal, odd]), q=Q
            )
            n_false, n_right = np.add.reduceat(is_flagged, [0, len(nominal)])
            shares.append((n_false / max(1, n_false + n_right), n_right / len(odd)))
    (mean, found), (error, _) = np.mean(shares, axis=0), np.std(shares, axis=0)
    return mean, error / math.sqrt(n_sets), found


def test_flagged_band__has_the_quantiles_of_a_sum():
    rng = np.random.default_rng(0)
    law = stats.betabinom(40, 3, 28)
    counts = law.rvs((20_000, 200), random_state=rng).sum(axis=1)

    least, most = flagged_band(200, 40, 0.1, 30, 1e-6)

    assert 0.9 * counts.min() < least < counts.min()
    assert counts.max() < most < 1.1 * counts.max()
    assert flagged_band(200, 40, 0.1, 8, 1e-6) == (0, 0)  # 1 / 9 is above 0.1
    assert flagged_band(1, 1, 0.29, 99, 0.285) == (0, 1)  # 29 of 100 ranks are flagged
    assert flagged_band(1, 1, 0.29, 99, 0.295) == (0, 0)
