"""What "auto" chooses: by a trial where one algorithm is clearly faster."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from distributed import get_worker

from lpe_dask import LPE
from lpe_dask.search import Cost, Preparation, SearchPlan, SearchShape, Statistic, choice

RNG = np.random.default_rng(0)


def plan_of(n_reference, n_features, n_neighbors=10):
    shape = SearchShape(n_reference, n_features, Statistic(n_neighbors, None))
    return SearchPlan(shape, 1024, 1024, 1024, threads=1)


def chosen(sample, n_reference, n_neighbors=10):
    plan = plan_of(n_reference, sample.shape[1], n_neighbors)
    return choice.choose_algorithm(sample, Preparation(), plan)


def test_choose_algorithm__prunes_where_rows_are_near_a_plane():
    plane = RNG.standard_normal((8000, 3)) @ RNG.standard_normal((3, 20))

    algorithm, reason = chosen(plane, 100_000)

    assert algorithm == "pruned"
    assert "rows of 20 features with pruning" in reason


def test_choose_algorithm__does_not_prune_independent_columns():
    algorithm, reason = chosen(RNG.standard_normal((8000, 40)), 100_000)

    assert algorithm == "brute"
    assert "by a trial" in reason


@pytest.mark.parametrize("statistic", [
    Statistic(10, None), Statistic(3000, None), Statistic(10, None, aggregation="mean"),
    Statistic(None, 0.5),
])  # fmt: skip
@pytest.mark.parametrize("n_reference", [3000, 20_000, 10**9])
def test_choose_algorithm__takes_any_statistic_and_sample(
    n_reference, statistic, monkeypatch
):
    """Where part of a table is searched, the sample may have more rows than that."""
    monkeypatch.setattr(choice, "clear_choice", lambda *_: None)
    shape = SearchShape(n_reference, 3, statistic)
    plan = SearchPlan(shape, 1024, 1024, 1024, threads=1)

    algorithm, reason = choice.choose_algorithm(
        RNG.standard_normal((8000, 3)), Preparation(), plan
    )

    assert algorithm == "pruned" or n_reference == 3000
    assert "by a trial" in reason


def test_choose_algorithm__tries_nothing_for_few_rows(monkeypatch):
    monkeypatch.setattr(choice, "_try_exact", lambda *_: pytest.fail("clear enough"))

    assert chosen(RNG.standard_normal((2000, 2)), 2000)[0] == "brute"
    assert chosen(RNG.standard_normal((4000, 40)), 4000)[0] == "brute"
    assert chosen(np.zeros((2000, 300)), 9000)[0] == "brute"
    assert chosen(RNG.standard_normal((8000, 3)), 100_000)[0] == "pruned"
    assert chosen(RNG.standard_normal((4000, 3)), 4000)[0] == "pruned"


@pytest.mark.parametrize("scale", [0.0, 1e-100, 1e30, 1e150])
def test_choose_algorithm__tries_rows_of_any_size(scale):
    """Nothing overflows, of which NumPy would warn."""
    assert "by a trial" in chosen(scale * RNG.standard_normal((5000, 20)), 20_000)[1]


@pytest.mark.parametrize("algorithm", ["brute", "pruned"])
def test_fit__has_the_same_bits_whatever_is_chosen(algorithm, monkeypatch, caplog):
    rows = RNG.integers(0, 9, (4000, 4)) * 0.1
    expected = LPE(5, algorithm="brute").fit(rows).p_values_
    seconds = {"brute": 1.0, "pruned": 1.0, algorithm: 0.5}
    tried = {name: Cost(1.0, seconds[name]) for name in seconds}
    monkeypatch.setattr(choice, "clear_choice", lambda *_: None)
    monkeypatch.setattr(choice, "_try_each", lambda *_: tried)

    with caplog.at_level("INFO"):
        model = LPE(5, algorithm="auto").fit(rows)
        actual = model.p_values_

    assert model.algorithm_ == algorithm
    np.testing.assert_array_equal(actual, expected)
    assert f"algorithm={algorithm}: by a trial" in caplog.text


def test_choose_algorithm__tries_on_a_worker(client, monkeypatch):
    def try_each(rows, weights, search, n_reference):
        get_worker()  # fails anywhere else
        return {"brute": Cost(1.0, 2.0), "pruned": Cost(1.0, 1.0)}

    monkeypatch.setattr(choice, "_try_each", try_each)

    assert chosen(RNG.standard_normal((8000, 40)), 100_000)[0] == "pruned"


def approximated(sample, n_reference, n_exact=0):
    """Return what is chosen where a pair takes as long as it does on one machine."""
    plan, try_each = plan_of(n_reference, sample.shape[1]), choice._try_each
    price = 1e-9 * (0.08 + 0.0146 * sample.shape[1])

    def at_settled_prices(*given):
        tried = try_each(*given)
        return {name: Cost(c.pairs, price * c.pairs) for name, c in tried.items()}

    with patch.object(choice, "_try_each", at_settled_prices):
        return choice.choose_approximate(sample, Preparation(), plan, n_exact, 1)


def in_columns(n_directions, n_features, n_rows=6000):
    """Return rows that vary in some directions, of many columns."""
    directions = RNG.standard_normal((n_directions, n_features))
    return RNG.standard_normal((n_rows, n_directions)) @ directions


def test_choose_approximate__is_for_many_rows_of_many_columns():
    wide = in_columns(20, 256)

    assert approximated(wide, 2_000_000)[0]
    assert not approximated(wide, 20_000)[0]
    assert not approximated(wide[:, :16], 2_000_000)[0]
    assert not approximated(wide, 2000)[0]
    assert "along a graph" in approximated(wide, 2_000_000)[1]


def test_choose_approximate__counts_what_is_measured_exactly():
    wide = in_columns(20, 256)

    assert not approximated(wide, 2_000_000, n_exact=1_000_000)[0]


@pytest.mark.parametrize(
    ("n_directions", "is_taken"), [(16, True), (24, True), (48, False)]
)
def test_choose_approximate__is_for_few_directions_near_a_row(n_directions, is_taken):
    found, reason = approximated(in_columns(n_directions, 256, 8000), 2_000_000)

    assert found == is_taken
    assert ("directions near each other" in reason) != is_taken


@pytest.mark.parametrize(("n_clusters", "spread"), [(1, 1.0), (20, 1.0), (20, 1000.0)])
def test_intrinsic_dimension__is_one_near_rows(n_clusters, spread):
    """However they are bent, and whatever is far from them."""
    along = RNG.standard_normal((8000, 1))
    rows = np.sin(along * RNG.standard_normal(100))
    centers = spread * RNG.standard_normal((n_clusters, 100))

    found = choice.intrinsic_dimension(rows + centers[RNG.integers(0, n_clusters, 8000)])

    assert 0.9 <= found <= 1.1


@pytest.mark.parametrize("rows", [
    np.ones((600, 3)),
    np.maximum(0.5, RNG.standard_normal((600, 1))),
    np.eye(600),
    RNG.standard_normal((600, 3)) * 1e300,
], ids=["equal", "mostly equal", "equally far", "too far"])  # fmt: skip
def test_intrinsic_dimension__is_infinite_where_it_cannot_be_told(rows):
    assert choice.intrinsic_dimension(rows) == math.inf


def test_choose_approximate__keeps_boxes_where_they_leave_few_pairs():
    clusters = 100.0 * RNG.standard_normal((50, 64))
    rows = clusters[RNG.integers(0, 50, 8000)] + RNG.standard_normal((8000, 64))

    is_taken, reason = approximated(rows, 2_000_000)

    assert not is_taken
    assert "boxes leave" in reason
