"""Models that miss neighbors: what is exact, what is certified, and what is refused."""

import copy
import functools
import pickle
from functools import partial

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
from indexes import CORRUPTIONS, corrupted, right_lists
from lpe_dask import LPE
from lpe_dask.batch import fit
from lpe_dask.kernels import beams, graph_search, joined_lists, nn_descent
from lpe_dask.model import audit, fitting
from lpe_dask.model.certificate import Certificate, Quality, draws
from lpe_dask.model.fitting import plan_fit
from lpe_dask.pvalues import false_discovery_control
from lpe_dask.search import AUDITED_ROWS, Needs, join, packing, plan, spooled, stored
from lpe_dask.tables import nominal
from strategies import point_sets

#: Most rows of a block, so that small tables have several.
BLOCK_ROWS = 1280

#: Rows that one is listed with, that it leads to, and of a beam beyond K: a search is to
#: miss some rows of a block.
LISTED, DEGREE, BEAM_ROWS = 8, 12, 76


@pytest.fixture(autouse=True)
def _small_searches(monkeypatch):
    def joined(of_rows):
        return joined_lists(of_rows[:, :LISTED], DEGREE)

    monkeypatch.setattr(plan, "MOST_INDEXED_ROWS", BLOCK_ROWS)
    monkeypatch.setattr(beams, "BEAM_ROWS", BEAM_ROWS)
    monkeypatch.setattr(packing, "joined_lists", joined)
    monkeypatch.setattr(stored, "DEGREE", DEGREE)
    with dask.config.set({"scheduler": "sync"}):
        yield


@pytest.fixture(autouse=True)
def lists(monkeypatch):
    """Replace the lists of near rows: pynndescent takes half a minute to begin with."""

    def replace(function):
        monkeypatch.setattr(nn_descent, "neighbor_lists", function)

    replace(right_lists)
    return replace


@pytest.fixture
def unjudged(monkeypatch, lists):
    """Let bad indexes pass: whatever they say, some p-values are exact."""
    monkeypatch.setattr(Certificate, "check", lambda certificate: None)
    return lists


def _rows(n_rows, seed, n_features=12):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((6, n_features))
    rng = np.random.default_rng(seed)
    noise = 0.1 * rng.standard_normal((n_rows, n_features))
    return np.sin(rng.standard_normal((n_rows, 6)) @ turn) + noise


NOMINAL, NEW = _rows(5000, 1), np.concatenate([_rows(3300, 2), 3 * _rows(60, 3)])
GIVEN = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}


def _models(**arguments):
    """Return an approximate model, and the exact one that it is compared with."""
    model = LPE(**GIVEN | arguments, algorithm="nn_descent").fit(NOMINAL)
    return model, _exact(**arguments)


@functools.cache
def _exact(**arguments):
    return LPE(**GIVEN | arguments, algorithm="brute").fit(NOMINAL)


@functools.cache
def _good():
    """Return an approximate model along right lists, and its p-values of new rows."""
    model, _ = _models()
    return model, model.score_samples(NEW)


