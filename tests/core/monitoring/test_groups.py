"""Drift of groups: each by ranks in the group, a fair game whatever the mix of a run."""

import dataclasses
import itertools
import json
import math

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats

from choosing import mostly_full
from lpe_dask import LPE
from lpe_dask.model import fitted_of
from lpe_dask.model.detector import load
from lpe_dask.monitoring import group_state
from lpe_dask.monitoring.api import drift
from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.group_state import GroupStates
from lpe_dask.monitoring.monitor import DriftMonitor
from lpe_dask.monitoring.packed_arrays import pack, unpack
from lpe_dask.monitoring.share_limits import mean_limits
from lpe_dask.monitoring.watched_groups import N_GROUP_BINS, WatchedGroups
from lpe_dask.pvalues import Calibration, GroupStatistics

ALPHA = 0.05


def named(codes):
    return [f"site={code}" for code in codes]


class Groups:
    """Statistics of calibration rows in groups, and what a monitor makes of new ones.

    ``own`` is whether each group has its own calibration.
    """

    def __init__(self, values, codes, kind="conformal", own=True, graph="knn", most=1000):
        self.values, self.codes, self.own = values, codes, own
        self.graph, self.itself = graph, int(kind == "conformal")
        sizes = np.bincount(codes)
        order = np.argsort(values, kind="stable")
        if own:
            known = GroupStatistics.of(values, codes, len(sizes))
            self.calibration = Calibration.of_groups(graph, self.itself, None, known)
        else:
            self.calibration = Calibration.of(graph, self.itself, None, values[order])
        self.watched = WatchedGroups.of(
            self.calibration, None if own else codes[order], sizes, named, ALPHA, most
        )
        self.bins = PValueBins.of_calibration(self.calibration, ALPHA)

    def monitor(self, **config):
        return DriftMonitor.of(self.calibration, self.bins, watched=self.watched, **config)

    def p_values(self, statistic, codes):
        if not self.own:
            return self.calibration.function()(statistic, self.calibration.values)
        return self.calibration.groups.value.known.p_values(
            statistic, codes.astype(float), graph=self.graph, includes_self=self.itself
        )

    def counts(self, statistic, codes):
        """The counts of all rows, and of watched groups."""
        p_values = self.p_values(statistic, codes)
        return self.bins.count(p_values), self.watched.bins.count(p_values, codes)


def said_of(monitor, runs):
    """What is said of each run of counts, with and without groups."""
    state, said = None, []
    for run, (counts, of_groups) in enumerate(runs):
        given = {} if monitor.watched is None else {"groups": of_groups}
        said.append(monitor.update(state, counts, str(run), **given))
        state = json.loads(json.dumps(said[-1].state))
    return said


# Packed arrays


@given(
    npst.arrays(
        np.int64, npst.array_shapes(max_dims=3, max_side=5),
        elements=st.integers(-(2**63), 2**63 - 1),
    )
)  # fmt: skip
def test_pack__is_undone(numbers):
    np.testing.assert_array_equal(unpack(pack(numbers), numbers.shape), numbers)


BOMB = pack(np.zeros(10**6, np.int64))


@pytest.mark.parametrize(
    "text", ["", "a", "####", pack(np.arange(5))[:-8], pack(np.arange(6)), BOMB, None, 3]
)
def test_unpack__refuses_what_is_no_such_array(text):
    with pytest.raises(ValueError, match="packed array"):
        unpack(text, (5,))


# Counts


