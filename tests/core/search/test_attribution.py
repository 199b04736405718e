"""Nearest rows and shares from blocks: right however they are cut, and the same bits."""

from unittest import mock

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choosing import mostly_dealt
from lpe_dask import LPE
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.model.detector import fitted_of
from lpe_dask.search import plan as plans
from lpe_dask.search import reference as references
from lpe_dask.search.attribution import (
    Attribution,
    TypicalSizes,
    attribute,
    list_nearest,
    typical_task,
)
from lpe_dask.search.blocks.packing import Space, prepare_blocks
from lpe_dask.search.feature_contributions import USUAL_LEVELS
from lpe_dask.search.join import JoinInputs, JoinSpec
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.plan import MIN_SAMPLED_NEIGHBORS, Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.tasks.spool import spool_at
from oracle import Oracle
from problems import lattice
from searching import EXACT
from strategies import point_sets, row_chunks


def space_of(reference, algorithm, *, with_samples=False):
    basis = ALGORITHMS[algorithm].basis(reference)
    return Space(algorithm, Preparation(), basis, with_samples)


def blocks_of(reference, space, chunks, entry=None, n_regions=3):
    regions = None
    if space.prunes:
        regions = learn_regions(space.basis.points(reference), n_regions)
    return prepare_blocks(lambda: chunked(reference, chunks), space, entry, regions)


def chunked(rows, chunks):
    return da.from_array(rows, chunks=(chunks, -1))


def searched_in(reference, algorithm, statistic, chunks, *, n_regions=3, **options):
    space = space_of(reference, algorithm, **options)
    blocks = blocks_of(reference, space, chunks, n_regions=n_regions)
    return JoinInputs(blocks.tasks(), space, JoinSpec(statistic, 64))


def joined(tasks):
    found = dask.compute(*tasks, scheduler="sync")
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


def directions_of(queries, reference, distances, numbers):
    """How much more of each share is of smaller numbers than of larger ones, -1 to 1."""
    found = np.full(queries.shape, np.nan)
    for (i, c), x in np.ndenumerate(queries):
        above = below = 0.0
        for d, j in zip(distances[i], numbers[i], strict=True):
            if 0 < d < np.inf:
                part = (x - reference[j, c]) ** 2 / d
                above, below = (
                    above + part * (x > reference[j, c]),
                    below + part * (x < reference[j, c]),
                )
        if above + below > 0:
            found[i, c] = (above - below) / (above + below)
    return found


def nearest_of(oracle, queries, n_neighbors, own=None):
    """Distances and numbers; inf and -1 where there are no more."""
    shape = (len(queries), n_neighbors)
    distances, numbers = np.full(shape, np.inf), np.full(shape, -1)
    nearest = oracle.nearest(pd.DataFrame(queries), n_neighbors, own)
    for i, k in ((i, k) for i, of_row in enumerate(nearest) for k in range(len(of_row))):
        distances[i, k], numbers[i, k] = nearest[i][k]
    return distances, numbers


@st.composite
def with_own(draw, queries, reference):
    """Queries some of which may be rows of the reference, and which ones."""
    if not draw(st.booleans()):
        return queries, None
    drawn = st.integers(-1, len(reference) - 1)
    own = np.array([draw(drawn) for _ in queries])
    return np.where(own[:, None] < 0, queries, reference[own]), own


