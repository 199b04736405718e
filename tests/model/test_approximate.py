"""Models that miss neighbors: what is exact, what is certified, and what is repaired."""

import copy
import pickle
from dataclasses import replace
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from indexes import CORRUPTIONS, corrupted, right_lists
from lpe_dask import LPE
from lpe_dask.batch import fit
from lpe_dask.kernels import joined_lists, nn_descent
from lpe_dask.model import Checkpoint, audit, fit_model, fitting, tuning
from lpe_dask.model.certificate import ROUNDS, Quality, draws
from lpe_dask.model.fitting import choose_search
from lpe_dask.pvalues import false_discovery_control
from lpe_dask.search import (
    Guide,
    Needs,
    join,
    packing,
    plan_for,
    reference,
    spooled,
    stored,
)
from lpe_dask.tables import nominal
from lpe_dask.tasks import active_workers

#: Blocks of so many rows, so that small tables have several.
BLOCK_ROWS = 1280

#: Rows that one is listed with, and that it leads to: a search looks around at least at 64
#: rows of a block, and is to see only a part of it.
LISTED, DEGREE = 6, 8


@pytest.fixture(autouse=True)
def _small_blocks():
    with dask.config.set({"lpe-dask.block-rows": BLOCK_ROWS, "scheduler": "sync"}):
        yield


@pytest.fixture
def lists(monkeypatch):
    """Replace the lists of near rows: pynndescent takes half a minute to begin with."""

    def replace(function):
        monkeypatch.setattr(nn_descent, "neighbor_lists", function)

    def joined(of_rows):
        return joined_lists(of_rows[:, :LISTED], DEGREE)

    monkeypatch.setattr(packing, "joined_lists", joined)
    monkeypatch.setattr(stored, "DEGREE", DEGREE)
    replace(right_lists)
    return replace


def _rows(n_rows, seed, n_features=12):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((6, n_features))
    rng = np.random.default_rng(seed)
    noise = 0.1 * rng.standard_normal((n_rows, n_features))
    return np.sin(rng.standard_normal((n_rows, 6)) @ turn) + noise


NOMINAL, NEW = _rows(5000, 1), np.concatenate([_rows(1500, 2), 3 * _rows(60, 3)])


def _models(**arguments):
    """Return an approximate model, and the exact one that it is compared with."""
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0} | arguments
    return [
        LPE(**given, algorithm=algorithm).fit(NOMINAL)
        for algorithm in ("nn_descent", "brute")
    ]


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@pytest.mark.parametrize("calibration", ["loo", "split", "conformal"])
def test_alarms__are_those_of_the_exact_search(lists, calibration, aggregation):
    model, exact = _models(calibration=calibration, aggregation=aggregation)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)
    own, own_exact = model.p_values_, exact.p_values_

    np.testing.assert_array_equal(model.calibration_, exact.calibration_)
    for found, right in ((p, p_exact), (own, own_exact)):
        assert (found <= right).all()
        np.testing.assert_array_equal(found[right <= 0.05], right[right <= 0.05])
        np.testing.assert_array_equal(found <= 0.05, right <= 0.05)
    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))
    assert model.algorithm_ == "nn_descent"
    assert model.certificate_.is_met


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_p_values__are_not_above_the_exact_ones_whatever_an_index_says(
    lists, corruption, aggregation, monkeypatch
):
    """Without any audit: a statistic is not below that of all rows."""
    monkeypatch.setattr(audit, "is_settled", lambda *given: True)
    monkeypatch.setattr(audit.Guide, "repaired", lambda guide, n_blocks: guide)
    lists(corrupted(corruption, 0, blocks=range(9)))
    model, exact = _models(scale="standard", calibration="loo", aggregation=aggregation)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)

    assert (model.statistic(NEW) >= exact.statistic(NEW)).all()
    assert (p <= p_exact).all()
    np.testing.assert_array_equal(p <= 0.05, p_exact <= 0.05)
    np.testing.assert_array_equal(p[p_exact <= 0.05], p_exact[p_exact <= 0.05])


