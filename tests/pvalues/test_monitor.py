"""The verdict on a night, the intervals told with it, and the state after it."""

import copy
import dataclasses
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lpe_dask.pvalues import (
    Tolerances,
    new_state,
    phi_of,
    share_between,
    update,
)
from lpe_dask.pvalues.cells import Cells
from lpe_dask.pvalues.formulas import p_values

#: Cells of 2,000 calibration rows that all differ, and rows of a night.
M = 2000
CELLS = Cells.of(np.arange(1, M + 1), 0.01, 0)
N = 4000


def first_state(cells=CELLS, phi=1.0, delta=0.01):
    return new_state("a model", cells, phi, delta)


def nominal(rng, n=N):
    """P-values of rows like those of the calibration."""
    return rng.integers(0, M + 1, n) / M


def shifted(rng, n=N, by=0.5):
    """P-values of normal rows whose mean moved by so many standard deviations."""
    return np.floor(stats.norm.sf(rng.standard_normal(n) + by) * (M + 1)) / M


def over_nights(nights, cells=CELLS, state=None, **given):
    """What each night says, of p-values or of counts."""
    state = first_state(cells) if state is None else state
    said = []
    for i, night in enumerate(nights):
        counts = night if night.dtype == np.int64 else cells.count(night)
        said.append(update(state, cells, counts, f"run {i}", f"out/{i}", **given))
        state = said[-1].state
    return said


def verdicts(said):
    return [drift.verdict for drift in said]


# Evidence


def numbers(bulk, flagged=0, tail=0):
    """The counts of a night that has these rows in bulk cells."""
    return np.array([tail + sum(bulk), 0, flagged, tail, *bulk])


def log_chance(urn, counts):
    """By the Dirichlet-multinomial law."""
    n = sum(counts)
    terms = [
        math.lgamma(a + k) - math.lgamma(a) - math.lgamma(k + 1)
        for a, k in zip(urn, counts, strict=True)
    ]
    both = math.lgamma(sum(urn)) - math.lgamma(sum(urn) + n) + math.lgamma(n + 1)
    return both + math.fsum(terms)


@pytest.mark.parametrize("phi", [1.0, 2.0, 7.0])
def test_update__plays_a_fair_game_over_two_nights(phi):
    """All outcomes of two nights, with their chances: money is 1 on average."""
    cells = Cells(10, 0, 0.01, 0, 0, (1, 4, 5, 10))
    widths, mean, total = np.array([3, 1, 5]), 0.0, 0.0
    ways = [
        [bulk for bulk in itertools.product(range(n + 1), repeat=3) if sum(bulk) == n]
        for n in (4, 6)
    ]
    for first in ways[0]:
        state = update(first_state(cells, phi), cells, numbers(first), "1").state
        for second in ways[1]:
            after = update(state, cells, numbers(second), "2").state
            chance = math.exp(
                log_chance(widths / phi, first)
                + log_chance(widths / phi + np.array(first), second)
            )
            total += chance
            mean += chance * math.exp(after["evidence"])

    assert total == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(1, abs=1e-10)


def test_update__finds_a_change_and_says_since_when():
    rng = np.random.default_rng(0)

    said = over_nights([nominal(rng), nominal(rng), shifted(rng), shifted(rng)])

    assert verdicts(said) == ["fits", "fits", "drifting", "drifting"]
    since = {"run": "run 2", "output": "out/2", "night": 3}
    assert [drift.changed_since for drift in said] == [None, None, since, since]
    assert said[1].log10_evidence < math.log10(200) <= said[2].log10_evidence
    assert said[3].log10_evidence == said[2].log10_evidence
    assert said[2].reason == "ordinary rows rank elsewhere than nominal ones"


def test_update__fits_again_once_ordinary_rows_are_back():
    rng = np.random.default_rng(1)
    nights = [shifted, shifted] + [nominal] * 9

    said = over_nights([draw(rng) for draw in nights])

    assert verdicts(said)[:2] == ["drifting", "drifting"]
    assert verdicts(said)[-1] == "fits"
    assert said[-1].changed_since["night"] == 1
    assert "by less than what is tolerated" in str(said[-1])


def test_update__takes_a_change_that_is_tolerated_for_one_that_fits():
    rng = np.random.default_rng(2)

    said = over_nights([shifted(rng)], tolerances=Tolerances(moved=0.5))

    assert verdicts(said) == ["fits"]
    assert said[0].changed_since["night"] == 1
    assert said[0].moved_low > 0.02


