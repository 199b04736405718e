"""Models that miss neighbors: what is exact, what is certified, and what is refused."""

import copy
import itertools
import pickle

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
import lpe_dask
from approximating import (
    GIVEN,
    NEW,
    NOMINAL,
    as_files,
    check_exact_up_to,
    good_model,
    kinds,
    models,
    small_searches,
)
from choosing import mostly_full
from indexes import CORRUPTIONS, corrupted
from lpe_dask import LPE
from lpe_dask.kernels import beam_search, graph_search, nn_descent
from lpe_dask.model import audit
from lpe_dask.model.certificate import Certificate, draws
from lpe_dask.model.fitting import FitPlan
from lpe_dask.search import Approximation, plan
from strategies import point_sets

pytestmark = pytest.mark.usefixtures("compiled_kernels")


@pytest.fixture(autouse=True)
def lists(monkeypatch):
    """Replace the lists of near rows."""
    with dask.config.set(scheduler="sync"):
        yield small_searches(monkeypatch)


@pytest.fixture
def unjudged(monkeypatch, lists):
    """Let bad indexes pass: whatever they say, some p-values are exact."""
    monkeypatch.setattr(Certificate, "check", lambda certificate: None)
    return lists


CALIBRATIONS, AGGREGATIONS = ["loo", "split", "conformal"], ["kth", "mean"]


def test_fit__reads_partitions_twice_more():
    """For the sample that indexes depend on, and for the certificate."""
    n_read = []

    def part(number):
        n_read.append(number)
        return pd.DataFrame(NOMINAL[number::3]).add_prefix("x")

    meta = part(0)[:0]
    n_read.clear()
    LPE(**GIVEN, algorithm="nn_descent").fit(dd.from_map(part, range(3), meta=meta))

    assert sorted(n_read) == sorted([0, 1, 2] * 4)


@pytest.mark.parametrize(
    ("calibration", "aggregation"),
    mostly_full(itertools.product(CALIBRATIONS, AGGREGATIONS), [("loo", "mean")]),
)
def test_alarms__are_those_of_the_exact_search(calibration, aggregation):
    model, exact = models(calibration=calibration, aggregation=aggregation)

    p, p_exact = model.score_samples(NEW), exact.score_samples(NEW)

    np.testing.assert_array_equal(model.calibration_, exact.calibration_)
    for found, right in ((p, p_exact), (model.p_values_, exact.p_values_)):
        check_exact_up_to(0.05, found, right)
        assert (right - found > 0.01).mean() <= 0.01
    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))
    assert model.algorithm_ == "nn_descent"
    assert 0 < model.certificate_.bound <= 0.01


@pytest.mark.full
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_alarms__are_exact_whatever_an_index_says(unjudged, corruption):
    """A statistic is not below that of all rows."""
    unjudged(corrupted(corruption, 0, blocks=range(9)))
    model, exact = models(scale="standard", calibration="loo")

    assert (model.statistic(NEW) >= exact.statistic(NEW)).all()
    check_exact_up_to(0.05, model.score_samples(NEW), exact.score_samples(NEW))


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@given(
    nominal=point_sets(min_rows=12, max_rows=40, n_features=2),
    queries=point_sets(min_rows=6, max_rows=20, n_features=2),
    corruption=st.sampled_from(list(CORRUPTIONS)),
    alpha=st.sampled_from([0.1, 0.3, 0.5]),
    recheck=st.sampled_from([None, 0.7]),
)
def test_alarms__are_those_of_the_definition(
    aggregation, nominal, queries, corruption, alpha, recheck
):
    """Of tables of any rows, by indexes that lead anywhere, in small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Approximation, "AUDITED_ROWS", 5)
        patch.setattr(Certificate, "check", lambda certificate: None)
        patch.setattr(plan, "MAX_INDEXED_ROWS", 10)
        patch.setattr(graph_search, "NARROW", 2)
        patch.setattr(beam_search, "BEAM_ROWS", 0)
        patch.setattr(
            nn_descent, "neighbor_lists", corrupted(corruption, 0, blocks=range(9))
        )
        model = LPE(
            2, algorithm="nn_descent", aggregation=aggregation, alpha=alpha,
            recheck=recheck, calibration="loo",
        )  # fmt: skip
        found = model.fit(nominal).score_samples(queries)

    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}[aggregation]
    known = radii(nominal, nominal, 2, exclude_self=True)
    right = [definitions.knn_p_value(r, known) for r in radii(queries, nominal, 2)]
    check_exact_up_to(recheck or alpha, found, np.array(right))


@pytest.mark.parametrize("kind", mostly_full(kinds(), ["dask frame"]))
def test_score_samples__gives_the_same_bits_for_each_kind(kind):
    model, expected = good_model()

    with dask.config.set(scheduler="threads"):
        actual = model.score_samples(kinds()[kind])

        np.testing.assert_array_equal(np.asarray(actual), expected)


def test_few_rows__are_measured_exactly(lists):
    """As many as would be sampled, or fewer: nothing is left to be missed."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model, exact = models(calibration_size=None)

    assert str(model.certificate_) == "every row was measured exactly"
    np.testing.assert_array_equal(model.p_values_, exact.p_values_)
    for n_rows in (0, 1, Approximation.AUDITED_ROWS):
        np.testing.assert_array_equal(
            model.score_samples(NEW[:n_rows]), exact.score_samples(NEW[:n_rows])
        )


