"""Few rows are measured in the thread that asks, without tasks, and to the same bits."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pandas as pd
import pytest
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

import lpe_dask
from forking import in_fork
from lpe_dask import LPE
from lpe_dask.search import Reference
from lpe_dask.search.memory import MemoryEstimate
from problems import ESTIMATORS, lattice

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning"),
    # Python 3.12 and later warn of forks while threads run.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

#: Most rows of one task: these are measured without any.
MOST = 1024

NOMINAL = lattice(300, 0)
NEW = lattice(MOST + 1, 1, -3, 13)
NEW[[3, 700], 1], NEW[9, 2] = np.nan, np.inf

METHODS = ["score_samples", "statistic", "predict", "decision_function", "status"]
OF_FRAMES = ["score_frame", "explain", "nearest_nominal"]


def mixed(n_rows, seed, kinds="abc"):
    """Rows of numbers of each kind: some that float64 cannot hold, and categories."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(lattice(n_rows, seed, n_features=2), columns=["x", "y"])
    frame["single"] = frame["x"].astype(np.float32)
    frame["time"] = 2**60 + rng.integers(0, 50, n_rows)
    frame["kind"] = rng.choice(list(kinds), n_rows)
    frame["is_old"] = rng.random(n_rows) < 0.4
    return frame


MIXED, NEW_MIXED = mixed(300, 0), mixed(MOST + 1, 1, "abcdz")
MIXED.iloc[:3, 4] = "d"  # a small group
NEW_MIXED.index = np.arange(len(NEW_MIXED)) * 3
NEW_MIXED.iloc[[3, 700], 0] = np.nan

#: Arguments of models of mixed rows.
OF_MIXED = {
    "categories": {"categorical": "auto", "aggregation": "mean", "scale": "standard"},
    "gaps": {"categorical": "auto", "missing": "measure", "scale": "minmax"},
    "groups": {"by": ["kind"], "categorical": "auto", "scale": "standard"},
    "pool": {"by": ["kind"], "small_groups": "pool", "calibration": "conformal"},
    "confidence": {
        "by": ["is_old"], "categorical": "auto", "calibration": "conformal",
        "confidence": 0.9, "alpha": 0.2,
    },
}  # fmt: skip


def models():
    of_mixed = dict.fromkeys(OF_MIXED, (MIXED, NEW_MIXED))
    return dict.fromkeys(ESTIMATORS, (NOMINAL, NEW)) | of_mixed


def fitted(name):
    nominal, new = models()[name]
    arguments = {"random_state": 0, "alpha": 0.1} | {**ESTIMATORS, **OF_MIXED}[name]
    return LPE(**arguments).fit(nominal), new


def some(rows, start, stop):
    return rows[start:stop] if isinstance(rows, np.ndarray) else rows.iloc[start:stop]


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture
def counts(monkeypatch):
    """How often graphs are made, Dask is asked, and threads are started."""

    def count(name, function):
        def counted(*args, **kwargs):
            found[name] += 1
            return function(*args, **kwargs)

        return counted

    found = {"graphs": 0, "tasks": 0, "computes": 0, "threads": 0}
    for name, owner, attribute in [
        ("graphs", HighLevelGraph, "__init__"), ("tasks", Delayed, "__init__"),
        ("computes", dask, "compute"), ("threads", threading.Thread, "start"),
    ]:  # fmt: skip
        monkeypatch.setattr(owner, attribute, count(name, getattr(owner, attribute)))
    return found


@pytest.mark.parametrize("name", models())
def test_few_rows__have_the_bits_of_many(name):
    """One row more than a task has is the first table that makes a graph."""
    model, new = fitted(name)

    for method in METHODS + OF_FRAMES:
        together = getattr(model, method)(new)
        apart = [getattr(model, method)(some(new, *of)) for of in [(0, 1000), (1000, 1025)]]
        frames = [pd.DataFrame(of) for of in (together, *apart)]
        if isinstance(new, np.ndarray):
            frames[2].index += 1000
        pd.testing.assert_frame_equal(pd.concat(frames[1:]), frames[0], check_exact=True)


@pytest.mark.parametrize("name", models())
def test_few_rows__take_no_graph_and_no_thread(name, counts):
    model, new = fitted(name)
    for method in METHODS + OF_FRAMES:
        counts.update(dict.fromkeys(counts, 0))
        getattr(model, method)(some(new, 0, 100))
        assert not any(counts.values()), (method, counts)

    model.score_samples(new)
    assert counts["graphs"] > 0
    assert counts["computes"] > 0


def test_few_rows__in_other_kinds(counts):
    model = LPE(5).fit(NOMINAL)
    expected = model.score_samples(NEW[:20])
    named = [dict(zip("abc", row, strict=True)) for row in NEW[:20].tolist()]
    counts.update(dict.fromkeys(counts, 0))

    for rows in [NEW[:20].tolist(), pd.DataFrame(NEW[:20]), named]:
        np.testing.assert_array_equal(np.asarray(model.score_samples(rows)), expected)
    single = np.round(NEW[:20] * 4) / 4  # the same number as float32
    np.testing.assert_array_equal(
        model.score_samples(single.astype(np.float32)), model.score_samples(single)
    )
    assert not any(counts.values())