@pytest.mark.parametrize(
    ("graph", "kind", "own"),
    [*itertools.product(["knn", "radius"], ["conformal", "loo"], [True, False])],
)
def test_count__is_by_ranks_in_the_group(graph, kind, own):
    """With ties; where groups share a calibration, one has all of its rows flagged."""
    rng = np.random.default_rng(3)
    codes = rng.choice(7, 900, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.06, 0.04])
    far = (codes == 5) * (30 if graph == "knn" else -30)
    values = rng.integers(0, 40, 900) + 3.0 * codes + far
    groups = Groups(values, codes, kind, own, graph, most=6)
    new_codes = rng.integers(-1, 8, 2000)
    new = rng.integers(-2, 45, 2000) + 3.0 * new_codes
    p_values = np.full(2000, np.nan)
    is_known = (new_codes >= 0) & (new_codes < 7)
    p_values[is_known] = groups.p_values(new[is_known], new_codes[is_known])
    p_values[7] = np.nan
    given_codes = np.where(new_codes < 0, np.nan, new_codes)

    found = groups.watched.bins.count(p_values, given_codes)

    def rank(value, of_group):
        is_before = of_group >= value if graph == "knn" else of_group <= value
        return is_before.sum()

    expected = np.zeros((6, N_GROUP_BINS), int)
    assert groups.watched.bins.codes.tolist() == [0, 1, 2, 3, 4, 5]  # 6 is the smallest
    for code in range(6):
        of_group = values[codes == code]
        ranks = np.array([rank(value, of_group) for value in of_group])
        among = of_group if own else values
        of_all = np.array([rank(value, among) for value in of_group])
        n_places = len(among) + groups.itself
        above = ((of_all + 0) / n_places <= ALPHA - groups.itself / n_places + 1e-12).sum()
        level = max(ALPHA, above / len(of_group))
        edges = PValueBins.of(ranks, level, groups.itself).edges
        for value, p_value in zip(
            new[new_codes == code], p_values[new_codes == code], strict=True
        ):
            if np.isnan(p_value):
                continue
            place = np.searchsorted(edges, rank(value, of_group))
            is_flagged = p_value <= ALPHA
            expected[code, place + 1 - is_flagged] += 1
        widths = groups.watched.widths[code]
        assert widths[0] == above
        assert np.cumsum(widths[1:])[: len(edges)].tolist() == [e - above for e in edges]
        assert groups.watched.bins.n_bulk[code] == len(edges) - 1
    np.testing.assert_array_equal(found, expected)
    assert found.sum() > 1000
    parts = np.array_split(np.arange(2000), 7)
    added = sum(groups.watched.bins.count(p_values[i], given_codes[i]) for i in parts)
    np.testing.assert_array_equal(added, found)


# Evidence


def drawn(rng, sizes, n_rows, mix):
    """Statistics of rows of groups that differ in scale, and their groups."""
    codes = rng.choice(len(sizes), n_rows, p=mix)
    return rng.standard_normal(n_rows) ** 2 * 2.0**codes, codes


def calibration_of(rng, sizes, **given):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return Groups(rng.standard_normal(len(codes)) ** 2 * 2.0**codes, codes, **given)


SIZES = [400, 400, 200, 100, 100, 60, 40, 40]


def test_evidence__is_the_mean_of_that_of_each_group_by_itself():
    """Of each group, as of a model of it alone; logarithms are rounded down by 1 / 256."""
    rng, n_runs = np.random.default_rng(5), 6
    groups = calibration_of(rng, SIZES)
    runs = [drawn(rng, SIZES, 3000, rng.dirichlet(np.ones(8))) for _ in range(n_runs)]
    runs[5] = (runs[5][0] * np.where(runs[5][1] == 3, 0.5, 1), runs[5][1])

    said = said_of(groups.monitor(), [groups.counts(*run) for run in runs])

    logs = []
    for code in range(8):
        alone = Groups(groups.values[groups.codes == code], np.zeros(SIZES[code], int))
        monitor = DriftMonitor.of(alone.calibration, alone.bins, delta=1e-300)
        rows = [statistic[codes == code] for statistic, codes in runs]
        counts = [alone.counts(of, np.zeros(len(of), int)) for of in rows if len(of)]
        logs.append(said_of(monitor, counts)[-1].state["evidence"])
    expected = np.log(np.mean(np.exp(logs)))
    found = said[-1].state["evidence"]
    assert expected - 0.05 < found <= expected + 1e-9
    most = {of.group: of.log10_evidence for of in said[-1].groups.most_evidence}
    for code, log in enumerate(logs):
        assert most[f"site={code}"] == pytest.approx(log / math.log(10), abs=0.03)
    assert expected > 1


# Series


