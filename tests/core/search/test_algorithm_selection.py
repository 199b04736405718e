"""What "auto" chooses: by a trial where one algorithm is clearly faster."""

from dataclasses import replace

import numpy as np
import pytest
from distributed import get_worker

from compiling import taking
from lpe_dask.search import (
    Cost,
    Preparation,
    ProblemSize,
    SearchPlan,
    Statistic,
    algorithm_selection,
)
from lpe_dask.search.trial import SampledRows

RNG = np.random.default_rng(0)


def plan_of(n_reference, n_features, n_neighbors=10):
    shape = ProblemSize(n_reference, n_features, Statistic(n_neighbors, None))
    return SearchPlan(shape, 1024, 1024, 1024, threads=1)


def chosen(sample, n_reference, n_neighbors=10):
    plan = plan_of(n_reference, sample.shape[1], n_neighbors)
    return algorithm_selection.choose_algorithm(sample, Preparation(), plan)


@pytest.fixture
def by_work(monkeypatch, compiled_kernels):
    """Let a trial take as long as the pairs and cells it counts, whatever else runs."""
    tried = SampledRows.cost

    def cost(self, *args, **kwargs):
        counted = tried(self, *args, **kwargs)
        return replace(counted, seconds=1e-9 * counted.work, pack_seconds=0.0)

    monkeypatch.setattr(SampledRows, "cost", cost)


@pytest.mark.usefixtures("by_work")
def test_choose_algorithm__prunes_where_rows_are_near_a_plane():
    plane = RNG.standard_normal((8000, 3)) @ RNG.standard_normal((3, 20))

    algorithm, reason = chosen(plane, 100_000)

    assert algorithm == "pruned"
    assert "rows of 20 features with pruning" in reason


@pytest.mark.usefixtures("by_work")
def test_choose_algorithm__does_not_prune_independent_columns():
    algorithm, reason = chosen(RNG.standard_normal((8000, 40)), 100_000)

    assert algorithm == "brute"
    assert "by a trial" in reason


def test_choose_algorithm__tries_nothing_without_compiled_kernels(monkeypatch):
    """NumPy compares all rows either way, so its times would say that pruning is no use."""
    monkeypatch.setattr(algorithm_selection, "choice_without_trial", lambda *_: None)
    monkeypatch.setattr(SampledRows, "cost", lambda *_, **__: pytest.fail("is tried"))

    with taking("defined"):
        algorithm, reason = chosen(RNG.standard_normal((8000, 12)), 9000)

    assert algorithm == "brute"
    assert "kernels are not compiled yet" in reason


@pytest.mark.usefixtures("by_work")
@pytest.mark.parametrize("statistic", [
    Statistic(10, None), Statistic(3000, None), Statistic(10, None, aggregation="mean"),
    Statistic(None, 0.5),
])  # fmt: skip
@pytest.mark.parametrize("n_reference", [3000, 20_000, 10**9])
def test_choose_algorithm__takes_any_statistic_and_sample(
    n_reference, statistic, monkeypatch
):
    """Where part of a table is searched, the sample may have more rows than that."""
    monkeypatch.setattr(algorithm_selection, "choice_without_trial", lambda *_: None)
    shape = ProblemSize(n_reference, 3, statistic)
    plan = SearchPlan(shape, 1024, 1024, 1024, threads=1)

    algorithm, reason = algorithm_selection.choose_algorithm(
        RNG.standard_normal((8000, 3)), Preparation(), plan
    )

    assert algorithm == "pruned" or n_reference < 10**9
    assert "by a trial" in reason


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize(("n_neighbors", "expected"), [(1, 1), (100, 8), (99_999, 8000)])
def test_choose_algorithm__tries_the_same_share_of_rows(n_neighbors, expected, monkeypatch):
    """Boxes leave out less for as many neighbors among fewer rows: these are further."""
    tried = []

    def cost(self, *_, **__):
        tried.append((len(self.reference), self.search.statistic.n_neighbors))
        return Cost(1.0, 1.0)

    monkeypatch.setattr(SampledRows, "cost", cost)

    chosen(RNG.standard_normal((8000, 16)), 100_000, n_neighbors)

    assert tried == [(8000, expected)] * 2


@pytest.mark.parametrize("n_features", [11, 12])
def test_choose_algorithm__prunes_without_a_trial_where_each_corner_has_rows(n_features):
    decided = algorithm_selection.choice_without_trial

    assert decided(8 * 2**n_features, n_features)[0] == "pruned"
    assert decided(8 * 2**n_features - 1, n_features) is None
    assert decided(10**9, 13) is None


def test_choose_algorithm__tries_nothing_for_few_rows(monkeypatch):
    monkeypatch.setattr(
        algorithm_selection, "_try_exact", lambda *_: pytest.fail("clear enough")
    )

    assert chosen(RNG.standard_normal((2000, 2)), 2000)[0] == "brute"
    assert chosen(RNG.standard_normal((4000, 40)), 4000)[0] == "brute"
    assert chosen(np.zeros((2000, 300)), 9000)[0] == "brute"
    assert chosen(RNG.standard_normal((8000, 3)), 100_000)[0] == "pruned"
    assert chosen(RNG.standard_normal((4000, 3)), 4000)[0] == "pruned"
    assert chosen(RNG.standard_normal((8000, 7)), 8000)[0] == "brute"
    assert chosen(RNG.standard_normal((8000, 7)), 10_000)[0] == "pruned"


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("scale", [0.0, 1e-100, 1e30, 1e150])
def test_choose_algorithm__tries_rows_of_any_size(scale):
    """Nothing overflows, of which NumPy would warn."""
    assert "by a trial" in chosen(scale * RNG.standard_normal((5000, 20)), 20_000)[1]


def test_choose_algorithm__tries_on_a_worker(client, monkeypatch):
    def try_one(name, *_):
        get_worker()  # fails anywhere else
        return Cost(1.0, {"brute": 2.0, "pruned": 1.0}[name])

    monkeypatch.setattr(algorithm_selection, "_try_one", try_one)

    assert chosen(RNG.standard_normal((8000, 40)), 100_000)[0] == "pruned"


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("seconds", [(2e-6, 2e-6), (3e-6, 2e-6)])
def test_choose_algorithm__prunes_where_the_processor_was_slow_for_a_moment(
    monkeypatch, seconds
):
    """A trial of fewer rows that took as long does not say that more rows cost nothing."""
    tried = SampledRows._tried

    def taken(self, rows, *args, **kwargs):
        counted = tried(self, rows, *args, **kwargs)
        if self.space.prunes:
            return replace(counted, seconds=2e-6, pack_seconds=0.0)
        is_whole = len(rows) == len(self.reference)
        return replace(counted, seconds=seconds[is_whole], pack_seconds=0.0)

    monkeypatch.setattr(SampledRows, "_tried", taken)

    flat = RNG.standard_normal((16_000, 8)) @ RNG.standard_normal((8, 16))

    assert chosen(flat, 3_000_000)[0] == "pruned"