def test_recheck__makes_more_p_values_exact(lists):
    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(recheck=0.4)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)

    np.testing.assert_array_equal(p[p_exact <= 0.4], p_exact[p_exact <= 0.4])


def test_offset__that_is_raised_keeps_decisions_exact(lists):
    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models()
    model.offset_ = exact.offset_ = 0.3

    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))

    statistic = model.statistic(NEW)
    np.testing.assert_array_equal(model.p_values_of(statistic), model.score_samples(NEW))


def test_anomaly_log_density__is_rechecked_by_what_is_compared(lists):
    def log_density(rows):
        return rows[:, 0]

    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(anomaly_log_density=log_density)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)

    assert (p <= p_exact).all()
    np.testing.assert_array_equal(p <= 0.05, p_exact <= 0.05)


def test_false_discoveries__are_exact_where_all_up_to_the_rate_is(lists):
    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(recheck=0.2, calibration="conformal", calibration_size=1200)

    flags = false_discovery_control(model.score_samples(NEW), 0.2)

    expected = false_discovery_control(exact.score_samples(NEW), 0.2)
    assert expected.any()
    np.testing.assert_array_equal(flags, expected)


def _kinds():
    frame = pd.DataFrame(NEW, columns=[f"x{k}" for k in range(NEW.shape[1])])
    return {
        "pandas": frame,
        "dask array": da.from_array(NEW, chunks=(700, -1)),
        "dask array, other chunks": da.from_array(NEW, chunks=((1, 1000, 559), -1)),
        "dask array of unknown chunks": dd.from_pandas(frame, npartitions=3).values,
        "dask frame": dd.from_pandas(frame, npartitions=4),
    }


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("kind", _kinds())
def test_score_samples__gives_the_same_bits_for_each_kind(lists, kind, scheduler):
    lists(corrupted("1 % of the edges dropped", 0))
    model = LPE(8, algorithm="nn_descent", calibration_size=400, random_state=0)
    model.fit(NOMINAL)
    expected = model.score_samples(NEW)

    with dask.config.set(scheduler=scheduler):
        actual = model.score_samples(_kinds()[kind])

        np.testing.assert_array_equal(np.asarray(actual), expected)


def test_frames_of_small_files__are_scored_beside_other_results(lists, tmp_path):
    """Dask reads such files together, as it finds best for the columns that are read."""
    model, _ = _models()
    expected = model.score_samples(NEW)
    frame = pd.DataFrame(NEW).rename(columns=str)
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path / "new")
    rows = dd.read_parquet(tmp_path / "new")

    scored, column = dask.compute(model.score_samples(rows), rows["3"])
    model.score_samples(rows).to_frame().to_parquet(tmp_path / "scored")

    np.testing.assert_array_equal(scored, expected)
    np.testing.assert_array_equal(column, NEW[:, 3])
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "scored").p_value, expected)


def test_fit__gives_the_same_bits_for_each_partitioning(lists, monkeypatch):
    monkeypatch.setattr(nominal, "SAMPLE_ROWS", 500)
    lists(corrupted("1 % of the edges dropped", 0))

    def results(rows):
        model = LPE(8, algorithm="nn_descent", calibration_size=400, random_state=0)
        model.fit(rows)
        return np.asarray(model.p_values_), model.score_samples(NEW)

    expected = results(NOMINAL)
    frame = dd.from_pandas(pd.DataFrame(NOMINAL).rename(columns=str), npartitions=4)
    for rows in (da.from_array(NOMINAL, chunks=(333, -1)), frame):
        for actual, due in zip(results(rows), expected, strict=True):
            np.testing.assert_array_equal(actual, due)


