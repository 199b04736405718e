"""Approximate models: all that tests/core/model/test_approximate.py has no time for."""

import copy
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from approximating import (
    BEAM_ROWS,
    GIVEN,
    NEW,
    NOMINAL,
    as_files,
    check_exact_up_to,
    exact_model,
    good_model,
    models,
    small_searches,
)
from indexes import CORRUPTIONS, corrupted, right_lists
from lpe_dask import LPE
from lpe_dask.batch import fit
from lpe_dask.kernels import beam_search, nn_descent
from lpe_dask.model import fitting
from lpe_dask.model.certificate import ApproximationSettings, Certificate, draws
from lpe_dask.search import MemoryEstimate, join
from lpe_dask.search.blocks import spool_blocks
from lpe_dask.tables import nominal_rows

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


def test_offset__that_is_raised_keeps_decisions_exact(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = map(copy.copy, models())
    model.offset_ = exact.offset_ = 0.3

    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))


def test_anomaly_log_density__is_rechecked_by_what_is_compared(unjudged):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    model, exact = models(anomaly_log_density=lambda rows: rows[:, 0])

    check_exact_up_to(0.05, model.score_samples(NEW), exact.score_samples(NEW))


def test_frames_of_small_files__are_scored_beside_other_results(tmp_path):
    """Dask reads such files together, as it finds best for the columns that are read."""
    model, expected = good_model()
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
    """Also where the space of the lists is learned from a sample."""
    monkeypatch.setattr(nominal_rows, "SAMPLE_ROWS", 500)
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


def test_check_calibration__judges_decisions_which_are_exact():
    model, exact = good_model()[0], exact_model()

    found, right = model.check_calibration(), exact.check_calibration()

    assert found.n_calibration == right.n_calibration
    pd.testing.assert_frame_equal(found.table, right.table)


def test_rows_with_nan__have_none():
    model, expected = good_model()
    rows = NEW.copy()
    rows[::17, 1] = np.nan

    p = model.score_samples(rows)

    is_missing = np.isnan(rows[:, 1])
    np.testing.assert_array_equal(np.isnan(p), is_missing)
    np.testing.assert_array_equal(p[~is_missing], expected[~is_missing])


def _n_refused(corruption, seeds, right):
    """Fit with broken indexes, compare what is certified, and count what is refused.

    All rows are audited alike, whether or not they are calibration rows, which are drawn
    once: so another seed draws other samples, and the exact model stays the same.
    """
    n_refused, of = 0, ApproximationSettings.of
    for seed in seeds:
        lists = corrupted(corruption, seed, blocks=(seed % 4,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn_descent, "neighbor_lists", lists)
            patch.setattr(
                ApproximationSettings,
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
    right = exact_model().p_values_

    n_refused = _n_refused(corruption, range(100), right)

    assert n_refused == 100 or corruption not in BAD


def test_certificates__of_a_sabotaged_audit_are_noticed(lists, monkeypatch):
    """An audit that samples good rows only: the test above would fail."""
    monkeypatch.setattr(beam_search, "BEAM_ROWS", 2 * BEAM_ROWS)  # or too few rows are good
    lists(corrupted("all random", 0, blocks=(0,)))
    right = exact_model().p_values_
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


def test_fits_that_spool__have_the_same_bits(tmp_path, monkeypatch):
    model, expected = good_model()
    own = model.p_values_
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)

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
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    model = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)
    reads, n_searches, load = [], [], spool_blocks.SpooledBlock.load
    in_passes = join._in_passes

    def counted(block):
        reads.append(block.url)
        return load(block)

    def searching(*given):
        n_searches.append(1)
        return in_passes(*given)

    monkeypatch.setattr(spool_blocks.SpooledBlock, "load", counted)
    monkeypatch.setattr(join, "_in_passes", searching)
    model.score_samples(da.from_array(NEW, chunks=-1)).compute()

    # The sample along indexes, again up to alpha, and exactly; the rows likewise.
    assert len(n_searches) == 2 + 1 + 2
    assert len(set(reads)) == 4
    assert len(reads) <= 4 * len(n_searches)


def test_run__with_a_false_discovery_rate_flags_exactly(unjudged, tmp_path):
    unjudged(corrupted("-1", 0, blocks=range(9)))
    nominal, new = as_files(tmp_path)
    given = {"n_neighbors": 8, "calibration": "conformal", "random_state": 0, "fdr": 0.3}

    for name, algorithm in (("out", "nn_descent"), ("exact", "brute")):
        lpe_dask.score_files(
            new, tmp_path / name, nominal=nominal, algorithm=algorithm, **given
        )

    found, right = (pd.read_parquet(tmp_path / name) for name in ("out", "exact"))
    assert right["is_anomaly"].any()
    np.testing.assert_array_equal(found["is_anomaly"], right["is_anomaly"])


def test_run__that_resumes_has_the_same_bits_and_another_algorithm_is_refused(tmp_path):
    nominal, new = as_files(tmp_path)
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
    nominal, new = as_files(tmp_path)
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