def test_update__does_not_let_a_burst_of_anomalies_into_the_evidence():
    rng = np.random.default_rng(3)
    nights = [CELLS.count(nominal(rng)) for _ in range(20)]
    n_burst = round(0.03 * N)
    bursts = [night + numbers([0] * 16, n_burst, n_burst) for night in nights]

    without, burst = over_nights(nights), over_nights(bursts)

    assert verdicts(burst) == ["fits"] * 20
    for key in ("evidence", "wealth", "sums", "recent"):
        assert without[-1].state[key] == burst[-1].state[key]
    assert burst[-1].excess_nights == 20
    assert without[-1].excess_nights == 0
    assert "more flagged than promised for 20 nights" in str(burst[-1]).lower()


# Flagged rows


def test_update__finds_far_too_many_flagged_rows_that_night():
    p = nominal(np.random.default_rng(4))
    p[: N // 5] = 0

    [drift] = over_nights([p])

    assert drift.verdict == "drifting"
    assert drift.reason.startswith("more rows are flagged than ")
    assert drift.changed_since is None
    assert drift.flagged == (p <= 0.01).sum()
    assert drift.flagged_share == drift.flagged / N
    assert drift.flagged_between == share_between(drift.flagged, N)


def test_update__finds_too_few_flagged_rows():
    rng = np.random.default_rng(5)

    said = over_nights([np.maximum(nominal(rng, 50_000), 0.02) for _ in range(2)])

    assert verdicts(said) == ["drifting"] * 2
    assert said[0].reason.startswith("fewer rows are flagged than ")
    assert "No evidence of a change of ordinary rows" in str(said[0])


@pytest.mark.parametrize("phi", [1.0, 2.0])
@pytest.mark.parametrize("night", [1, 2, 30])
def test_update__spends_an_eighth_of_delta_on_either_limit_over_all_nights(night, phi):
    """A limit is passed where so many rows have a probability below what a night may spend.

    Of each of the two limits, another eighth goes to where the rate of this model is.
    """
    error, n, k = 0.01 / 8, 100_000, CELLS.flag
    spent = error * 6 / math.pi**2 / night**2
    most = 1.25 * stats.beta.isf(error, (k + 1) / phi, (M - k) / phi) + 0.05
    least = 0.75 * stats.beta.ppf(error, k / phi, (M + 1 - k) / phi)
    too_many = next(
        x for x in range(int(most * n), n) if stats.binom.sf(x - 1, n, most) < spent
    )
    too_few = next(
        x for x in range(int(least * n), 0, -1) if stats.binom.cdf(x, n, least) < spent
    )
    state, bulk = {**first_state(phi=phi), "nights": night - 1}, CELLS.widths * (n // M)

    def verdict(flagged):
        counts = numbers(bulk, flagged, n - bulk.sum())
        return update(state, CELLS, counts, "new").verdict

    assert [verdict(too_many - 1), verdict(too_many)] == ["fits", "drifting"]
    assert [verdict(too_few + 1), verdict(too_few)] == ["fits", "drifting"]


@pytest.mark.parametrize(("share", "verdict"), [(0.04, "fits"), (0.09, "drifting")])
def test_update__allows_for_anomalies_beside_false_alarms(share, verdict):
    rng = np.random.default_rng(6)
    p = nominal(rng, 100_000)
    p[rng.random(len(p)) < share] = 0

    [allowed] = over_nights([p])
    [none] = over_nights([p], tolerances=Tolerances(anomalies=0))

    assert (allowed.verdict, none.verdict) == (verdict, "drifting")


def test_update__counts_nights_in_a_row_with_more_flagged_rows():
    rng = np.random.default_rng(7)

    def burst(rng):
        return np.append(nominal(rng), np.zeros(120))

    nights = [burst, burst, nominal, burst, lambda rng: np.full(500, np.nan), burst]
    said = over_nights([draw(rng) for draw in nights])

    assert [drift.excess_nights for drift in said] == [1, 2, 0, 1, 1, 2]


@given(data=st.data(), n=st.integers(1, 10**8))
def test_share_between__is_the_interval_of_clopper_and_pearson(data, n):
    flagged = data.draw(st.integers(0, n) | st.sampled_from([0, n]))

    low, high = share_between(flagged, n)

    assert 0 <= low <= flagged / n <= high <= 1
    if n < 10**4:
        expected = stats.binomtest(flagged, n).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    elif 0 < flagged < n:
        assert stats.binom.sf(flagged - 1, n, low) == pytest.approx(0.025, rel=1e-5)
        assert stats.binom.cdf(flagged, n, high) == pytest.approx(0.025, rel=1e-5)


@given(m=st.integers(1, 10**6), alpha=st.floats(1e-4, 0.4), phi=st.sampled_from([1, 2, 30]))
def test_promised_between__is_around_what_is_promised(m, alpha, phi):
    flag = min(m - 1, math.floor(alpha * m))
    cells = Cells(m, 0, alpha, flag, flag, (m,))
    counts = np.array([1, 0, 0, 1])

    low, high = update(first_state(cells, phi), cells, counts, "1").promised_between

    assert 0 <= low < (flag + 1) / (m + 1) < high <= 1
    if phi == 1:  # the rate is between the flag-th and the next of m uniform numbers
        assert flag == 0 or stats.binom.cdf(flag - 1, m, low) == pytest.approx(0.975)
        assert stats.binom.cdf(flag, m, high) == pytest.approx(0.025)


def test_promised_between__is_0_where_no_row_can_be_flagged():
    cells = Cells.of(np.arange(1, 51), 0.01, 1)

    [drift] = over_nights([np.arange(1, 52) / 51], cells)

    assert (drift.verdict, drift.flagged) == ("fits", 0)
    assert drift.promised_between == (0, 0)


# Broken input


def test_update__of_rows_that_are_all_equal_is_broken():
    said = over_nights([np.full(N, 0.35)] * 3)

    assert verdicts(said) == ["broken input"] * 3
    assert said[0].reason.startswith("more than half of the rows are where")


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (np.repeat([0.35, np.nan], [75, 25]), "25% of the rows have no p-value"),
        (np.full(1000, np.nan), "100% of the rows have no p-value"),
        (np.empty(0), "there are no rows"),
    ],
)
def test_update__of_a_broken_night_only_remembers_the_run(p, reason):
    [before] = over_nights([nominal(np.random.default_rng(8))])

    drift = update(before.state, CELLS, CELLS.count(p), "broken", "out/broken")

    assert drift.verdict == "broken input"
    assert drift.reason.startswith(reason)
    assert drift.night == 1
    assert {**drift.state, "runs": drift.state["runs"][:1]} == before.state
    assert [run["verdict"] for run in drift.state["runs"]] == ["fits", "broken input"]
    assert str(drift).startswith(f"broken input: {reason}")
    assert "this night does not count. Repair the input" in str(drift)


