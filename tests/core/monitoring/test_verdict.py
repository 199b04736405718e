"""The verdict on a run, the intervals told with it, and the state after it."""

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

from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.intervals import clopper_pearson_interval
from lpe_dask.monitoring.new_values import NewValueCounts, NominalColumn
from lpe_dask.monitoring.result import with_examples
from lpe_dask.monitoring.state import new_state
from lpe_dask.monitoring.verdict import update
from lpe_dask.pvalues.formulas import p_values

#: PValueBins of 2,000 calibration rows that all differ, and rows of a run.
M = 2000
BINS = PValueBins.of(np.arange(1, M + 1), 0.01, 0)
N = 4000


def first_state(bins=BINS, delta=0.01, *, is_exact=True):
    return new_state("a model", bins, delta, is_exact=is_exact)


def nominal(rng, n=N):
    """P-values of rows like those of the calibration."""
    return rng.integers(0, M + 1, n) / M


def shifted(rng, n=N, by=0.5):
    """P-values of normal rows whose mean shift by so many standard deviations."""
    return np.floor(stats.norm.sf(rng.standard_normal(n) + by) * (M + 1)) / M


def over_runs(runs, bins=BINS, state=None, **given):
    """What each run says, of p-values or of counts."""
    state = first_state(bins) if state is None else state
    said = []
    for i, run in enumerate(runs):
        counts = run if run.dtype == np.int64 else bins.count(run)
        said.append(update(state, bins, counts, f"run {i}", f"out/{i}", **given))
        state = said[-1].state
    return said


def verdicts(said):
    return [drift.verdict for drift in said]


# Evidence


def numbers(bulk, flagged=0, tail=0):
    """The counts of a run that has these rows in bulk bins."""
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


def test_update__plays_a_fair_game_over_two_runs():
    """All outcomes of two runs, with their chances: money is 1 on average."""
    bins = PValueBins(10, 0, 0.01, 0, 0, (1, 4, 5, 10))
    widths, mean, total = np.array([3, 1, 5]), 0.0, 0.0
    ways = [
        [bulk for bulk in itertools.product(range(n + 1), repeat=3) if sum(bulk) == n]
        for n in (4, 6)
    ]
    for first in ways[0]:
        state = update(first_state(bins), bins, numbers(first), "1").state
        for second in ways[1]:
            after = update(state, bins, numbers(second), "2").state
            chance = math.exp(
                log_chance(widths, first) + log_chance(widths + np.array(first), second)
            )
            total += chance
            mean += chance * math.exp(after["evidence"])

    assert total == pytest.approx(1, abs=1e-12)
    assert mean == pytest.approx(1, abs=1e-10)


def test_update__finds_a_change_and_says_since_when():
    rng = np.random.default_rng(0)

    said = over_runs([nominal(rng), nominal(rng), shifted(rng), shifted(rng)])

    assert verdicts(said) == ["no drift", "no drift", "drift", "drift"]
    since = {"run": "run 2", "output": "out/2", "number": 3}
    assert [drift.changed_since for drift in said] == [None, None, since, since]
    assert said[1].log10_evidence < math.log10(300) <= said[2].log10_evidence
    assert said[3].log10_evidence == said[2].log10_evidence
    assert said[2].reason == (
        "the distribution of p-values of non-anomalous rows has shifted"
    )
    record = said[3].state["runs"][2]  # what a picture of past runs needs
    assert record.pop("output") == "out/2"
    assert record == {name: said[2].as_json()[name] for name in record}


def test_update__takes_a_change_that_is_tolerated_or_over_for_one_that_fits():
    rng = np.random.default_rng(1)

    [tolerated] = over_runs([shifted(rng)], config=DriftConfig(shift=0.5))
    *_, over = said = over_runs([shifted(rng), shifted(rng), *[nominal(rng)] * 9])

    assert verdicts(said)[:2] == ["drift", "drift"]
    assert tolerated.shift_low > 0.02
    for drift in (tolerated, over):
        assert drift.verdict == "no drift"
        assert drift.changed_since["number"] == 1
    assert "by less than what is tolerated" in str(over)


