"""All rows of the reference from each pair once: right, small, and only where it pays."""

from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask import LPE
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.model.fitting import fit_model
from lpe_dask.model.persistence.checkpoint import Checkpoint
from lpe_dask.search import plan as planning
from lpe_dask.search import reference as references
from lpe_dask.search.blocks.packing import Space, prepare_blocks
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.memory import MemoryEstimate, pair_shares
from lpe_dask.search.pair_join import pair_join
from lpe_dask.search.plan import NeighborGraphParams, ProblemSize, Statistic, plan_search
from lpe_dask.search.preparation import Preparation
from lpe_dask.tasks.transfer import LocalValue
from strategies import point_sets, row_chunks

WIDE = ProblemSize(100_000, 62, Statistic(20, None))


def tasks_of(points, chunks, statistic, n_shares):
    space = Space("brute", Preparation(), ALGORITHMS["brute"].basis(points))
    rows = da.from_array(points, chunks=(chunks, -1))
    blocks = prepare_blocks(lambda: rows, space)
    return pair_join(
        blocks.tasks(), LocalValue(space, "space"), JoinSpec(statistic, 64), n_shares
    )


@given(data=st.data(), points=point_sets())
def test_pair_join__equals_definition_for_any_blocks(data, points):
    chunks = data.draw(row_chunks(len(points)))
    aggregation = data.draw(st.sampled_from(["kth", "mean"]))
    statistic = Statistic(data.draw(st.integers(1, 6)), None, aggregation=aggregation)

    with dask.config.set(scheduler="sync"):
        n_shares = data.draw(st.integers(1, 3))
        found = dask.compute(*tasks_of(points, chunks, statistic, n_shares))

    actual = np.full(len(points), np.nan)
    for numbers, values in found:
        actual[numbers] = values
    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}[aggregation]
    expected = radii(points, points, statistic.n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(actual, expected)


def test_pair_join__has_a_task_for_each_share_of_two_blocks():
    points = np.random.default_rng(0).standard_normal((40, 3))
    graph = dict(tasks_of(points, 10, Statistic(2, None), 2)[0].__dask_graph__())

    def n_tasks(name):
        return sum(str(key).startswith(f"lpe-{name}-") for key in graph)

    n_each = {name: n_tasks(name) for name in ("within", "limits", "between", "join")}
    assert n_each == {"within": 4, "limits": 4, "between": 2 * 6, "join": 4}
    own = [task for key, task in graph.items() if str(key).startswith("lpe-between")]
    assert max(map(sizeof, own)) < 10_000


def plan_of(shape, n_threads=2, memory_limit=2**34):
    return plan_search(shape, n_threads, n_threads, memory_limit)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 5, 8])
def test_pair_shares__give_each_thread_as_many_tasks(n_threads):
    plan = plan_of(replace(WIDE, n_reference=1_000_000), n_threads)
    n_blocks = plan.n_blocks
    n_shares = plan.pair_shares(n_blocks, n_threads)

    if n_blocks == n_threads:
        assert n_blocks * (n_blocks - 1) // 2 * n_shares % n_threads == 0
    assert plan.block_rows / n_shares <= planning.MAX_TASK_ROWS
    assert plan.pair_shares(n_threads - 1, n_threads) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"n_features": 31},
        {"n_reference": 5000},
        {"statistic": Statistic(None, 1.0)},
        {"statistic": Statistic(41, None)},
        {"graph_params": NeighborGraphParams(8, "directed")},
        {"is_spooled": True},
        {"is_indexed": True},
    ],
)
def test_pair_shares__are_none_where_it_does_not_pay(changed):
    plan, other = plan_of(WIDE), plan_of(replace(WIDE, **changed))

    assert plan.pair_shares(2, 2) == 2
    assert other.pair_shares(2, 2) is None


def test_pair_shares__are_none_where_memory_is_too_small():
    """A worker holds reservoirs and squares besides what each other search takes."""
    plan = plan_of(WIDE)
    estimate = MemoryEstimate(plan)
    added = estimate.pairs(2, 2, 1)
    assert 2 * 50_000 * 20 * 8 < added < 2**29

    limit = int((estimate.worker + added) / 0.6)
    with dask.config.set({"lpe-dask.memory-limit": limit + 2**20, "num_workers": 2}):
        assert pair_shares(plan, 2, keeps_rows=False) == 2
    with dask.config.set({"lpe-dask.memory-limit": limit - 2**20, "num_workers": 2}):
        assert pair_shares(plan, 2, keeps_rows=False) is None


@pytest.fixture
def joined(monkeypatch):
    """Let pairs be summed once however small the table is; list the shares chosen."""
    monkeypatch.setattr(planning, "MIN_PAIR_FEATURES", 1)
    monkeypatch.setattr(planning, "MIN_PAIR_WORK", 1)
    chosen = []

    def listed(*args, **options):
        chosen.append(pair_shares(*args, **options))
        return chosen[-1]

    monkeypatch.setattr(references, "pair_shares", listed)
    return chosen


FITS = {
    "all": {},
    "mean": {"aggregation": "mean"},
    "split": {"calibration": "split"},
    "standard": {"scale": "standard", "calibration": "loo"},
    "mahalanobis": {"metric": "mahalanobis"},
}


@pytest.mark.parametrize("name", FITS)
def test_fit__has_the_same_bits_from_each_pair_once(name, joined, monkeypatch):
    rows, new = np.random.default_rng(0).standard_normal((2, 600, 4))
    given = {"n_neighbors": 5, "algorithm": "brute", "calibration": "loo"} | FITS[name]
    given["random_state"] = 0

    with dask.config.set({"lpe-dask.block-rows": 192, "num_workers": 2}):
        found = LPE(**given).fit(rows).score_samples(new)
        assert joined[0] in (1, 2)
        monkeypatch.setattr(planning, "MIN_PAIR_FEATURES", 100)
        expected = LPE(**given).fit(rows).score_samples(new)

    np.testing.assert_array_equal(found, expected)
    assert joined[1:] == [None]


OTHERWISE = {
    "pruned": {"algorithm": "pruned"},
    "some": {"calibration_size": 100},
    "conformal": {"calibration": "conformal"},
    "categories": {"categorical": [3]},
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_fit__measures_rows_by_themselves_where_others_are_not_measured(name, joined):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 4))
    rows[:, 3] = rng.integers(3, size=600)
    given = {"n_neighbors": 5, "algorithm": "brute", "calibration": "loo"}

    LPE(**given | OTHERWISE[name], random_state=0).fit(rows)

    assert joined == []


def test_fit__with_a_checkpoint_measures_rows_by_themselves_if_it_is_long(
    joined, tmp_path, monkeypatch
):
    """A row is kept as soon as it is measured, and of pairs none is before the last."""
    rows = np.random.default_rng(0).standard_normal((600, 4))
    parameters = LPE(n_neighbors=5, algorithm="brute", calibration="loo").get_params()
    n_pairs, n_columns = 600 * 600, 4 + 2

    for work in (n_pairs * n_columns / 2, n_pairs * n_columns / 2 - 1):
        monkeypatch.setattr(planning, "MAX_UNKEPT_WORK", work)
        with dask.config.set({"lpe-dask.block-rows": 256, "num_workers": 2}):
            checkpoint = Checkpoint(str(tmp_path / f"{work}"))
            fitted = fit_model(parameters, rows, checkpoint.url)
        kept = np.sort(checkpoint.known(600))
        np.testing.assert_array_equal(kept, fitted.calibration.values)

    assert joined == [2, None]