def test_update__of_few_rows_is_not_broken_and_tells_counts():
    drift = update(first_state(), CELLS, CELLS.count(np.full(99, np.nan)), "1")

    assert (drift.verdict, drift.flagged_share, drift.flagged_between) == (
        "fits",
        None,
        None,
    )
    assert "No row has a p-value, 1.00% promised" in str(drift)

    few = np.append(np.linspace(0, 1, 98), np.nan)
    drift = update(drift.state, CELLS, CELLS.count(few), "2")

    assert str(drift).startswith("fits: 1 of 98 rows flagged, 1.00% promised")
    assert drift.excess_nights == 0


@pytest.mark.parametrize(("limit", "verdict"), [(0.3, "fits"), (0.2, "broken input")])
def test_update__has_a_limit_of_rows_without_p_values(limit, verdict):
    p = nominal(np.random.default_rng(9))
    p[: N // 4] = np.nan

    [drift] = over_nights([p], tolerances=Tolerances(nan_limit=limit))

    assert drift.verdict == verdict
    assert (drift.rows, drift.rows_nan) == (N, N // 4)


# Ties


TIED = {
    "one value": lambda rng, n: np.ones(n),
    "two values": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "few values": lambda rng, n: rng.integers(0, 10, n).astype(float),
    "zipf": lambda rng, n: rng.zipf(1.5, n).clip(max=10**6).astype(float),
}


@pytest.mark.parametrize("kind", TIED)
@pytest.mark.parametrize("counts_itself", [0, 1])
def test_update__takes_tied_statistics(kind, counts_itself):
    rng, n_models, n_alarms = np.random.default_rng(10), 40, 0
    for _ in range(n_models):
        calibration = np.sort(TIED[kind](rng, 300))

        def measured(statistic, calibration=calibration):
            return p_values(statistic, calibration, counts_itself=counts_itself)

        ranks = np.rint(measured(calibration) * (300 + counts_itself)).astype(int)
        cells = Cells.of(ranks - counts_itself, 0.01, counts_itself)
        nights = [measured(TIED[kind](rng, n)) for n in (1, 20, 3000, 3000, 50_000)]
        said = over_nights(nights, cells)
        n_alarms += "drifting" in verdicts(said)

    assert n_alarms <= 1
    assert not any("fewer" in (drift.reason or "") for drift in said)
    has_bets = len(cells.widths) > 1
    assert (said[-1].log10_evidence == 0) == (not has_bets)
    assert ("too few different ones to tell" in str(said[-1])) == (not has_bets)


def test_update__of_rows_beyond_a_constant_calibration():
    calibration = np.zeros(500)
    cells = Cells.of(np.full(500, 500), 0.01, 0)

    [drift] = over_nights([p_values(np.ones(400), calibration)], cells)

    assert drift.verdict == "drifting"
    assert drift.reason.startswith("more rows are flagged")


# The state


def test_update__changes_nothing_that_is_given():
    state = over_nights([nominal(np.random.default_rng(11))])[-1].state
    counts = CELLS.count(shifted(np.random.default_rng(12)))
    kept = copy.deepcopy((state, counts.tolist()))

    drift = update(state, CELLS, counts, "new")

    assert (state, counts.tolist()) == kept
    assert drift.state != state


def test_state__keeps_200_runs_and_7_nights():
    counts = CELLS.count(np.linspace(0, 1, 50))
    state = first_state()
    for i in range(203):
        state = update(state, CELLS, counts, str(i)).state

    assert [run["run"] for run in state["runs"]] == [str(i) for i in range(3, 203)]
    assert len(state["recent"]) == 7
    assert sum(state["sums"]) + 7 * sum(counts[4:]) == 203 * sum(counts[4:])
    assert len(json.dumps(state)) < 100_000


def test_state__has_what_a_picture_of_past_nights_needs():
    [drift] = over_nights([nominal(np.random.default_rng(16))])

    assert drift.state["runs"] == [
        {
            "run": "run 0", "output": "out/0", "verdict": "fits", "reason": None,
            "night": 1, "rows": N, "flagged_share": drift.flagged_share,
            "moved": drift.moved_week, "flagged_between": list(drift.flagged_between),
            "log10_evidence": drift.log10_evidence,
        }
    ]  # fmt: skip


ANOTHER = {
    "calibration rows": Cells.of(np.arange(1, M + 2), 0.01, 0),
    "alpha": Cells.of(np.arange(1, M + 1), 0.02, 0),
    "cells": Cells.of(np.arange(1, M + 1) // 3 * 3, 0.01, 0),
}


@pytest.mark.parametrize("cells", ANOTHER.values(), ids=ANOTHER)
def test_update__refuses_the_state_of_another_model(cells):
    state = first_state(cells)

    with pytest.raises(ValueError, match=r"another model.*Start anew \(state=None\)"):
        update(state, CELLS, CELLS.count(np.array([0.5])), "1")


def damaged(whole):
    """States each of which is wrong in one place, and what is wrong."""
    wrong = [None, [], {}, "much", -1, math.nan, math.inf, [None], [[10**30]], [[-1]]]
    for key in whole:
        yield f"{key} missing", {k: value for k, value in whole.items() if k != key}
        for value in wrong:
            yield f"{key}={value}", {**whole, key: value}
    for name in whole["change"]:
        for part in without_or_wrong(whole["change"], name):
            yield f"change.{name}", {**whole, "change": part}
    for name in whole["runs"][0]:
        for part in without_or_wrong(whole["runs"][0], name):
            yield f"runs.{name}", {**whole, "runs": [part]}
    for key in ("sums", "wealth"):
        yield f"{key} short", {**whole, key: whole[key][:-1]}
    yield "recent short", {**whole, "recent": [[1]]}
    yield "unknown key", {**whole, "more": 1}


def without_or_wrong(part, name):
    yield {key: value for key, value in part.items() if key != name}
    yield {**part, name: {}}
    yield {**part, name: math.nan}


#: What a state may be without, or may be: nothing is computed with it that could fail.
ALLOWED = {
    "nights missing", "recent missing", "evidence missing", "change missing",
    "excess_nights missing", "runs missing", "recent=[]", "runs=[]", "change=None",
    "evidence=-1", "model=much",
}  # fmt: skip


def test_update__refuses_a_damaged_state_in_words():
    rng = np.random.default_rng(17)
    whole = over_nights([nominal(rng) for _ in range(8)] + [shifted(rng)])[-1].state
    counts, said = CELLS.count(np.linspace(0, 1, 200)), {}

    for what, state in damaged(whole):
        try:
            update(state, CELLS, counts, "new")
        except ValueError as error:
            said[what] = str(error)
        else:
            said[what] = None

    assert {what for what, message in said.items() if message is None} == ALLOWED
    for message in filter(None, said.values()):
        assert re.fullmatch(
            r"(the state|this) .* \(.*\)\. Start anew .*|.*another model.*", message
        )


@pytest.mark.parametrize("state", [None, 3, "a state", [1], [(1, 2)], {1: 2}, {}], ids=str)
def test_update__refuses_what_is_no_state(state):
    with pytest.raises(ValueError, match=r"Start anew \(state=None\)\.$"):
        update(state, CELLS, CELLS.count(np.array([0.5])), "1")


def test_update__tells_a_later_format_from_damage():
    state = {**first_state(), "format": 2, "more": 1}

    with pytest.raises(ValueError, match="format 2, and this version knows format 1"):
        update(state, CELLS, CELLS.count(np.array([0.5])), "1")


# What is told


def test_moved__is_the_largest_difference_of_the_distribution_functions():
    cells = Cells(100, 0, 0.01, 1, 1, (20, 40, 60, 100))
    before = update(first_state(cells), cells, numbers([30, 30, 60]), "1")

    drift = update(before.state, cells, numbers([60, 30, 30]), "2")

    assert before.moved == before.moved_week == 0
    assert drift.moved == pytest.approx(0.25)
    assert drift.moved_week == pytest.approx(0.125)
    assert drift.moved > drift.moved_low
    pooled = (20 + 60) / (80 + 120)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / 80 + 1 / 120))
    halfway = (40 + 90) / (80 + 120)
    other = math.sqrt(halfway * (1 - halfway) * (1 / 80 + 1 / 120))
    assert drift.moved_low == pytest.approx(max(0.25 - 2 * deviation, 0.25 - 2 * other))


def test_moved__of_two_bulk_cells_of_one_and_of_no_rows():
    two, one = (
        Cells(100, 0, 0.01, 1, 1, (20, 60, 100)),
        Cells(100, 0, 0.01, 1, 1, (20, 100)),
    )

    moved = update(first_state(two), two, numbers([30, 10]), "1")
    alone = update(first_state(one), one, numbers([40]), "1")
    none = update(first_state(two), two, numbers([0, 0], tail=10), "1")

    assert moved.moved == pytest.approx(0.25)
    assert (alone.moved, alone.moved_low, none.moved, none.moved_low) == (0, 0, 0, 0)


def test_drift__is_all_there_as_json():
    rng = np.random.default_rng(18)
    said = over_nights([nominal(rng), shifted(rng), np.empty(0), np.full(5, np.nan)])

    for drift in said:
        content = drift.as_json()

        assert json.loads(json.dumps(content, allow_nan=False)) == content
        names = {field.name for field in dataclasses.fields(drift)}
        assert set(content) == names | {"text"}
        assert content["text"] == str(drift)
        assert "None" not in str(drift)


def test_drift__tells_what_was_found_beside_what_is_promised():
    rng = np.random.default_rng(19)
    fits, drifts = over_nights([nominal(rng), shifted(rng)])

    assert str(fits).startswith(f"fits: {fits.flagged_share:.2%} flagged (between ")
    assert "1.00% promised (with 2,000 calibration rows between " in str(fits)
    assert f"{fits.moved_week:.2%} rank elsewhere" in str(fits)
    assert str(fits).endswith("No evidence of a change of ordinary rows.")
    assert str(drifts).startswith("drifting: ")
    assert "Evidence of a change since out/1 (night 2). " in str(drifts)
    assert str(drifts).endswith("look at what has changed, and fit the model again.")


def test_tolerances__may_be_0_but_for_delta():
    least = Tolerances(np.float64(1e-9), tolerance=0, anomalies=0, moved=0, nan_limit=0)

    assert Tolerances(tolerance=3).tolerance == 3
    assert least.delta == 1e-9


def test_phi__counts_rows_that_share_neighbors_for_less():
    assert phi_of("conformal", 30) == phi_of("conformal", None) == 1
    assert phi_of("loo", 30) == phi_of("loo", None) == 2
    assert [phi_of("split", k) for k in (1, 2, 30, None)] == [2, 2, 30, 100]