def test_update__does_not_let_a_burst_of_anomalies_into_the_evidence():
    rng = np.random.default_rng(3)
    runs = [BINS.count(nominal(rng)) for _ in range(20)]
    n_burst = round(0.03 * N)
    bursts = [run + numbers([0] * 16, n_burst, n_burst) for run in runs]

    without, burst = over_runs(runs), over_runs(bursts)

    assert verdicts(burst) == ["no drift"] * 20
    for key in ("evidence", "wealth", "sums"):
        assert without[-1].state[key] == burst[-1].state[key]
    assert burst[-1].consecutive_excess_runs == 20
    assert without[-1].consecutive_excess_runs == 0
    assert "More such rows than promised in 20 runs in a row" in str(burst[-1])


# Flagged rows


def test_update__finds_far_too_many_flagged_rows_in_that_run():
    p = nominal(np.random.default_rng(4))
    p[: N // 5] = 0

    [drift] = over_runs([p])

    assert drift.verdict == "drift"
    assert drift.reason.startswith(
        f"{drift.flagged_share:.2%} of the rows have p <= 0.01: "
    )
    assert re.search(r"anomalies explain up to 7\.\d\d%$", drift.reason)
    assert f"{drift.reason}. Look at what has changed" in str(drift)
    assert drift.changed_since is None
    assert drift.flagged == (p <= 0.01).sum()
    assert drift.flagged_share == drift.flagged / N
    assert drift.flagged_between == clopper_pearson_interval(drift.flagged, N)


def test_update__finds_too_few_flagged_rows():
    rng = np.random.default_rng(5)

    said = over_runs([np.maximum(nominal(rng, 50_000), 0.02) for _ in range(2)])

    assert verdicts(said) == ["drift"] * 2
    expected = r"0\.00% of the rows have p <= 0\.01: at least 0\.\d\d% were expected"
    assert re.fullmatch(expected, said[0].reason)
    assert "No evidence of a change" in str(said[0])


@pytest.mark.parametrize("level", ["alpha", "tail"])
@pytest.mark.parametrize("run", [1, 2, 30])
def test_update__spends_a_24th_of_delta_on_each_limit_over_all_runs(run, level):
    """A limit is passed where so many rows have a probability below what a run may spend.

    A third of delta has eight parts: of two limits at two levels, one part each goes to
    where the rate of this model is.
    """
    error, n = 0.01 / 24, 100_000
    k = BINS.flag if level == "alpha" else BINS.edges[0]
    spent = error * 6 / math.pi**2 / run**2
    most = 1.25 * stats.beta.isf(error, k + 1, M - k) + 0.05
    least = 0.75 * stats.beta.ppf(error, k, M + 1 - k)
    too_many = next(
        x for x in range(int(most * n), n) if stats.binom.sf(x - 1, n, most) < spent
    )
    too_few = next(
        x for x in range(int(least * n), 0, -1) if stats.binom.cdf(x, n, least) < spent
    )
    state = {**first_state(), "tested_runs": run - 1}

    def verdict(x):
        flagged, tail = (x, max(x, n // 10)) if level == "alpha" else (n // 100, x)
        shares = BINS.widths / BINS.widths.sum()
        bulk = np.floor(shares * (n - tail)).astype(int)
        bulk[0] += n - tail - bulk.sum()
        return update(state, BINS, numbers(bulk, flagged, tail), "new").verdict

    assert [verdict(too_many - 1), verdict(too_many)] == ["no drift", "drift"]
    assert [verdict(too_few + 1), verdict(too_few)] == ["no drift", "drift"]


def test_update__finds_many_rows_between_alpha_and_the_bulk():
    """As many as anomalies explain are none too many, there and below alpha together."""
    rng = np.random.default_rng(20)

    def with_share(share):
        p = nominal(rng, 50_000)
        p[rng.random(len(p)) < share] = 0.05
        return p

    found = [over_runs([with_share(share)])[0] for share in (0.05, 0.2)]

    assert verdicts(found) == ["no drift", "drift"]
    assert re.match(r"\d\d\.\d\d% of the rows have p-values up to 0\.1: ", found[1].reason)


def test_update__counts_nights_in_a_row_with_more_flagged_rows():
    rng = np.random.default_rng(7)

    def burst(rng):
        return np.append(nominal(rng), np.zeros(120))

    runs = [burst, burst, nominal, burst, lambda rng: np.full(500, np.nan), burst]
    said = over_runs([draw(rng) for draw in runs])

    assert [drift.consecutive_excess_runs for drift in said] == [1, 2, 0, 1, 1, 2]


@given(m=st.integers(1, 10**6), alpha=st.floats(1e-4, 0.4))
def test_promised_between__is_around_what_is_promised(m, alpha):
    flag = min(m - 1, math.floor(alpha * m))
    bins = PValueBins(m, 0, alpha, flag, flag, (m,))
    counts = np.array([1, 0, 0, 1])

    low, high = update(first_state(bins), bins, counts, "1").promised_between

    assert 0 <= low < (flag + 1) / (m + 1) < high <= 1
    # The rate is between the flag-th and the next of m uniform numbers.
    assert flag == 0 or stats.binom.cdf(flag - 1, m, low) == pytest.approx(0.975)
    assert stats.binom.cdf(flag, m, high) == pytest.approx(0.025)


def test_promised_between__is_0_where_no_row_can_be_flagged():
    bins = PValueBins.of(np.arange(1, 51), 0.01, 1)

    [drift] = over_runs([np.tile(np.arange(1, 52), 2) / 51], bins)

    assert (drift.verdict, drift.flagged) == ("no drift", 0)
    assert drift.promised_between == (0, 0)


# Invalid input, and too little


def test_update__of_rows_that_are_all_equal_is_invalid_after_others():
    equal = np.full(N, 0.35)

    said = over_runs([equal] * 3)
    after = over_runs([nominal(np.random.default_rng(21)), equal, equal])

    assert verdicts(said) == ["drift"] * 3
    assert verdicts(after) == ["no drift", "invalid input", "invalid input"]
    assert after[1].reason.startswith("more than half of the rows are where")


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (np.full(1000, np.nan), "no p-value for any of 1,000 rows"),
        (np.full(1, np.nan), "no p-value for any of 1 rows"),
        (np.empty(0), "there are no rows"),
    ],
)
def test_update__of_an_invalid_run_only_remembers_it(p, reason):
    [before] = over_runs([nominal(np.random.default_rng(8))])

    drift = update(before.state, BINS, BINS.count(p), "invalid", "out/invalid")

    assert (drift.verdict, drift.reason, drift.number) == ("invalid input", reason, 1)
    assert drift.state["n_runs"] == 2
    assert {**drift.state, "runs": drift.state["runs"][:1], "n_runs": 1} == before.state
    verdicts_ = [run["verdict"] for run in drift.state["runs"]]
    assert verdicts_ == ["no drift", "invalid input"]
    sentence = f"{reason[0].upper()}{reason[1:]}"
    assert str(drift) == (
        f"invalid input: {sentence}. This run is excluded from the drift test."
    )


@pytest.mark.parametrize("n_rows", [1, 20, 99])
def test_update__of_few_rows_says_that_they_are_too_few(n_rows):
    rng = np.random.default_rng(22)

    said = over_runs([nominal(rng, n_rows) for _ in range(8)])

    n_seen = [min(i + 1, 7) * n_rows for i in range(8)]
    expected = ["no drift" if n >= 100 else "too few rows to test" for n in n_seen]
    assert verdicts(said) == expected
    assert f"have {n_rows} rows, of at least 100: too few to say" in str(said[0])
    assert f" of {n_rows} rows have p <= 0.01, 1.00% promised" in str(said[0])


# Where the first runs are the reference


def calibrated(runs, bins=BINS):
    return over_runs(runs, bins, first_state(bins, is_exact=False))


def test_update__tests_later_runs_against_the_first_1000_rows():
    rng = np.random.default_rng(23)
    sizes = (400, 599, 1, 400, 400)

    said = calibrated([nominal(rng, n) for n in sizes])

    assert verdicts(said) == ["calibrating"] * 3 + ["no drift"] * 2
    assert [drift.reference_rows for drift in said] == [400, 999, 1000, 1000, 1000]
    assert said[0].promised_between is None
    assert "have 400 rows so far, of at least 1,000" in str(said[0])
    assert "are tested against these 1,000 rows" in str(said[2])
    assert "by the first runs (95% interval, 1,000 rows)" in str(said[3])


def test_update__of_first_runs_adds_up_their_counts():
    rng = np.random.default_rng(24)
    runs = [nominal(rng, 600) for _ in range(3)]

    said = calibrated(runs)

    reference = BINS.count(np.concatenate(runs[:2]))[2:].tolist()
    assert said[-1].state["reference"] == reference
    assert said[-1].state["recent"] == [BINS.count(runs[2])[3:].tolist()]
    k, n = reference[0], sum(reference[1:])
    expected = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert said[-1].promised_between == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("includes_self", [0, 1])
def test_update__says_up_to_which_p_value_there_are_too_many(includes_self):
    bins = PValueBins.of(np.arange(1, 41), 0.05, includes_self)
    least = np.full(700, includes_self / (40 + includes_self))

    (said,) = over_runs([least], bins, first_state(bins, is_exact=False))

    largest = (bins.edges[0] + includes_self) / (40 + includes_self)
    assert f"have p-values up to {largest:.2g}, which few" in said.reason


@pytest.mark.parametrize("n_rows", [20, 700])
def test_update__tests_no_runs_against_one_that_is_wrong_from_the_start(n_rows):
    """In wrong units all p-values are 0; right runs are not to be like these."""
    rng = np.random.default_rng(27)
    wrong = [np.zeros(n_rows)] * 2

    said = calibrated([*wrong, nominal(rng, 700), nominal(rng, 700), nominal(rng, 700)])

    expected = ["drift"] * 2 + ["calibrating"] * 2 + ["no drift"]
    assert verdicts(said) == expected
    assert said[0].reason == (
        "100.00% of the rows have p-values up to 0.1, which few nominal rows have"
    )
    assert "Later runs are not tested against this one." in str(said[0])
    assert said[1].reference_rows == 0
    assert said[-1].reference_rows == 1400


def test_update__has_no_evidence_from_bins_that_rows_never_reach():
    """With "loo" new rows equal to nominal ones may all have the largest p-values."""
    rng = np.random.default_rng(30)
    for shares in ([0.2, 0.8], [0.9, 0.1], [1.0, 0.0]):
        tail, last = shares
        bulk = len(BINS.widths)

        def run(tail=tail, last=last, bulk=bulk):
            n_tail, n_last = rng.multinomial(1000, [tail, last])
            return numbers([0] * (bulk - 1) + [n_last], n_tail // 2, n_tail)

        said = over_runs([run() for _ in range(40)], state=first_state(is_exact=False))

        assert max(drift.log10_evidence for drift in said) <= 0.5
        assert (
            {*verdicts(said)[2:]} <= {"no drift", "drift"} if tail > 0.5 else {"no drift"}
        )


def anomalous(rng):
    return np.where(rng.random(1200) < 0.4, 0, nominal(rng, 1200))


#: Runs, and their verdicts. With "loo" rows among tight groups are unlike the calibration
#: rows from the start, and do not change in time.
SERIES = {
    "many anomalies": (
        lambda rng: [anomalous(rng) for _ in range(5)],
        ["calibrating"] + ["no drift"] * 4,
    ),
    "unlike calibration rows": (
        lambda rng: [shifted(rng, 2000, 0.4) for _ in range(12)],
        ["calibrating"] + ["no drift"] * 11,
    ),
    "invalid": (lambda rng: [np.empty(0), np.full(50, np.nan)], ["invalid input"] * 2),
}


@pytest.mark.parametrize("name", SERIES)
def test_update__of_first_runs_that_are_no_calibration_rows(name):
    make, expected = SERIES[name]

    said = calibrated(make(np.random.default_rng(25)))

    assert verdicts(said) == expected
    assert (said[-1].reference_rows == 0) == (name == "invalid")


def test_update__finds_a_change_of_rows_unlike_calibration_rows():
    rng = np.random.default_rng(25)

    said = calibrated([shifted(rng, 2000, by) for by in [0.4] * 4 + [0.0] * 2])

    assert verdicts(said)[-1] == "drift"
    assert said[-1].changed_since["number"] >= 5


@pytest.mark.parametrize("includes_self", [0, 1])
@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_update__of_hardly_any_calibration_rows(m, alpha, includes_self):
    """Twice alpha may be above 1: then no row is an ordinary one."""
    bins, rng = (
        PValueBins.of(np.arange(1, m + 1), alpha, includes_self),
        np.random.default_rng(0),
    )
    runs = [
        (rng.integers(0, m + 1, n) + includes_self) / (m + includes_self)
        for n in (1, 3, 100, 10_000, 10**6)
    ]

    said = over_runs(runs, bins)

    assert verdicts(said) == ["too few rows to test"] * 2 + ["no drift"] * 3
    for drift, run in zip(said, runs, strict=True):
        low, high = drift.promised_between
        assert 0 <= low <= high <= 1
        assert drift.flagged == (run <= alpha).sum()
        assert "nan" not in str(drift)
    assert bins.edges[-1] == m
    assert 2 * alpha < 1 or bins.edges == (m,)


# Values that no nominal row has

COLUMNS = [
    NominalColumn("amount", 2000),
    NominalColumn("region", 2000, (0, 0)),
    NominalColumn("city", 2000, (300, 100)),
]


def with_unseen(state, unseen, missing=(0, 0, 0), n=N, **given):
    counts = NewValueCounts(n, np.array(missing), np.array(unseen))
    p = BINS.count(np.linspace(0, 1, n))
    return update(state, BINS, p, columns=COLUMNS, unseen=counts, **given)


def test_update__reports_unseen_values_beyond_chance():
    drift = with_unseen(first_state(), (40, 200, 800), (7, 0, 0))

    values = {of.column: of for of in drift.unseen_values}
    assert [(of.missing, of.unseen) for of in values.values()] == [
        (7, 40), (0, 200), (0, 800),
    ]  # fmt: skip
    assert [of.is_reported for of in values.values()] == [True, True, False]
    assert drift.verdict == "no drift"
    assert "amount: 40 rows are outside the nominal range" in str(drift)
    assert "region: 200 rows have values that no nominal row has" in str(drift)
    assert "city" not in str(drift)
    told = with_examples(drift, lambda column: {"region": ["west", "far"]}[column])
    assert "region: 200 rows have values that no nominal row has: west, far. " in str(told)


def test_update__takes_many_unseen_values_for_drift_at_once():
    """Also while the first runs are gathered."""
    for is_exact in (True, False):
        drift = with_unseen(first_state(is_exact=is_exact), (0, N // 10, 0))

        assert drift.verdict == "drift"
        assert drift.reason == (
            "more than 5% of the rows have values that no nominal row has (region)"
        )
    few = DriftConfig(anomalies=0.5)
    assert with_unseen(first_state(), (0, N // 10, 0), config=few).verdict == "no drift"


def test_update__names_three_columns_and_how_many_more():
    columns = [NominalColumn(f"c{i}", 5000) for i in range(5)]
    counts = NewValueCounts(1000, np.zeros(5, int), np.full(5, 40))

    drift = update(
        first_state(), BINS, BINS.count(np.linspace(0, 1, 1000)), columns=columns,
        unseen=counts,
    )  # fmt: skip

    assert "c2: 40 rows are outside the nominal range. 2 more columns have" in str(drift)
    assert "c3" not in str(drift)


# Ties


TIED = {
    "one value": lambda rng, n: np.ones(n),
    "two values": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "few values": lambda rng, n: rng.integers(0, 10, n).astype(float),
    "zipf": lambda rng, n: rng.zipf(1.5, n).clip(max=10**6).astype(float),
}


@pytest.mark.parametrize("kind", TIED)
@pytest.mark.parametrize("includes_self", [0, 1])
def test_update__takes_tied_statistics(kind, includes_self):
    rng, n_models, n_alarms = np.random.default_rng(10), 40, 0
    for _ in range(n_models):
        calibration = np.sort(TIED[kind](rng, 300))

        def measured(statistic, calibration=calibration):
            return p_values(statistic, calibration, includes_self=includes_self)

        ranks = np.rint(measured(calibration) * (300 + includes_self)).astype(int)
        bins = PValueBins.of(ranks - includes_self, 0.01, includes_self)
        runs = [measured(TIED[kind](rng, n)) for n in (1, 20, 3000, 3000, 50_000)]
        said = over_runs(runs, bins)
        n_alarms += "drift" in verdicts(said)

    assert n_alarms <= 1
    assert not any("fewer" in (drift.reason or "") for drift in said)
    has_bets = len(bins.widths) > 1
    assert (said[-1].log10_evidence == 0) == (not has_bets)
    few = "Too few distinct p-values to test for a shift"
    assert (few in str(said[-1])) == (not has_bets)


def test_update__of_rows_beyond_a_constant_calibration():
    calibration = np.zeros(500)
    bins = PValueBins.of(np.full(500, 500), 0.01, 0)

    [drift] = over_runs([p_values(np.ones(400), calibration)], bins)

    assert drift.verdict == "drift"
    assert drift.reason.startswith("100.00% of the rows have p <= 0.01: ")


# The state


def test_update__changes_nothing_that_is_given():
    state = over_runs([nominal(np.random.default_rng(11))])[-1].state
    counts = BINS.count(shifted(np.random.default_rng(12)))
    kept = copy.deepcopy((state, counts.tolist()))

    drift = update(state, BINS, counts, "new")

    assert (state, counts.tolist()) == kept
    assert drift.state != state


def test_state__keeps_200_runs_and_7_runs():
    counts = BINS.count(np.linspace(0, 1, 50))
    state = first_state()
    for i in range(203):
        state = update(state, BINS, counts, str(i)).state

    assert [run["run"] for run in state["runs"]] == [str(i) for i in range(3, 203)]
    assert len(state["recent"]) == 7
    assert sum(state["sums"]) + 7 * sum(counts[4:]) == 203 * sum(counts[4:])
    assert len(json.dumps(state)) < 100_000


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
    yield "unseen long", {**whole, "unseen": [1]}
    yield "unknown key", {**whole, "more": 1}


def without_or_wrong(part, name):
    yield {key: value for key, value in part.items() if key != name}
    yield {**part, name: {}}
    yield {**part, name: math.nan}


#: What a state may be without, or may be: nothing is computed with it that could fail.
ALLOWED = {
    "counted_runs missing", "tested_runs missing", "recent missing", "evidence missing",
    "change missing", "n_runs missing", "known missing", "unseen missing", "known=[]",
    "unseen=[]",
    "consecutive_excess_runs missing", "runs missing", "recent=[]", "runs=[]",
    "change=None", "evidence=-1", "model=much", "reference=None", "unknown key",
    "groups missing", "groups=None",
}  # fmt: skip


def test_update__refuses_a_damaged_state_in_words():
    rng = np.random.default_rng(17)
    whole = over_runs([nominal(rng) for _ in range(8)] + [shifted(rng)])[-1].state
    counts, said = BINS.count(np.linspace(0, 1, 200)), {}

    for what, state in damaged(whole):
        try:
            update(state, BINS, counts, "new")
        except ValueError as error:
            said[what] = str(error)
        else:
            said[what] = None

    assert {what for what, message in said.items() if message is None} == ALLOWED
    for message in filter(None, said.values()):
        assert re.fullmatch(
            r"(the state|this) .* \(.*\)\. Start anew .*|.*another model.*", message
        )


#: What is no state, or one of another model or version, and what is said.
NO_STATES = {
    "None": (None, ""), "3": (3, ""), "text": ("a state", ""), "list": ([1], ""),
    "pairs": ([(1, 2)], ""), "no names": ({1: 2}, ""), "empty": ({}, ""),
    "rows": (first_state(PValueBins.of(np.arange(1, M + 2), 0.01, 0)), "another model"),
    "alpha": (first_state(PValueBins.of(np.arange(1, M + 1), 0.02, 0)), "another model"),
    "bins": (
        first_state(PValueBins.of(np.arange(1, M + 1) // 3 * 3, 0.01, 0)), "another model"
    ),
    "later": (
        {**first_state(), "format": 2, "more": 1},
        "format 2, and this version knows format 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_STATES)
def test_update__refuses_what_is_no_state_of_this_model(name):
    state, message = NO_STATES[name]

    with pytest.raises(ValueError, match=rf"{message}.*Start anew \(state=None\)\.$"):
        update(state, BINS, BINS.count(np.array([0.5])), "1")


# What is told


def test_moved__is_the_largest_difference_of_the_distribution_functions():
    bins = PValueBins(100, 0, 0.01, 1, 1, (20, 40, 60, 100))
    before = update(first_state(bins), bins, numbers([30, 30, 60]), "1")

    drift = update(before.state, bins, numbers([60, 30, 30]), "2")

    assert before.shift == before.recent_shift == 0
    assert drift.shift == pytest.approx(0.25)
    assert drift.recent_shift == pytest.approx(0.125)
    assert drift.shift > drift.shift_low
    edges = [(20, 80, 60, 120), (40, 80, 90, 120)]
    assert drift.shift_low == pytest.approx(right_limit(edges))


def right_limit(edges):
    """The largest gap between two shares below an edge, but for what all may be off."""
    most, gaps = stats.norm.isf(0.05 / 2 / len(edges)), [0.0]
    for k, n, x, m in edges:
        pooled = (k + x) / (n + m)
        deviation = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        gaps.append(abs(k / n - x / m) - most * deviation)
    return max(gaps)


def test_moved__of_two_bulk_cells_of_one_and_of_no_rows():
    two, one = (
        PValueBins(100, 0, 0.01, 1, 1, (20, 60, 100)),
        PValueBins(100, 0, 0.01, 1, 1, (20, 100)),
    )

    shift = update(first_state(two), two, numbers([30, 10]), "1")
    alone = update(first_state(one), one, numbers([40]), "1")
    none = update(first_state(two), two, numbers([0, 0], tail=10), "1")

    assert shift.shift == pytest.approx(0.25)
    assert (alone.shift, alone.shift_low, none.shift, none.shift_low) == (0, 0, 0, 0)


def test_drift__is_all_there_as_json():
    rng = np.random.default_rng(18)
    runs = [nominal(rng), shifted(rng), np.empty(0), np.full(5, np.nan), nominal(rng, 5)]
    said = over_runs(runs)
    said += calibrated([nominal(rng, 700) for _ in range(3)])
    said.append(with_examples(with_unseen(first_state(), (40, 120, 800)), lambda _: ["a"]))

    for drift in said:
        content = drift.as_json()

        assert json.loads(json.dumps(content, allow_nan=False)) == content
        names = {field.name for field in dataclasses.fields(drift)}
        assert set(content) == names | {"text"}
        assert content["text"] == str(drift)
        assert "None" not in str(drift)


def test_drift__tells_what_was_found_beside_what_is_promised():
    rng = np.random.default_rng(19)
    fits, drifts, later = over_runs([nominal(rng), shifted(rng), shifted(rng)])

    assert str(fits).startswith(
        f"no drift: {fits.flagged_share:.2%} have p <= 0.01 (95% interval: "
    )
    assert "1.00% promised (95% interval by 2,000 calibration rows: " in str(fits)
    assert f"differs by {fits.shift:.2%} in this run. No" in str(fits)
    assert f"in this run (with 95% confidence by at least {drifts.shift_low:.2%})" in str(
        drifts
    )
    assert str(fits).endswith("No evidence of a change.")
    assert str(drifts).startswith("drift: ")
    assert f"by {later.recent_shift:.2%} in the last 3 runs. Evidence" in str(later)
    assert "Evidence of a change since run 1. The distribution of p-values" in str(drifts)
    assert str(drifts).endswith("Look at what has changed, and fit the model again.")


def test_update__names_a_run_by_its_number():
    first = update(first_state(), BINS, BINS.count(np.linspace(0, 1, 200)))
    second = update(first.state, BINS, BINS.count(np.linspace(0, 1, 200)))

    assert [run["run"] for run in second.state["runs"]] == ["run 1", "run 2"]
    many = update({**second.state, "n_runs": 400}, BINS, BINS.count(np.empty(0)))
    assert many.run == "run 401"


def test_config__may_be_0_but_for_delta():
    least = DriftConfig(np.float64(1e-9), tolerance=0, anomalies=0, shift=0)

    assert DriftConfig(tolerance=3).tolerance == 3
    assert least.delta == 1e-9
    with pytest.raises(ValueError, match=r"must be a number above 0 and below 1\."):
        DriftConfig(delta=0)
    with pytest.raises(ValueError, match=r"must be a number of at least 0\."):
        DriftConfig(tolerance=-1)