statistics = st.builds(
    Statistic,
    st.none() | st.integers(1, 15),
    st.just(1.0),
    aggregation=st.sampled_from(["kth", "mean"]),
)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), n_features=st.integers(1, 3))
def test_tasks__are_the_definition_for_any_chunks(algorithm, data, n_features):
    reference = data.draw(point_sets(n_features=n_features))
    queries = data.draw(point_sets(n_features=n_features))
    n_listed = data.draw(st.integers(1, 15) | st.just(MIN_SAMPLED_NEIGHBORS))
    statistic, n_tasks = data.draw(statistics), data.draw(st.integers(1, 4))
    queries, own = data.draw(with_own(queries, reference))
    oracle = Oracle(reference, n_neighbors=statistic.n_neighbors, calibration="loo")

    with dask.config.set(scheduler="sync"):
        searched = searched_in(
            reference, algorithm, statistic, data.draw(row_chunks(len(reference))),
            with_samples=data.draw(st.booleans()), n_regions=data.draw(st.integers(1, 5)),
        )  # fmt: skip
        rows = chunked(queries, data.draw(row_chunks(len(queries))))
        listed = joined(list_nearest(rows, searched, n_tasks, n_listed, own))
        found = Attribution(*joined(attribute(rows, searched, n_tasks, own)))

    for values, right in zip(
        listed, nearest_of(oracle, queries, n_listed, own), strict=True
    ):
        np.testing.assert_array_equal(values, right)
    np.testing.assert_array_equal(found.rows, queries)
    right = oracle.shares(pd.DataFrame(queries), own)
    np.testing.assert_allclose(found.shares, right, rtol=0, atol=1e-12)
    near = nearest_of(oracle, queries, statistic.n_neighbors or 20, own)
    right = directions_of(queries, reference, *near)
    np.testing.assert_allclose(found.directions, right, rtol=0, atol=1e-12)
    (distances,), (numbers,) = (values.T for values in nearest_of(oracle, queries, 1, own))
    nearest = np.where(numbers[:, None] < 0, np.nan, reference[numbers])
    np.testing.assert_array_equal(found.nearest, nearest)
    np.testing.assert_array_equal(found.distances, distances)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), reference=point_sets(min_rows=2))