@pytest.mark.parametrize("kind", ["pandas", "dask array", "dask frame"])
def test_score__leaves_each_row_out(lists, kind):
    data = {
        "pandas": pd.DataFrame(NOMINAL).rename(columns=str),
        "dask array": da.from_array(NOMINAL, chunks=(900, -1)),
        "dask frame": dd.from_pandas(
            pd.DataFrame(NOMINAL).rename(columns=str), npartitions=3
        ),
    }[kind]
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}

    p = lpe_dask.score(data, algorithm="nn_descent", **given)

    exact = np.asarray(lpe_dask.score(data, algorithm="brute", **given))
    assert (np.abs(np.asarray(p) - exact) > 0.01).mean() <= 0.01
    np.testing.assert_array_equal(np.asarray(p) <= 0.05, exact <= 0.05)


def test_rows_with_nan__have_none(lists):
    model, _ = _models()
    rows = NEW.copy()
    rows[::3, 1] = np.nan

    p = model.score_samples(rows)

    np.testing.assert_array_equal(np.isnan(p), np.isnan(rows[:, 1]))
    clean = model.score_samples(NEW)
    np.testing.assert_array_equal(p[1::3][:100] <= 0.05, clean[1::3][:100] <= 0.05)


def test_few_rows__are_measured_exactly(lists):
    """As many as would be sampled, or fewer: nothing is left to be guessed."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model, exact = _models()

    for n_rows in (0, 1, 500):
        np.testing.assert_array_equal(
            model.score_samples(NEW[:n_rows]), exact.score_samples(NEW[:n_rows])
        )


def test_nominal_rows__that_are_all_known_leave_new_ones_to_be_searched_for(lists):
    """What few rows are measured by says nothing about others."""
    lists(corrupted("1 % of the edges dropped", 0))
    model, exact = _models(calibration_size=None)

    assert str(model.certificate_) == "every row was measured exactly"
    np.testing.assert_array_equal(model.p_values_, exact.p_values_)
    assert model._fitted.verdict(NEW).compute().guide.exact_blocks == ()
    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)
    assert (np.abs(p - p_exact) > 0.01).mean() <= 0.01
    np.testing.assert_array_equal(p[p_exact <= 0.05], p_exact[p_exact <= 0.05])


@pytest.mark.parametrize("corruption", ["those of another block", "all random"])
def test_bad_indexes__are_repaired(lists, corruption, caplog):
    lists(corrupted(corruption, 0, blocks=range(9)))
    model, exact = _models()

    assert "4 of 4 blocks are compared as a whole: of 400 rows" in caplog.text
    assert model.certificate_.is_met
    assert model.certificate_.exact_blocks > 0
    share = (np.abs(model.p_values_ - exact.p_values_) > 0.01).mean()
    assert share <= 0.01
    share = (np.abs(model.score_samples(NEW) - exact.score_samples(NEW)) > 0.01).mean()
    assert share <= 0.01


def test_one_bad_block__is_compared_as_a_whole(lists):
    lists(corrupted("all random", 0, blocks=(1,)))
    model, _ = _models()

    assert 1 in model._fitted.approximate.guide.exact_blocks
    assert len(model._fitted.approximate.guide.exact_blocks) < 4


def _begin_with_all(monkeypatch):
    """Skip what is tried on calibration rows: the audit alone has to notice."""

    def guide(reference, *given):
        every = tuple(range(len(reference.blocks)))
        return Guide(84, len(every), (), every)

    monkeypatch.setattr("lpe_dask.model.fitting.tuned_guide", guide)


def test_on_low_quality__may_be_an_error(lists, monkeypatch):
    _begin_with_all(monkeypatch)
    lists(corrupted("all random", 0, blocks=range(9)))
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}

    with pytest.raises(RuntimeError, match="p-values are not as good as asked"):
        LPE(**given, algorithm="nn_descent", on_low_quality="error").fit(NOMINAL)


@pytest.mark.parametrize("n_calibrated", [400, None])
def test_on_low_quality__is_an_error_also_where_trials_tell(lists, n_calibrated):
    """At the first rows that are no calibration rows: nothing is repaired unasked."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model = LPE(
        8, algorithm="nn_descent", on_low_quality="error", random_state=0,
        calibration_size=n_calibrated,
    )  # fmt: skip

    with pytest.raises(RuntimeError, match="p-values are not as good as asked"):
        model.fit(NOMINAL).score_samples(NEW)