@pytest.mark.parametrize(
    "corruption",
    mostly_full(["those of another block", "all random"], ["those of another block"]),
)
def test_bad_searches__are_refused_at_fit(lists, corruption):
    lists(corrupted(corruption, 0, blocks=range(9)))

    with pytest.raises(RuntimeError, match=r"of 3000 sampled .* exact algorithm \(algo"):
        LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)


@pytest.mark.parametrize("kind", mostly_full([*kinds(), "files"], ["dask frame"]))
def test_bad_searches__are_refused_at_scoring(lists, kind, tmp_path):
    """Where all nominal rows are calibration rows, new ones are the first to tell."""
    lists(corrupted("all random", 0, blocks=range(9)))
    model = LPE(8, algorithm="nn_descent").fit(NOMINAL)

    if kind != "files":
        lazy = model.score_samples(kinds()[kind]) if "dask" in kind else None
        with pytest.raises(RuntimeError, match="misses too many neighbors"):
            model.score_samples(kinds()[kind]) if lazy is None else lazy.compute()
        return
    nominal, new = as_files(tmp_path)
    with pytest.raises(RuntimeError, match="misses too many neighbors"):
        lpe_dask.score_files(new, tmp_path / "out", nominal=nominal, algorithm="nn_descent")
    assert not list((tmp_path / "out").glob("part-*"))


@pytest.mark.parametrize("part_rows", [1, 700, 2500, 5000])
def test_sample__is_that_of_all_rows_for_any_parts(part_rows):
    drawn, own = draws(np.arange(len(NOMINAL)), 0, 1), np.full(len(NOMINAL), -1)
    expected = np.sort(drawn)[: Approximation.AUDITED_ROWS + 1]
    edges = range(0, len(NOMINAL), part_rows)
    parts = [slice(start, start + part_rows) for start in edges]

    merged = audit.merged_samples(
        [audit.sample_of(NOMINAL[part], drawn[part], own[part]) for part in parts]
    )

    np.testing.assert_array_equal(merged.drawn, expected)
    np.testing.assert_array_equal(merged.rows, NOMINAL[np.argsort(drawn)[: len(expected)]])


def test_saved_models__score_the_same_bits(lists, tmp_path):
    """Whatever was set after the fit, and whatever kind of number a seed was."""
    given = {"scale": "standard", "calibration": "conformal", "random_state": np.int64(7)}
    model = LPE(**GIVEN | given, algorithm="nn_descent").fit(NOMINAL)
    expected = model.score_samples(NEW)
    model.set_params(recheck=0.9, max_p_error=0.5, alpha=0.2)
    model.save(tmp_path / "model")

    def building(*given):
        raise AssertionError("nothing is built again")

    lists(building)

    loaded = lpe_dask.load(tmp_path / "model")

    for copied in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copied.score_samples(NEW), expected)
        assert copied.certificate_ == model.certificate_
    frame = dd.from_pandas(pd.DataFrame(NEW), npartitions=2)
    np.testing.assert_array_equal(loaded.score_samples(frame.values).compute(), expected)
    assert loaded._fitted.quality == model._fitted.quality
    assert (loaded.algorithm_, loaded.recheck) == ("nn_descent", 0.9)


def test_calibration_size__is_20_000_by_default():
    arguments = LPE(algorithm="nn_descent").get_params()

    assert FitPlan.of(arguments, 10**6, 50).division.n_calibration == 20_000
    assert FitPlan.of(arguments, 10_000, 50).division.n_calibration == 10_000
    arguments["calibration_size"] = 7
    assert FitPlan.of(arguments, 10**6, 50).division.n_calibration == 7


@pytest.mark.parametrize("own", mostly_full([False, True], [False]))
def test_run__says_what_is_certified_and_flags_exactly(tmp_path, own):
    nominal, new = as_files(tmp_path)
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