def test_typical_task__leaves_each_row_out(algorithm, data, reference):
    """Of shares the mean is taken, with one row that has the same of each column."""
    statistic = data.draw(statistics)
    numbers = st.lists(st.integers(0, len(reference) - 1), min_size=1, unique=True)
    chosen, n_measured = np.sort(data.draw(numbers)), data.draw(st.integers(1, 9))
    n_features = reference.shape[1]

    with dask.config.set(scheduler="sync"):
        chunks = data.draw(row_chunks(len(reference)))
        searched = searched_in(reference, algorithm, statistic, chunks)
        sizes = TypicalSizes(n_features, len(chosen), n_measured)
        task = typical_task(chosen, searched, sizes)
        (typical,) = dask.compute(task)

    usual = np.quantile(reference[chosen], USUAL_LEVELS, axis=0, method="inverted_cdf")
    np.testing.assert_array_equal(typical.usual.quantiles, usual)
    measured = chosen[:: -(-len(chosen) // n_measured)]
    assert len(measured) <= n_measured
    oracle = Oracle(reference, n_neighbors=statistic.n_neighbors, calibration="loo")
    right = oracle.shares(pd.DataFrame(reference[measured]), measured)
    shares = [*right[~np.isnan(right).any(axis=1)], np.full(n_features, 1 / n_features)]
    np.testing.assert_allclose(typical.shares, np.mean(shares, axis=0), rtol=0, atol=1e-12)


WAYS = EXACT, ["kth", "mean"]


@pytest.mark.parametrize(("algorithm", "aggregation"), mostly_dealt(*WAYS))
def test_attribute__in_many_passes_has_the_same_bits(algorithm, aggregation, monkeypatch):
    """Some rows at a time, and a few of their neighbors, where they are many or wide."""
    reference, queries = lattice(500, 0), lattice(90, 1, -3, 13)
    queries[7, 1] = np.nan
    statistic = Statistic(60, None, aggregation=aggregation)
    options = {"with_samples": True}
    searched = searched_in(reference, algorithm, statistic, 100, **options)
    rows, numbers = chunked(queries, 90), np.arange(90) * 5
    at_once = [
        joined(attribute(rows, searched, 1)), joined(attribute(rows, searched, 1, numbers)),
        joined(list_nearest(rows, searched, 1, 60, numbers)),
    ]  # fmt: skip

    row_bytes = (8 * 3 + 8 * 60 + 24) * 8
    monkeypatch.setattr(plans, "LISTED_BYTES", 7 * row_bytes)
    monkeypatch.setattr(plans, "GATHERED_BYTES", 4 * 7 * 3 * 8)
    assert plans.listing_pass_rows(3, 60) == 7
    assert plans.gather_batch(7, 3) == 4
    in_passes = [
        joined(attribute(rows, searched, 3)), joined(attribute(rows, searched, 3, numbers)),
        joined(list_nearest(rows, searched, 3, 60, numbers)),
    ]  # fmt: skip

    for some, right in zip(in_passes, at_once, strict=True):
        for values, expected in zip(some, right, strict=True):
            np.testing.assert_array_equal(values, expected)
    _, shares, *_ = at_once[0]
    assert np.isnan(shares[7]).all()
    assert not np.isnan(shares[8]).any()


SEARCHES = EXACT, [3, MIN_SAMPLED_NEIGHBORS, 400]


@pytest.mark.parametrize(
    ("algorithm", "n_neighbors"),
    mostly_dealt(*SEARCHES),
)
def test_list_nearest__of_many_rows_needs_no_samples(algorithm, n_neighbors, tmp_path):
    """A model of a small K has no samples, from which a search for many begins."""
    reference, queries = lattice(500, 0), lattice(30, 1, -3, 13)
    spools = spool_at(str(tmp_path))
    found = []
    for with_samples in (False, True):
        space = space_of(reference, algorithm, with_samples=with_samples)
        for entry in (None, spools.folder("blocks")):
            with dask.config.set(scheduler="sync"):
                blocks = blocks_of(reference, space, 70, entry)
            searched = JoinInputs(blocks.tasks(), space, JoinSpec(Statistic(3, None), 64))
            rows = chunked(queries, 30)
            found.append(joined(list_nearest(rows, searched, 2, n_neighbors)))

    right = nearest_of(Oracle(reference, calibration="loo"), queries, n_neighbors)
    for distances, numbers in found:
        np.testing.assert_array_equal(distances, right[0])
        np.testing.assert_array_equal(numbers, right[1])


def test_tasks__of_no_rows():
    reference = lattice(50, 0)
    searched = searched_in(reference, "brute", Statistic(3, None), 20)
    none = chunked(reference[:0], 1)

    found = joined(attribute(none, searched, 2))
    assert [values.shape for values in found] == [(0, 3)] * 4 + [(0,)]
    found = joined(list_nearest(none, searched, 2, 4))
    assert [values.shape for values in found] == [(0, 4), (0, 4)]


def test_typical_shares__are_computed_once(at_most_computes):
    reference = fitted_of(LPE(3).fit(lattice(300, 0))).reference
    rows = chunked(lattice(20, 1), 20)

    with mock.patch.object(references, "typical_task", wraps=typical_task) as asked:
        with at_most_computes(1):
            _, first = reference.attributed(rows)
        with at_most_computes(1):
            _, again = reference.attributed(rows)

    assert asked.call_count == 1
    assert again is first
    assert abs(first.shares.sum() - 1) < 1e-12


def test_usual__is_that_of_a_sample_where_rows_are_many(monkeypatch):
    rows = lattice(400, 0)
    usual = []
    for most in (400, 399):
        monkeypatch.setattr(references, "USUAL_ROWS", most)
        reference = fitted_of(LPE(3).fit(rows)).reference
        usual.append(reference.attributed(chunked(rows[:5], 5))[1].usual)

    drawn = np.random.default_rng(0).choice(400, 399, replace=False)
    for found, among in zip(usual, (rows, rows[drawn]), strict=True):
        right = np.quantile(among, USUAL_LEVELS, axis=0, method="inverted_cdf")
        np.testing.assert_array_equal(found.quantiles, right)