def _check_certificates(lists, corruption, seeds):
    """Compare models with broken indexes with the exact one, row by row.

    All rows are audited alike, whether or not they are calibration rows, which are drawn
    once: so another seed draws other samples, and the exact model stays the same.
    """
    right = LPE(8, **CALIBRATED, algorithm="brute").fit(NOMINAL)
    for seed in seeds:
        lists(corrupted(corruption, seed, blocks=(seed % 4,)))
        model = _fitted_with_seed(seed)

        share = (np.abs(model.p_values_ - right.p_values_) > 0.01).mean()

        assert model.certificate_.is_met
        assert share <= 0.01
        if corruption in BAD:
            assert model.certificate_.exact_blocks > 0


CALIBRATED = {"calibration_size": 400, "random_state": 0}

#: Corruptions of which a search cannot make up for.
BAD = ("those of another block", "all random")


def _fitted_with_seed(seed):
    """Return a model that audits and builds by a seed, with the same calibration rows."""
    arguments = LPE(8, **CALIBRATED, algorithm="nn_descent").get_params()
    of = Quality.of

    def quality(parameters):
        return replace(of(parameters), seed=seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quality, "of", quality)
        return LPE(**arguments).fit(NOMINAL)


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_certificates__are_not_met_where_too_many_are_off(lists, corruption, monkeypatch):
    _begin_with_all(monkeypatch)
    _check_certificates(lists, corruption, [0])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_tuned", [False, True])
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_certificates__are_not_met_in_any_of_100(lists, corruption, is_tuned, monkeypatch):
    if not is_tuned:
        _begin_with_all(monkeypatch)
    _check_certificates(lists, corruption, range(100))


def test_certificates__of_a_sabotaged_audit_are_noticed(lists, monkeypatch):
    """An audit that samples good rows only: the tests above would fail."""
    _begin_with_all(monkeypatch)
    lists(corrupted("all random", 0, blocks=(0,)))
    right = LPE(8, **CALIBRATED, algorithm="brute").fit(NOMINAL).p_values_
    with monkeypatch.context() as patch:
        patch.setattr(audit, "is_settled", lambda *given: True)  # no audit at all
        patch.setattr(Guide, "repaired", lambda guide, n_blocks: guide)
        found = LPE(8, **CALIBRATED, algorithm="nn_descent").fit(NOMINAL).p_values_
    bad = np.flatnonzero(np.abs(found - right) > 0.01)
    assert 0.01 < len(bad) / len(NOMINAL) < 0.5

    def avoiding(numbers, seed, draw):
        drawn = draws(numbers, seed, draw)
        drawn[np.isin(numbers, bad)] = 2**64 - 1  # the smallest are sampled
        return drawn

    for module in (audit, fitting):
        monkeypatch.setattr(module, "draws", avoiding)
    with pytest.raises(AssertionError):
        _check_certificates(lists, "all random", [0])


N_BLOCKS, WIDEST = 8, 384


def _verdict_of(
    n_off,
    *,
    width=96,
    rounds=0,
    n_blocks=N_BLOCKS,
    otherwise="repair",
    n_rows=1100,
    n_drawn=2201,
):
    """Return what is done where so many sampled rows are off."""
    exactly = np.full(n_rows, 0.5)
    led = np.where(np.arange(n_rows) < n_off, 0.1, exactly)
    drawn = np.zeros(2201, np.uint64)[:n_drawn]
    sample = audit.Sample(drawn, np.empty((len(drawn), 12)), np.full(len(drawn), -1))
    guide = Guide(width, min(4, n_blocks), (), tuple(range(n_blocks)))
    quality = Quality(0.01, 0.01, otherwise, 0.05, 0)
    before = audit.Verdict(guide, None, rounds)
    return audit._judge(before, led, exactly, [sample] * 3, quality, WIDEST)