def _check_exact_up_to(level, found, right):
    """Compare p-values with those of an exact search."""
    assert (found <= right).all()
    np.testing.assert_array_equal(found <= level, right <= level)
    np.testing.assert_array_equal(found[right <= level], right[right <= level])


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@pytest.mark.parametrize("calibration", ["loo", "split", "conformal"])
def test_alarms__are_those_of_the_exact_search(calibration, aggregation):
    model, exact = _models(calibration=calibration, aggregation=aggregation)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)

    np.testing.assert_array_equal(model.calibration_, exact.calibration_)
    for found, right in ((p, p_exact), (model.p_values_, exact.p_values_)):
        _check_exact_up_to(0.05, found, right)
        assert (right - found > 0.01).mean() <= 0.01
    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))
    assert model.algorithm_ == "nn_descent"
    assert 0 < model.certificate_.bound <= 0.01


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_alarms__are_exact_whatever_an_index_says(unjudged, corruption):
    """A statistic is not below that of all rows."""
    unjudged(corrupted(corruption, 0, blocks=range(9)))
    model, exact = _models(scale="standard", calibration="loo")

    assert (model.statistic(NEW) >= exact.statistic(NEW)).all()
    _check_exact_up_to(0.05, model.score_samples(NEW), exact.score_samples(NEW))


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@given(
    nominal=point_sets(min_rows=12, max_rows=40, n_features=2),
    queries=point_sets(min_rows=6, max_rows=20, n_features=2),
    corruption=st.sampled_from(list(CORRUPTIONS)),
    alpha=st.sampled_from([0.1, 0.3, 0.5]),
)
def test_alarms__are_those_of_the_definition(
    aggregation, nominal, queries, corruption, alpha
):
    """Of tables of any rows, by indexes that lead anywhere, in small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (audit, fitting):
            patch.setattr(module, "AUDITED_ROWS", 5)
        patch.setattr(Certificate, "check", lambda certificate: None)
        patch.setattr(plan, "MOST_INDEXED_ROWS", 10)
        patch.setattr(graph_search, "NARROW", 2)
        patch.setattr(beams, "BEAM_ROWS", 0)
        patch.setattr(
            nn_descent, "neighbor_lists", corrupted(corruption, 0, blocks=range(9))
        )
        model = LPE(
            2, algorithm="nn_descent", aggregation=aggregation, alpha=alpha,
            calibration="loo",
        )  # fmt: skip
        found = model.fit(nominal).score_samples(queries)

    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}[aggregation]
    known = radii(nominal, nominal, 2, exclude_self=True)
    right = [definitions.knn_p_value(r, known) for r in radii(queries, nominal, 2)]
    _check_exact_up_to(alpha, found, np.array(right))


def test_recheck__makes_more_p_values_exact(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(recheck=0.4)

    found, right = model.score_samples(NEW), exact.score_samples(NEW)

    _check_exact_up_to(0.4, found, right)
    assert (found < right).any()


def test_offset__that_is_raised_keeps_decisions_exact(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = map(copy.copy, _models())
    model.offset_ = exact.offset_ = 0.3

    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))


def test_anomaly_log_density__is_rechecked_by_what_is_compared(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models(anomaly_log_density=lambda rows: rows[:, 0])

    _check_exact_up_to(0.05, model.score_samples(NEW), exact.score_samples(NEW))


def test_false_discoveries__are_exact_where_all_up_to_the_rate_is(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
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
        "dask array, other chunks": da.from_array(NEW, chunks=((1, 1000, 2359), -1)),
        "dask array of unknown chunks": dd.from_pandas(frame, npartitions=3).values,
        "dask frame": dd.from_pandas(frame, npartitions=4),
    }


@pytest.mark.parametrize("kind", _kinds())
def test_score_samples__gives_the_same_bits_for_each_kind(kind):
    model, expected = _good()

    with dask.config.set(scheduler="threads"):
        actual = model.score_samples(_kinds()[kind])

        np.testing.assert_array_equal(np.asarray(actual), expected)


def test_frames_of_small_files__are_scored_beside_other_results(tmp_path):
    """Dask reads such files together, as it finds best for the columns that are read."""
    model, expected = _good()
    frame = pd.DataFrame(NEW).rename(columns=str)
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path / "new")
    rows = dd.read_parquet(tmp_path / "new")

    scored, column = dask.compute(model.score_samples(rows), rows["3"])
    model.score_samples(rows).to_frame().to_parquet(tmp_path / "scored")

    np.testing.assert_array_equal(scored, expected)
    np.testing.assert_array_equal(column, NEW[:, 3])
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "scored").p_value, expected)


@pytest.mark.parametrize("kind", ["dask array", "dask frame"])
def test_fit__gives_the_same_bits_for_each_partitioning(kind, lists, monkeypatch):
    """Also where a sample tells the space of the lists."""
    monkeypatch.setattr(nominal, "SAMPLE_ROWS", 500)
    lists(lambda points, seed: right_lists(points + 0.01 * np.sin(1e12 * points)))
    frame = pd.DataFrame(NOMINAL).rename(columns=str)
    rows = {
        "dask array": da.from_array(NOMINAL, chunks=(333, -1)),
        "dask frame": dd.from_pandas(frame, npartitions=4),
    }[kind]
    good = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)
    expected = good.score_samples(NEW)

    with dask.config.set({"lpe-dask.block-rows": 640}):  # of exact searches
        model = LPE(**GIVEN, algorithm="nn_descent").fit(rows)
        own = lpe_dask.score(rows, algorithm="nn_descent", **GIVEN)

    assert model.certificate_ == good.certificate_
    np.testing.assert_array_equal(model.score_samples(NEW), expected)
    np.testing.assert_array_equal(own, good.p_values_)


def test_rows_with_nan__have_none():
    model, expected = _good()
    rows = NEW.copy()
    rows[::17, 1] = np.nan

    p = model.score_samples(rows)

    is_missing = np.isnan(rows[:, 1])
    np.testing.assert_array_equal(np.isnan(p), is_missing)
    np.testing.assert_array_equal(p[~is_missing], expected[~is_missing])


def test_few_rows__are_measured_exactly(lists):
    """As many as would be sampled, or fewer: nothing is left to be missed."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model, exact = _models(calibration_size=None)

    assert str(model.certificate_) == "every row was measured exactly"
    np.testing.assert_array_equal(model.p_values_, exact.p_values_)
    for n_rows in (0, 1, AUDITED_ROWS):
        np.testing.assert_array_equal(
            model.score_samples(NEW[:n_rows]), exact.score_samples(NEW[:n_rows])
        )