@pytest.mark.parametrize(
    ("kind", "own"),
    mostly_full(
        [("conformal", True), ("conformal", False), ("loo", True), ("loo", False)],
        [("conformal", True), ("loo", False)],
    ),
)
def test_update__of_mixes_that_vary_says_drift_as_rarely_as_promised(kind, own):
    """Nothing changes but how many rows each group has; nothing is tolerated.

    Of 100 series of each kind, 0 to 1 were drift by groups, but 92 to 100 pooled over
    groups; with what is tolerated by default 0, but 73 to 100.
    """
    rng, delta, n_series = np.random.default_rng([1, own]), 0.2, 15
    nothing = {"delta": delta, "tolerance": 0, "anomalies": 0, "shift": 0}
    n_false, n_pooled = 0, 0
    for _ in range(n_series):
        groups = calibration_of(rng, SIZES, kind=kind, own=own)
        mixes = rng.dirichlet(np.full(8, 0.3), 15)
        runs = [groups.counts(*drawn(rng, SIZES, 1500, mix)) for mix in mixes]
        said = said_of(groups.monitor(**nothing), runs)
        pooled = DriftMonitor.of(groups.calibration, groups.bins, **nothing)
        n_false += any(of.verdict == "drift" for of in said)
        n_pooled += any(of.verdict == "drift" for of in said_of(pooled, runs))
        assert {of.verdict for of in said} <= {"no drift", "drift", "calibrating"}

    assert n_false <= stats.binom.ppf(0.999, n_series, delta)
    assert n_pooled >= 0.7 * n_series


@pytest.mark.parametrize(("kind", "own"), [("conformal", False), ("loo", True)])
def test_update__names_the_group_that_has_changed(kind, own):
    rng = np.random.default_rng(2)
    groups, runs = calibration_of(rng, SIZES, kind=kind, own=own), []
    for run in range(14):
        statistic, codes = drawn(rng, SIZES, 3000, rng.dirichlet(np.full(8, 2.0)))
        statistic[(codes == 4) & (run >= 8)] *= 0.4  # less anomalous than before
        runs.append(groups.counts(statistic, codes))

    said = said_of(groups.monitor(), runs)

    verdicts = [of.verdict for of in said]
    assert verdicts[:8] == ["calibrating" if kind == "loo" else "no drift"] * (
        kind == "loo"
    ) + ["no drift"] * (8 - (kind == "loo"))
    last = said[-1]
    assert last.verdict == "drift"
    assert last.reason.endswith("rows has shifted (site=4)")
    assert (last.groups.changed, last.groups.names) == (1, "site=4")
    assert "Evidence of a change in site=4" in str(last)
    first = last.groups.most_evidence[0]
    assert (first.group, first.is_changed) == ("site=4", True)
    assert first.shift_low > 0.02
    assert (
        first.p_value < 0.01 / 3 < min(of.p_value for of in last.groups.most_evidence[1:])
    )
    assert 8 < last.changed_since["number"] <= 12
    assert (last.reference_rows is None) == (kind == "conformal")


def test_update__finds_a_small_group_whose_rows_are_all_anomalous():
    """No row is left in the bulk, and hardly any more of all rows are flagged."""
    rng = np.random.default_rng(4)
    groups = calibration_of(rng, SIZES)
    mix = np.array([*SIZES]) / sum(SIZES)
    statistic, codes = drawn(rng, SIZES, 3000, mix)
    before = groups.counts(statistic, codes)
    statistic[codes == 6] = 1e9

    said = said_of(groups.monitor(), [before, groups.counts(statistic, codes)])

    assert [of.verdict for of in said] == ["no drift", "drift"]
    assert said[1].reason.startswith("100.00% of the rows of site=6 have p <= 0.05: false")
    pooled = DriftMonitor.of(groups.calibration, groups.bins)
    counts = groups.counts(statistic, codes)
    assert said_of(pooled, [before, counts])[1].verdict == "no drift"


def test_update__of_most_rows_elsewhere_is_invalid_input():
    rng = np.random.default_rng(6)
    groups = calibration_of(rng, SIZES)
    mix = np.eye(8)[0]
    statistic, codes = drawn(rng, SIZES, 2000, np.ones(8) / 8)
    other = groups.counts(*drawn(rng, SIZES, 2000, mix))
    wrong = groups.counts(0 * statistic, codes)

    said = said_of(groups.monitor(), [groups.counts(statistic, codes), other, wrong])

    assert [of.verdict for of in said] == ["no drift", "no drift", "invalid input"]
    assert said[2].state["groups"] == said[1].state["groups"]