def test_judge__certifies_what_is_good_and_first_doubles_the_beams():
    assert _verdict_of(0).certificate.is_met

    further = _verdict_of(3)
    assert further.certificate is None
    assert further.guide == Guide(192, N_BLOCKS, (), tuple(range(N_BLOCKS)))
    assert _verdict_of(3, width=300).guide.width == WIDEST


@pytest.mark.parametrize("otherwise", ["repair", "error"])
@pytest.mark.parametrize("n_off", [1, 2])
def test_judge__asks_a_larger_sample_where_the_first_decides_nothing(
    n_off, otherwise, caplog
):
    undecided = _verdict_of(n_off, otherwise=otherwise)

    assert undecided.certificate is None
    assert undecided.rounds == 1
    assert undecided.guide.width == 96
    assert not caplog.records, "nothing is repaired, so there is nothing to warn of"
    # Among twice as many rows twice as many do no harm, and one more does.
    for n_now, is_met in ((2 * n_off, True), (6, False)):
        after = _verdict_of(n_now, rounds=1, n_rows=2200, n_blocks=1, otherwise=otherwise)
        assert (after.certificate is not None) == is_met
    assert _verdict_of(n_off, otherwise=otherwise, n_drawn=2200).guide.width == 192


@pytest.mark.parametrize("part_rows", [1, 700, 2500, 5000])
def test_samples__grow_and_do_not_depend_on_partitions(part_rows):
    quality, numbers = Quality(0.01, 0.01, "repair", 0.05, 0), np.arange(len(NOMINAL))
    drawn = partial(audit.samples_of, quality=quality, of_rounds=range(ROUNDS))
    whole = drawn(NOMINAL, numbers)
    edges = range(0, len(NOMINAL), part_rows)
    parts = [slice(start, start + part_rows) for start in edges]
    picked = [drawn(NOMINAL[p], numbers[p]) for p in parts]
    guide = Guide(96, 1, (), (0,))

    merged = audit.merged_samples(picked, quality)

    for found, expected in zip(merged, whole, strict=True):
        np.testing.assert_array_equal(found.drawn, expected.drawn)
        np.testing.assert_array_equal(found.rows, expected.rows)
    asked = [audit._part(merged, audit.Verdict(guide, None, i), quality) for i in range(3)]
    assert [len(sample.rows) for sample in asked] == [1100, 2200, 2200]


def test_judge__then_compares_the_worst_blocks_and_last_all():
    for verdict in (_verdict_of(1, rounds=1), _verdict_of(100)):
        assert verdict.guide == Guide(WIDEST, N_BLOCKS, (0, 1), tuple(range(2, N_BLOCKS)))
    assert _verdict_of(1, rounds=2).guide.is_exact
    assert _verdict_of(100, n_blocks=1).guide.is_exact
    assert _verdict_of(3, rounds=1, n_blocks=1).guide.width == 192


def test_judge__stops_where_nothing_is_to_be_repaired():
    assert _verdict_of(1, rounds=1, otherwise="error").guide.width == 192
    for given in ({"n_off": 1, "rounds": 2}, {"n_off": 100}):
        with pytest.raises(RuntimeError, match="not as good as asked: not met"):
            _verdict_of(**given, otherwise="error")


def test_saved_models__score_the_same_bits(lists, tmp_path):
    lists(corrupted("1 % of the edges dropped", 0))
    model, _ = _models(scale="standard", calibration="conformal")
    expected = model.score_samples(NEW)
    model.save(tmp_path / "model")

    def building(*given):
        raise AssertionError("nothing is built again")

    lists(building)

    loaded = lpe_dask.load(tmp_path / "model")

    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)
    frame = dd.from_pandas(pd.DataFrame(NEW), npartitions=2)
    np.testing.assert_array_equal(loaded.score_samples(frame.values).compute(), expected)
    assert loaded.certificate_ == model.certificate_
    assert loaded.algorithm_ == "nn_descent"