@pytest.mark.parametrize("corruption", ["those of another block", "all random"])
def test_bad_searches__are_refused_at_fit(lists, corruption):
    lists(corrupted(corruption, 0, blocks=range(9)))

    with pytest.raises(RuntimeError, match=r"of 3000 sampled .* exact algorithm \(algo"):
        LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)


@pytest.mark.parametrize("kind", [*_kinds(), "files"])
def test_bad_searches__are_refused_at_scoring(lists, kind, tmp_path):
    """Where all nominal rows are calibration rows, new ones are the first to tell."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model = LPE(8, algorithm="nn_descent").fit(NOMINAL)

    if kind != "files":
        lazy = model.score_samples(_kinds()[kind]) if "dask" in kind else None
        with pytest.raises(RuntimeError, match="misses too many neighbors"):
            model.score_samples(_kinds()[kind]) if lazy is None else lazy.compute()
        return
    nominal, new = _as_files(tmp_path)
    with pytest.raises(RuntimeError, match="misses too many neighbors"):
        lpe_dask.score_files(new, tmp_path / "out", nominal=nominal, algorithm="nn_descent")
    assert not list((tmp_path / "out").glob("part-*"))


def _n_refused(corruption, seeds, right):
    """Fit with broken indexes, compare what is certified, and count what is refused.

    All rows are audited alike, whether or not they are calibration rows, which are drawn
    once: so another seed draws other samples, and the exact model stays the same.
    """
    n_refused, of = 0, Quality.of
    for seed in seeds:
        lists = corrupted(corruption, seed, blocks=(seed % 4,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn_descent, "neighbor_lists", lists)
            patch.setattr(
                Quality,
                "of",
                lambda parameters, seed=seed: of(parameters | {"random_state": seed}),
            )
            try:
                model = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)
            except RuntimeError:
                n_refused += 1
                continue
        assert (np.abs(model.p_values_ - right) > 0.01).mean() <= 0.01
    return n_refused


#: Corruptions of which a search cannot make up for.
BAD = ("those of another block", "all random")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_certificates__hold_in_all_of_100(corruption):
    right = _exact().p_values_

    n_refused = _n_refused(corruption, range(100), right)

    assert n_refused == 100 or corruption not in BAD


def test_certificates__of_a_sabotaged_audit_are_noticed(lists, monkeypatch):
    """An audit that samples good rows only: the test above would fail."""
    monkeypatch.setattr(beams, "BEAM_ROWS", 2 * BEAM_ROWS)  # or too few rows are good
    lists(corrupted("all random", 0, blocks=(0,)))
    right = _exact().p_values_
    with monkeypatch.context() as patch:
        patch.setattr(Certificate, "check", lambda certificate: None)
        found = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL).p_values_
    bad = np.flatnonzero(np.abs(found - right) > 0.01)
    assert 0.01 < len(bad) / len(NOMINAL) < 0.3
    assert _n_refused("all random", [0], right) == 1

    def avoiding(numbers, seed, draw):
        drawn = draws(numbers, seed, draw)
        drawn[np.isin(numbers, bad)] = 2**64 - 1  # the smallest are sampled
        return drawn

    monkeypatch.setattr(fitting, "draws", avoiding)
    with pytest.raises(AssertionError):
        _n_refused("all random", [0], right)


@pytest.mark.parametrize("part_rows", [1, 700, 2500, 5000])
def test_sample__is_that_of_all_rows_for_any_parts(part_rows):
    drawn, own = draws(np.arange(len(NOMINAL)), 0, 1), np.full(len(NOMINAL), -1)
    expected = np.sort(drawn)[: AUDITED_ROWS + 1]
    edges = range(0, len(NOMINAL), part_rows)
    parts = [slice(start, start + part_rows) for start in edges]

    merged = audit.merged_samples(
        [audit.sample_of(NOMINAL[part], drawn[part], own[part]) for part in parts]
    )

    np.testing.assert_array_equal(merged.drawn, expected)
    np.testing.assert_array_equal(merged.rows, NOMINAL[np.argsort(drawn)[: len(expected)]])


def test_saved_models__score_the_same_bits(lists, tmp_path):
    """Whatever was set after the fit, and whatever kind of number a seed was."""
    model, _ = _models(scale="standard", calibration="conformal", random_state=np.int64(7))
    expected = model.score_samples(NEW)
    model.set_params(recheck=0.9, max_p_error=0.5, alpha=0.2)
    model.save(tmp_path / "model")

    def building(*given):
        raise AssertionError("nothing is built again")

    lists(building)

    loaded = lpe_dask.load(tmp_path / "model")

    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)
    frame = dd.from_pandas(pd.DataFrame(NEW), npartitions=2)
    np.testing.assert_array_equal(loaded.score_samples(frame.values).compute(), expected)
    assert loaded.certificate_ == model.certificate_
    assert loaded._fitted.quality == model._fitted.quality
    assert (loaded.algorithm_, loaded.recheck) == ("nn_descent", 0.9)


def test_fits_that_spool__have_the_same_bits(tmp_path, monkeypatch):
    model, expected = _good()
    own = model.p_values_
    monkeypatch.setattr(Needs, "fits", lambda needs, limit: needs.plan.is_spooled)

    with dask.config.set({"lpe-dask.spool": str(tmp_path / "spool")}):
        again = LPE(**model.get_params()).fit(NOMINAL)

        assert len(list((tmp_path / "spool").rglob("index-*"))) == 4
        np.testing.assert_array_equal(again.score_samples(NEW), expected)
        np.testing.assert_array_equal(again.p_values_, own)
        again.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)
    for blocks in (loaded._fitted.reference.blocks, loaded._fitted.reference.indexes):
        blocks.keep(in_spool=True)
    np.testing.assert_array_equal(loaded.score_samples(NEW), expected)


def test_spooled_blocks__are_read_once_for_each_search(monkeypatch):
    monkeypatch.setattr(Needs, "fits", lambda needs, limit: needs.plan.is_spooled)
    model = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)
    reads, n_searches, load = [], [], spooled.SpooledBlock.load
    in_passes = join._in_passes

    def counted(block):
        reads.append(block.url)
        return load(block)

    def searching(*given):
        n_searches.append(1)
        return in_passes(*given)

    monkeypatch.setattr(spooled.SpooledBlock, "load", counted)
    monkeypatch.setattr(join, "_in_passes", searching)
    model.score_samples(da.from_array(NEW, chunks=-1)).compute()

    # The sample along indexes, again up to alpha, and exactly; the rows likewise.
    assert len(n_searches) == 2 + 1 + 2
    assert len(set(reads)) == 4
    assert len(reads) <= 4 * len(n_searches)


def test_calibration_size__is_20_000_by_default():
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


def test_check_calibration__is_that_of_the_exact_search(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = _models()

    check, expected = model.check_calibration(), exact.check_calibration()

    pd.testing.assert_frame_equal(check.table, expected.table)


def test_copies__score_the_same_bits():
    model, expected = _good()

    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copied.score_samples(NEW), expected)
        assert copied.certificate_ == model.certificate_


def _as_files(tmp_path):
    paths = [tmp_path / "nominal.parquet", tmp_path / "new.parquet"]
    for path, rows in zip(paths, (NOMINAL, NEW), strict=True):
        pd.DataFrame(rows).rename(columns=str).to_parquet(path)
    return paths


@pytest.mark.parametrize("own", [False, True])
def test_run__says_what_is_certified_and_flags_exactly(tmp_path, own):
    nominal, new = _as_files(tmp_path)
    data = nominal if own else new
    given = {**GIVEN, "nominal": None if own else nominal}

    summary = lpe_dask.score_files(data, tmp_path / "out", algorithm="nn_descent", **given)
    exact = lpe_dask.score_files(data, tmp_path / "exact", algorithm="brute", **given)

    assert summary["algorithm_"] == "nn_descent"
    assert 0 < summary["certificate"]["bound"] <= 0.01
    assert summary["calibration_band"] is not None
    assert exact["certificate"] is None
    found, right = (pd.read_parquet(tmp_path / name) for name in ("out", "exact"))
    np.testing.assert_array_equal(found["is_anomaly"], right["is_anomaly"])
    assert (found["p_value"] <= right["p_value"]).all()


def test_run__with_a_false_discovery_rate_flags_exactly(unjudged, tmp_path):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    nominal, new = _as_files(tmp_path)
    given = {"n_neighbors": 8, "calibration": "conformal", "random_state": 0, "fdr": 0.3}

    for name, algorithm in (("out", "nn_descent"), ("exact", "brute")):
        lpe_dask.score_files(
            new, tmp_path / name, nominal=nominal, algorithm=algorithm, **given
        )

    found, right = (pd.read_parquet(tmp_path / name) for name in ("out", "exact"))
    assert right["is_anomaly"].any()
    np.testing.assert_array_equal(found["is_anomaly"], right["is_anomaly"])


def test_run__that_resumes_has_the_same_bits_and_another_algorithm_is_refused(tmp_path):
    nominal, new = _as_files(tmp_path)
    run = partial(lpe_dask.score_files, new, tmp_path / "out", nominal=nominal, **GIVEN)
    run(algorithm="nn_descent")
    before = pd.read_parquet(tmp_path / "out")
    (tmp_path / "out" / "part-00000.parquet").unlink()

    with pytest.raises(FileExistsError, match="the model or its parameters"):
        run(algorithm="brute")
    with dask.config.set({"lpe-dask.block-rows": 640}):
        run(algorithm="nn_descent")

    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), before)


@pytest.mark.parametrize("change", ["alpha", "pynndescent"])
def test_run__that_would_find_others_is_refused(tmp_path, change, monkeypatch):
    """Where alpha says which p-values are exact, and where lists are other ones."""
    nominal, new = _as_files(tmp_path)
    given = {**GIVEN, "nominal": nominal, "algorithm": "nn_descent"}
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