def test_no_rows__give_no_results():
    model = LPE(5).fit(NOMINAL)

    for method in METHODS:
        assert len(getattr(model, method)(NEW[:0])) == 0


def test_few_rows__are_refused_as_many_are():
    model = LPE(5).fit(NOMINAL)

    for rows, problem in [
        (NEW[:2, :2], "2 features"), (NEW[0], "1D array"), ([["a", "b", "c"]], "numbers"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=problem):
            model.score_samples(rows)


@pytest.mark.parametrize("name", ["pruned", "union", "pool"])
def test_loaded_model__reads_its_blocks_once(name, tmp_path, counts):
    model, new = fitted(name)
    rows = some(new, 0, 50)
    expected = model.score_samples(rows)
    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")

    first = loaded.score_samples(rows)
    counts.update(dict.fromkeys(counts, 0))
    second = loaded.score_samples(rows)

    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected)
    assert not any(counts.values())


@pytest.mark.parametrize("name", ["categories", "groups", "pool"])
def test_loaded_model__is_read_by_an_explanation_of_one_row(name, tmp_path, counts):
    """Also what that row does not need: the pool, or the rows beside it."""
    model, new = fitted(name)
    rows = some(new, 0, 50)
    expected = model.explain(rows)
    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")
    loaded.explain(rows[:1])
    counts.update(dict.fromkeys(counts, 0))

    pd.testing.assert_frame_equal(loaded.explain(rows), expected, check_exact=True)
    loaded.score_samples(rows)
    assert not any(counts.values())


@pytest.mark.parametrize("name", ["categories", "groups"])
def test_explain__does_not_need_what_another_thread_keeps(name, monkeypatch):
    """Two threads that are the first may each begin to keep what is typical."""
    model, new = fitted(name)
    expected = model.explain(new[:5])
    monkeypatch.setattr(Reference, "_typical", property(lambda reference: {}))

    pd.testing.assert_frame_equal(model.explain(new[:5]), expected, check_exact=True)


def test_spooled_model__is_read_by_tasks(tmp_path, monkeypatch, counts):
    expected = LPE(5).fit(NOMINAL).score_samples(NEW[:50])
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        model = LPE(5).fit(NOMINAL)
        counts.update(dict.fromkeys(counts, 0))

        np.testing.assert_array_equal(model.score_samples(NEW[:50]), expected)
        assert counts["computes"] > 0


@pytest.mark.parametrize("name", ["pruned", "geodesic", "pool"])
def test_many_threads__share_a_model_from_its_first_use(name, tmp_path):
    model, new = fitted(name)
    parts = [some(new, start, start + 25) for start in range(0, 200, 25)]
    expected = [
        (np.asarray(model.score_samples(part)), model.explain(part)) for part in parts
    ]
    model.save(tmp_path / "model")
    loaded, all_there = lpe_dask.load(tmp_path / "model"), threading.Barrier(len(parts))

    def serve(part):
        all_there.wait()
        return np.asarray(loaded.score_samples(part)), loaded.explain(part)

    with ThreadPoolExecutor(len(parts)) as pool:
        actual = list(pool.map(serve, parts))

    for (scores, reasons), (right_scores, right_reasons) in zip(
        actual, expected, strict=True
    ):
        np.testing.assert_array_equal(scores, right_scores)
        pd.testing.assert_frame_equal(reasons, right_reasons, check_exact=True)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")
@pytest.mark.parametrize("has_scored", [True, False])
def test_fork__scores_by_its_only_thread_once_the_model_is_read(has_scored, tmp_path):
    """As the workers of a server that has loaded the model before it forks."""
    LPE(5).fit(NOMINAL).save(tmp_path / "model")
    expected = LPE(5).fit(NOMINAL).score_samples(NEW[:50])
    model = lpe_dask.load(tmp_path / "model")
    if has_scored:
        model.score_samples(NEW[:1])

    def serve():
        scores, reasons = model.score_samples(NEW[:50]), model.explain(NEW[:50])
        return scores, reasons, threading.active_count()

    scores, reasons, n_threads = in_fork(serve)

    np.testing.assert_array_equal(scores, expected)
    pd.testing.assert_frame_equal(reasons, model.explain(NEW[:50]), check_exact=True)
    assert (n_threads == 1) == has_scored


@pytest.mark.cluster
def test_client__is_not_asked_where_the_model_is_in_this_process(client, counts):
    with dask.config.set(scheduler="threads"):
        model = LPE(5).fit(NOMINAL)
        expected = model.score_samples(NEW[:50])

    counts.update(dict.fromkeys(counts, 0))
    np.testing.assert_array_equal(model.score_samples(NEW[:50]), expected)
    model.explain(NEW[:50])
    assert not any(counts.values())

    of_cluster = LPE(5).fit(NOMINAL)
    counts.update(dict.fromkeys(counts, 0))
    np.testing.assert_array_equal(of_cluster.score_samples(NEW[:50]), expected)
    assert counts["graphs"] > 0