def test_fit__compiles_beside_what_it_measures(lists, monkeypatch):
    """In this process, and unless there is so little that it would only be in the way."""
    compiled = []
    monkeypatch.setattr(nn_descent, "prepare", compiled.append)
    expected = _models()[0].p_values_
    assert not compiled
    monkeypatch.setattr(reference, "COMPILED_ROWS", 0)

    p_values = _models()[0].p_values_

    assert compiled == [NOMINAL.shape[1]]
    np.testing.assert_array_equal(p_values, expected)


def test_saved_models__search_as_they_were_fitted(lists, tmp_path):
    """Whatever was set after the fit, and whatever kind of number a seed was."""
    lists(corrupted("1 % of the edges dropped", 0))
    model, _ = _models(random_state=np.int64(7))
    expected = model.score_samples(NEW)
    model.set_params(recheck=0.9, on_low_quality="error", max_p_error=0.5, alpha=0.2)
    model.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")

    assert loaded._fitted.approximate == model._fitted.approximate
    assert loaded.recheck == 0.9
    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)


def test_fits_that_spool__have_the_same_bits(lists, tmp_path, monkeypatch):
    lists(corrupted("1 % of the edges dropped", 0))
    model, _ = _models(scale="standard")
    expected, own = model.score_samples(NEW), model.p_values_
    monkeypatch.setattr(Needs, "fits", lambda needs, limit: needs.plan.is_spooled)

    with dask.config.set({"lpe-dask.spool": str(tmp_path / "spool")}):
        again = LPE(**model.get_params()).fit(NOMINAL)

        assert len(list((tmp_path / "spool").rglob("index-*"))) == 2 * 4  # and their starts
        np.testing.assert_array_equal(again.score_samples(NEW), expected)
        np.testing.assert_array_equal(again.p_values_, own)
        again.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)


def test_spooled_blocks__are_read_seldom(lists, monkeypatch):
    """Once a turn, but for the last of each, and once for what is measured exactly."""
    monkeypatch.setattr(Needs, "fits", lambda needs, limit: needs.plan.is_spooled)
    model = LPE(8, algorithm="nn_descent", calibration_size=400, random_state=0)
    model.fit(NOMINAL)
    reads, allowed, load = [], [], spooled.SpooledBlock.load
    in_passes, n_blocks = join._in_passes, 4

    def counted(block):
        reads.append(block.url)
        return load(block)

    def bounded(rows, own, searched, *which):
        in_turns = n_blocks * n_blocks - (n_blocks - 1)
        allowed.append(n_blocks if searched.guide is None else in_turns)
        return in_passes(rows, own, searched, *which)

    monkeypatch.setattr(spooled.SpooledBlock, "load", counted)
    monkeypatch.setattr(join, "_in_passes", bounded)
    model.score_samples(da.from_array(NEW, chunks=-1)).compute()

    assert len(set(reads)) == n_blocks
    assert len(reads) <= sum(allowed)
    # One task for each: guided, again, and for audits exactly.
    assert len(allowed) <= 3 * ROUNDS + 2


def test_spooled_models__score_the_same_bits(lists, tmp_path):
    model, _ = _models()
    expected = model.score_samples(NEW)
    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")

    for blocks in (loaded._fitted.reference.blocks, loaded._fitted.reference.indexes):
        blocks.keep(in_spool=True)

    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)


def test_calibration_size__is_20_000_by_default():
    from lpe_dask.model.fitting import plan_fit

    arguments = LPE(algorithm="nn_descent").get_params()

    assert plan_fit(arguments, 10**6, 50).division.n_calibration == 20_000
    assert plan_fit(arguments, 10_000, 50).division.n_calibration == 10_000
    arguments["calibration_size"] = 7
    assert plan_fit(arguments, 10**6, 50).division.n_calibration == 7