def test_update__calibrates_each_group_by_its_first_rows(monkeypatch):
    monkeypatch.setattr(group_state, "GROUP_CALIBRATION_ROWS", 300)
    rng = np.random.default_rng(7)
    groups = calibration_of(rng, [50, 50], kind="loo")
    runs = [drawn(rng, [50, 50], 1000, [share, 1 - share]) for share in (0.8, 0.9, 0.5, 1)]

    said = said_of(groups.monitor(), [groups.counts(*run) for run in runs])

    n = np.array([np.bincount(codes, minlength=2) for _, codes in runs])
    assert [of.verdict for of in said] == ["calibrating", *["no drift"] * 3]
    assert [of.groups.ready for of in said] == [1, 2, 2, 2]
    expected = [n[0].sum(), *[n[0].sum() + n[1, 1]] * 3]
    assert [of.reference_rows for of in said] == expected
    state = said[-1].state["groups"]
    kept = GroupStates.read(group_state.GroupsSection(**state), groups.watched)
    assert kept.runs[:, 0].tolist() == [3, 1]
    assert "1 of them still have fewer than 200 rows" in str(said[0])


def test_update__of_first_runs_with_small_p_values_is_no_reference():
    rng = np.random.default_rng(8)
    groups = calibration_of(rng, SIZES, kind="loo")
    statistic, codes = drawn(rng, SIZES, 3000, np.ones(8) / 8)

    said = said_of(
        groups.monitor(),
        [groups.counts(statistic * 50, codes), groups.counts(statistic, codes)],
    )

    assert [of.verdict for of in said] == ["drift", "calibrating"]
    assert "most anomalous nominal rows of their groups" in said[0].reason
    assert said[0].reference_rows == 0


def test_update__forgets_recent_rows_after_8_runs():
    """The rows that a shift is told by are those of the last 4 to 8 runs of a group."""
    rng = np.random.default_rng(9)
    groups = calibration_of(rng, [300])
    runs = [groups.counts(*drawn(rng, [300], 500 + run, [1.0])) for run in range(19)]

    said = said_of(groups.monitor(), runs)

    bulk = np.array([of_groups[0, 2:] for _, of_groups in runs])
    for run, of in enumerate(said, 1):
        state = group_state.GroupsSection(**of.state["groups"])
        kept = GroupStates.read(state, groups.watched)
        first = max(0, (run - 1) // 4 * 4 - 4)
        np.testing.assert_array_equal(
            kept.recent[0].sum(axis=0), bulk[first:run].sum(axis=0)
        )
        np.testing.assert_array_equal(kept.sums[0], bulk[:first].sum(axis=0))


def test_update__does_not_take_what_has_changed_for_the_reference():
    """However long a change lasts, it is one from what was before."""
    rng, said, state = np.random.default_rng(13), [], None
    groups = calibration_of(rng, [100, 100])
    monitor = groups.monitor()
    for run in range(40):
        statistic, codes = drawn(rng, [100, 100], 2000, [0.5, 0.5])
        statistic[(codes == 1) & (run >= 6)] *= 0.3
        counts, of_groups = groups.counts(statistic, codes)
        said.append(monitor.update(state, counts, groups=of_groups))
        state = said[-1].state
        kept = GroupStates.read(
            group_state.GroupsSection(**state["groups"]), groups.watched
        )
        if said[-1].groups.changed == 0:
            before = kept.sums[1].sum()

    assert "drift" in [of.verdict for of in said[6:9]]
    assert {of.verdict for of in said[9:]} == {"drift"}
    assert kept.sums[1].sum() == before
    assert kept.sums[0].sum() > 30_000 * 0.9 * 0.9


def test_state__of_1000_groups_is_small():
    rng = np.random.default_rng(10)
    sizes = np.full(1200, 50)
    codes = np.repeat(np.arange(1200), sizes)
    groups = Groups(rng.random(len(codes)), codes)
    runs = []
    for _ in range(3):
        new = rng.integers(0, 1200, 50_000)
        runs.append(groups.counts(rng.random(50_000), new))

    last = said_of(groups.monitor(), runs)[-1]

    assert len(json.dumps(last.state)) < 250_000
    assert (last.groups.watched, last.groups.not_watched) == (1000, 200)
    assert "1,000 groups are tested" in str(last)
    assert "the other 200, which are smaller, are not" in str(last)
    assert len(last.groups.most_evidence) == 20


def test_update__refuses_a_state_of_other_groups_or_a_damaged_one():
    rng = np.random.default_rng(11)
    groups = calibration_of(rng, SIZES)
    counts, of_groups = groups.counts(*drawn(rng, SIZES, 900, np.ones(8) / 8))
    monitor = groups.monitor()
    state = monitor.update(None, counts, groups=of_groups).state
    section = state["groups"]
    flipped = pack(-1 - unpack(section["sums"], (8, 16)))
    wrong = [
        state | {"groups": None},
        *(state | {"groups": section | {name: "abc"}} for name in section),
        state | {"groups": section | {"recent": flipped, "sums": flipped}},
        state | {"groups": section | {"evidence": pack(np.full((8, 2), -(2**20)))}},
        state | {"groups": {name: section[name] for name in list(section)[1:]}},
    ]
    for damaged in wrong:
        with pytest.raises(ValueError, match=r"Start anew \(state=None\)"):
            monitor.update(damaged, counts, groups=of_groups)
    other = calibration_of(rng, SIZES[:-1])
    with pytest.raises(ValueError, match="Start anew"):
        other.monitor().update(state, *map(np.copy, (counts,)), groups=of_groups[:-1])
    assert monitor.model != other.monitor().model


# Limits of shares


@pytest.mark.parametrize("is_exact", [True, False])
def test_mean_limits__hold_as_often_as_they_say(is_exact):
    rng, error, n_draws = np.random.default_rng(12), 0.05, 4000
    m, n = np.array([40, 40, 100, 2000]), np.array([500, 20, 900, 80])
    weights = n / n.sum()
    if is_exact:
        k = np.array([2, 0, 5, 100])
        shares = rng.beta(k + 1, m - k, (n_draws, 4))
        ks = np.tile(k, (n_draws, 1))
    else:
        shares = np.tile([0.02, 0.1, 0.5, 0.05], (n_draws, 1))
        ks = rng.binomial(m, shares)
    true = shares @ weights

    limits = np.array([mean_limits(n, of, m, error) for of in ks])

    allowed = stats.binom.ppf(0.9999, n_draws, error)
    assert (true < limits[:, 0]).sum() <= allowed
    assert (true > limits[:, 1]).sum() <= allowed
    assert limits[:, 1].max() < true.max() + 0.3


# `lpe_dask.drift`


def table(seed, n_rows=900, change=None):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((n_rows, 2)), columns=["x", "y"])
    mix = rng.dirichlet([4, 2, 1])
    frame["site"] = rng.choice(["a", "b", "c"], n_rows, p=mix)
    frame["hour"] = rng.integers(0, 2, n_rows)
    frame.loc[frame.site == "b", ["x", "y"]] += 5
    if change is not None:
        frame.loc[frame.site == change, "x"] += 1.5
    return frame