@pytest.mark.parametrize(
    "arguments",
    [{"graph": "radius", "radius": 1.0}, {"metric": "geodesic"}],
)
def test_nn_descent__is_refused_for_other_statistics(arguments):
    with pytest.raises(ValueError, match="algorithm='nn_descent' is for distances"):
        LPE(algorithm="nn_descent", **arguments).fit(NOMINAL)


def test_means__are_larger_where_neighbors_are_missed(lists, monkeypatch):
    """As the sums are: each distance found is at least that of the same rank."""
    monkeypatch.setattr(audit, "is_settled", lambda *given: True)
    monkeypatch.setattr(audit.Guide, "repaired", lambda guide, n_blocks: guide)
    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(aggregation="mean")

    found, means = model.statistic(NEW), exact.statistic(NEW)

    assert (found >= means).all()
    assert (found > means).mean() > 0.05
    p = model.score_samples(NEW)
    np.testing.assert_array_equal(found[p <= 0.05], means[p <= 0.05])


def test_tuning__goes_further_where_that_finds_more(lists, monkeypatch):
    monkeypatch.setattr(tuning, "FIRST_ASKED", 1)

    model, _ = _models()

    assert model._fitted.approximate.guide.n_asked > 1


def test_check_calibration__is_that_of_the_exact_search(lists):
    lists(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models()

    check, expected = model.check_calibration(), exact.check_calibration()

    pd.testing.assert_frame_equal(check.table, expected.table)


def test_copies__score_the_same_bits(lists):
    model, _ = _models()
    expected = model.score_samples(NEW)

    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copied.score_samples(NEW), expected)
        assert copied.certificate_ == model.certificate_


@pytest.fixture
def taken(monkeypatch):
    """Have "auto" take an approximate search, and count how often it was asked."""
    asked = []

    def choose(sample, preparation, plan, n_exact, n_waiting):
        asked.append(n_exact)
        return True, "a test"

    monkeypatch.setattr("lpe_dask.model.fitting.choose_approximate", choose)
    return asked


def test_auto__takes_it_only_if_it_may(lists, taken):
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}

    assert LPE(**given).fit(NOMINAL).algorithm_ != "nn_descent"
    assert not taken
    model = LPE(**given, allow_approximate=True).fit(NOMINAL)

    assert model.algorithm_ == "nn_descent"
    assert model.get_params()["algorithm"] == "auto"
    # Calibration rows, those below alpha, and the samples.
    assert taken == [400 + 250 + 5 * 1100]


@pytest.mark.parametrize("is_enough", [False, True])
def test_auto__does_not_take_it_where_blocks_are_spooled(lists, taken, is_enough, caplog):
    """Also where an exact search is not; nor where not even a spool would do."""
    caplog.set_level("INFO", "lpe_dask")
    parameters = LPE(8, allow_approximate=True).get_params()

    def planned(shape):
        if shape.is_indexed and not is_enough:
            raise MemoryError("a test")
        return plan_for(replace(shape, is_spooled=shape.is_indexed), active_workers())

    chosen = choose_search(parameters, NOMINAL, len(NOMINAL), planned, active_workers())

    assert taken
    assert chosen == "auto"
    assert "do not fit into the memory of each worker" in caplog.text


@pytest.mark.parametrize(
    "arguments", [{"graph": "radius", "radius": 1.0}, {"metric": "geodesic"}]
)
def test_auto__never_takes_it_for_other_statistics(lists, taken, arguments):
    model = LPE(**arguments, allow_approximate=True).fit(NOMINAL[:300])

    assert model.algorithm_ != "nn_descent"
    assert not taken