MODELS = {
    "all": {"own": ("scale", "neighbors", "calibration")},
    "neighbors": {"own": ("neighbors",)},
    "calibration": {"own": ("calibration",)},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    given = MODELS[request.param] | {"calibration": "conformal", "alpha": 0.1}
    return LPE(by=["site", "hour"], random_state=0, **given).fit(table(0, 3000))


KINDS = {
    "frame of the columns": lambda p, frame: (p, frame[["site", "hour"]]),
    "whole frame": lambda p, frame: (pd.Series(p), frame[["hour", "x", "site"]]),
    "array": lambda p, frame: (p.tolist(), frame[["site", "hour"]].to_numpy(object)),
    "Arrow": lambda p, frame: (p, pa.table(frame[["hour", "site"]])),
    "dict": lambda p, frame: (p, {"hour": [*frame.hour], "site": [*frame.site]}),
    "dask": lambda p, frame: (
        da.from_array(p, chunks=300),
        dd.from_pandas(frame, npartitions=3, sort=False),
    ),
    "dask array": lambda p, frame: (
        da.from_array(p, chunks=300),
        da.from_array(frame[["site", "hour"]].to_numpy(object), chunks=(300, 1)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_drift__takes_groups_of_any_kind(model, kind):
    frame = table(1)
    p_values = model.score_samples(frame)
    expected = drift(p_values, model, groups=frame[["site", "hour"]], run="1")
    p_given, groups = KINDS[kind](p_values, frame)

    found = drift(p_given, model, groups=groups, run="1")

    assert found == expected
    assert (found.verdict, found.rows) == ("no drift", 900)
    of_groups = {of.group: (of.rows, of.flagged) for of in found.groups.most_evidence}
    frame["is_flagged"] = p_values <= 0.1
    for (site, hour), rows in frame.groupby(["site", "hour"]):
        counts = len(rows), int(rows.is_flagged.sum())
        assert of_groups[f"site={site}, hour={hour}"] == counts


def test_drift__follows_groups_over_runs(model):
    state, said = None, []
    for run in range(5):
        frame = table(20 + run, 8000, change="c" if run > 2 else None)
        p_values = model.score_samples(frame)
        said.append(drift(p_values, model, state, groups=frame[["site", "hour"]]))
        state = json.loads(json.dumps(said[-1].state))

    assert [of.verdict for of in said[:3]] == ["no drift"] * 3
    assert "drift" in [of.verdict for of in said[3:]]
    assert {of.group[:6] for of in said[-1].groups.most_evidence if of.is_changed} <= {
        "site=c"
    }


def test_drift__goes_on_with_groups_of_a_model_from_disk(model, tmp_path):
    frame = table(3)
    groups = frame[["site", "hour"]]
    p_values = model.score_samples(frame)
    state = json.loads(json.dumps(drift(p_values, model, groups=groups, run="1").state))
    model.save(tmp_path / "model")

    stored = load(tmp_path / "model")

    expected = drift(p_values, model, state, groups=groups, run="2")
    assert drift(p_values, stored, state, groups=groups, run="2") == expected


def test_load__refuses_numbers_of_groups_that_there_are_not(tmp_path):
    LPE(by=["site"], own=("neighbors",)).fit(table(0)).save(tmp_path / "model")
    path = tmp_path / "model" / "group-codes.parquet"
    if not path.exists():  # versions of a folder have names of their own
        [path] = (tmp_path / "model").rglob("group-codes.parquet")
    codes = pd.read_parquet(path)
    pd.DataFrame({"code": codes["code"].replace(2, 3)}).to_parquet(path)

    with pytest.raises(ValueError, match="group-codes"):
        load(tmp_path / "model")


def test_drift__with_wrong_groups_says_what_to_give(model):
    frame = table(1)
    p_values = model.score_samples(frame)
    keys = frame[["site", "hour"]]
    lazy = da.from_array(p_values, chunks=300)
    parts = dd.from_pandas(keys, npartitions=2, sort=False)
    for given_p, groups, message in (
        (p_values, None, r"by \['site', 'hour'\], but groups=None. Give these columns"),
        (p_values, keys[:-1], r"shape \(899, 2\), but must be of shape \(900, 2\)"),
        (p_values, frame["site"], r"shape \(900, 1\), but"),
        (lazy, keys, "only one of p_values and groups is a dask collection"),
        (p_values, parts, "only one of p_values and groups is a dask collection"),
        (lazy, parts, "groups have 2 partitions, but the p-values 3"),
    ):
        with pytest.raises(ValueError, match=message):
            drift(given_p, model, groups=groups)
    plain = LPE(calibration="conformal").fit(frame[["x", "y"]])
    with pytest.raises(ValueError, match=r"does not divide rows into groups \(by=None\)"):
        drift(p_values, plain, groups=keys)


def test_watched__of_a_model_are_its_large_groups():
    frame = table(0, 600)
    frame.loc[:3, "site"] = "tiny"
    model = fitted_of(LPE(by=["site"], calibration="loo", alpha=0.1).fit(frame))

    watched = WatchedGroups.of_model(model, 0.1)

    assert watched.names == ["site=a", "site=b", "site=c"]
    assert watched.n_groups == 4
    private = WatchedGroups.of_model(model, 0.1, private=["site"])
    assert private.names == ["group 0", "group 1", "group 2"]
    assert private.identifier == watched.identifier
    assert WatchedGroups.of_model(dataclasses.replace(model, groups=None), 0.1) is None


def test_watched__without_a_known_law_is_tested_against_first_runs():
    """As of a model that does not know the groups of its calibration rows."""
    given = {"calibration": "conformal", "own": ("neighbors",)}
    model = fitted_of(LPE(by=["site"], random_state=0, **given).fit(table(0)))
    groups = dataclasses.replace(model.groups, calibration_codes=None)

    unknown = WatchedGroups.of_model(dataclasses.replace(model, groups=groups), 0.05)

    assert WatchedGroups.of_model(model, 0.05).is_exact
    assert not unknown.is_exact
    assert not unknown.widths.any()
    pooled = PValueBins.of_calibration(model.calibration, 0.05)
    p_values = np.random.default_rng(0).integers(1, pooled.n_calibration + 2, 500)
    p_values = p_values / (pooled.n_calibration + 1)
    found = unknown.bins.count(p_values, np.zeros(500))[0]
    counts = pooled.count(p_values)
    assert [found[0], found[:2].sum(), *found[2:]] == [counts[2], counts[3], *counts[4:]]