def test_checkpoint__has_the_choice_of_the_first_run(lists, taken, tmp_path, monkeypatch):
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}
    parameters = LPE(**given, allow_approximate=True).get_params()
    checkpoint = Checkpoint(str(tmp_path / "fit"))
    first = fit_model(parameters, NOMINAL, checkpoint)
    monkeypatch.setattr(
        "lpe_dask.model.fitting.choose_approximate", lambda *given: (False, "a test")
    )

    second = fit_model(parameters, NOMINAL, checkpoint)

    assert len(taken) == 1
    assert second.reference.space.algorithm == first.reference.space.algorithm
    np.testing.assert_array_equal(second.p_values(NEW), first.p_values(NEW))


def _as_files(tmp_path):
    paths = [tmp_path / "nominal.parquet", tmp_path / "new.parquet"]
    for path, rows in zip(paths, (NOMINAL, NEW), strict=True):
        pd.DataFrame(rows).rename(columns=str).to_parquet(path)
    return paths


@pytest.mark.parametrize("own", [False, True])
def test_run__says_what_is_certified_and_flags_exactly(lists, tmp_path, own):
    nominal, new = _as_files(tmp_path)
    data = nominal if own else new
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}
    given["nominal"] = None if own else nominal

    summary = lpe_dask.score_files(data, tmp_path / "out", algorithm="nn_descent", **given)
    exact = lpe_dask.score_files(data, tmp_path / "exact", algorithm="brute", **given)

    assert summary["algorithm_"] == "nn_descent"
    assert summary["certificate"]["bound"] <= 0.01
    assert summary["calibration_band"] is not None
    assert exact["certificate"] is None
    found, right = (pd.read_parquet(tmp_path / name) for name in ("out", "exact"))
    np.testing.assert_array_equal(found["is_anomaly"], right["is_anomaly"])
    assert (found["p_value"] <= right["p_value"]).all()


def test_run__with_a_false_discovery_rate_flags_exactly(lists, tmp_path):
    lists(corrupted("-1", 0, blocks=range(9)))
    nominal, new = _as_files(tmp_path)
    given = {"n_neighbors": 8, "calibration": "conformal", "random_state": 0, "fdr": 0.3}

    for name, algorithm in (("out", "nn_descent"), ("exact", "brute")):
        lpe_dask.score_files(
            new, tmp_path / name, nominal=nominal, algorithm=algorithm, **given
        )

    found, right = (pd.read_parquet(tmp_path / name) for name in ("out", "exact"))
    assert right["is_anomaly"].any()
    np.testing.assert_array_equal(found["is_anomaly"], right["is_anomaly"])


def test_run__that_resumes_has_the_same_bits_and_another_algorithm_is_refused(
    lists, tmp_path
):
    lists(corrupted("1 % of the edges dropped", 0))
    nominal, new = _as_files(tmp_path)
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}
    run = partial(lpe_dask.score_files, new, tmp_path / "out", nominal=nominal, **given)
    run(algorithm="nn_descent")
    before = pd.read_parquet(tmp_path / "out")
    (tmp_path / "out" / "part-00000.parquet").unlink()

    with pytest.raises(FileExistsError, match="the model or its parameters"):
        run(algorithm="brute")
    run(algorithm="nn_descent")

    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), before)


@pytest.mark.parametrize("change", ["alpha", "pynndescent"])
def test_run__that_would_find_others_is_refused(lists, tmp_path, change, monkeypatch):
    """Where alpha says which p-values are exact, and where lists are other ones."""
    nominal, new = _as_files(tmp_path)
    given = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}
    given |= {"nominal": nominal, "algorithm": "nn_descent"}
    lpe_dask.score_files(new, tmp_path / "out", **given)
    version = fit.metadata.version

    def other_version(name):
        return "0.0.0" if name == "pynndescent" else version(name)

    if change == "alpha":
        given["alpha"] = 0.01
    else:
        monkeypatch.setattr(fit.metadata, "version", other_version)

    with pytest.raises(FileExistsError, match="the model or its parameters"):
        lpe_dask.score_files(new, tmp_path / "out", **given)
