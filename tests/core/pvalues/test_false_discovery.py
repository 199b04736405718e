"""Flags and q-values are as defined, for any chunks, kinds and schedulers."""

import math
from itertools import pairwise
from uuid import uuid4

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask import LPE, false_discovery_control, score
from lpe_dask.pvalues.false_discovery import MERGED_HISTOGRAMS, adjustment

NAN = math.nan
SHARES = [0.9, 0.02, NAN, 0.02, 0.5, 0.001, 0.07, NAN, 0.3, 0.05]
FLAGS = [False, True, False, True, False, True, False, False, False, True]
Q = 0.1  # 0.05 * (8 / 4), which is 0.1 itself in float64
INDEX = pd.Index(range(5, 25, 2), name="id")


@st.composite
def coarse_p_values(draw):
    """Shares of a few nominal rows, so that ties are the usual case; NaN among them."""
    n_nominal = draw(st.integers(1, 12))
    shares = st.integers(0, n_nominal).map(lambda count: count / n_nominal)
    low = st.sampled_from([0.0, 1e-300, 0.001, 0.01])
    return draw(st.lists(shares | low | st.just(NAN), max_size=25))


@st.composite
def cuts(draw, n_rows):
    """Any chunks, also empty ones."""
    edges = draw(st.lists(st.integers(0, n_rows), max_size=20))
    return tuple(b - a for a, b in pairwise([0, *sorted(edges), n_rows]))


@st.composite
def levels(draw, p_values):
    """A rate, most often just at an adjusted p-value or one float beside it."""
    adjusted = adjusted_by_scipy(p_values)
    near = [math.nextafter(a, b) for a in adjusted for b in (-1.0, a, 2.0)]
    some = st.floats(0, 1, exclude_min=True, exclude_max=True)
    return draw(st.sampled_from([q for q in near if 0 < q < 1] or [0.5]) | some)


def adjusted_by_scipy(p_values):
    known = [p for p in p_values if not math.isnan(p)]
    return scipy.stats.false_discovery_control(known).tolist() if known else []


def in_chunks(p_values, chunks):
    """Return a dask array in these chunks; joining arrays would drop the empty ones."""
    edges = np.cumsum([0, *chunks])
    parts = [np.array(p_values, float)[a:b] for a, b in pairwise(edges)]
    name = f"parts-{uuid4().hex}"
    tasks = {(name, i): part for i, part in enumerate(parts)}
    return da.Array(tasks, name, (chunks,), dtype=float)


def in_partitions(p_values, chunks):
    """Return a dask Series in these partitions, likewise."""
    edges, series = np.cumsum([0, *chunks]), pd.Series(p_values, dtype=float)
    parts = [dask.delayed(series.iloc[a:b]) for a, b in pairwise(edges)]
    return dd.from_delayed(parts, meta=series.iloc[:0], verify_meta=False)


@given(data=st.data(), p_values=coarse_p_values())
def test_results__equal_definition_and_scipy_for_any_chunks(data, p_values):
    q = data.draw(levels(p_values))
    chunks = data.draw(cuts(len(p_values)))
    known = ~np.isnan(np.array(p_values, float))
    adjusted = np.full(len(p_values), NAN)
    adjusted[known] = adjusted_by_scipy(p_values)
    flags = definitions.benjamini_hochberg(p_values, q)
    assert (adjusted <= q).tolist() == flags

    kinds = [p_values, pd.Series(p_values, dtype=float)]
    for given_as in (*kinds, in_chunks(p_values, chunks), in_partitions(p_values, chunks)):
        actual = false_discovery_control(given_as, q)
        q_values = false_discovery_control(given_as, adjusted=True)
        actual, q_values = dask.compute(actual, q_values, scheduler="sync")

        assert (actual.dtype, q_values.dtype) == (bool, np.float64)
        assert actual.tolist() == flags
        np.testing.assert_array_equal(q_values, adjusted)


def test_results__of_many_p_values_equal_those_of_scipy():
    """With p-values as a model gives them, and with no two alike."""
    smooth = np.random.default_rng(0).random(20_000) ** 3

    for p_values in (smooth, np.floor(smooth * 1001) / 1000):
        expected = scipy.stats.false_discovery_control(p_values)
        array = da.from_array(p_values, chunks=200)
        frame = dd.from_pandas(pd.Series(p_values), npartitions=100)
        for given_as in (p_values, array, frame):
            actual = false_discovery_control(given_as, adjusted=True)
            np.testing.assert_array_equal(actual, expected)
            for q in (0.01, 0.1, 0.3):
                assert 0 < (expected <= q).sum() < len(p_values)
                actual = false_discovery_control(given_as, q)
                np.testing.assert_array_equal(actual, expected <= q)


@pytest.mark.parametrize("name", ["is_anomaly", "q_value"])
def test_results__come_in_the_kind_of_the_p_values(name, at_most_computes):
    options = {"q": Q} if name == "is_anomaly" else {"adjusted": True}
    series = pd.Series(SHARES, INDEX, name="p_value")
    expected = pd.Series(np.nan, INDEX, name="q_value")
    expected[series.notna()] = adjusted_by_scipy(SHARES)
    if name == "is_anomaly":
        expected = pd.Series(FLAGS, INDEX, name="is_anomaly")
    array = da.from_array(np.array(SHARES), chunks=3)
    frame = dd.from_pandas(series, npartitions=4)

    with at_most_computes(0):
        of_array = false_discovery_control(array, **options)
        of_frame = false_discovery_control(frame, **options)
        of_unknown = false_discovery_control(frame.clear_divisions(), **options)

    of_series = false_discovery_control(series, **options)
    pd.testing.assert_series_equal(of_series, expected, check_exact=True)
    assert (of_array.chunks, of_array.dtype) == (array.chunks, expected.dtype)
    assert of_array.name.startswith("lpe-")
    np.testing.assert_array_equal(of_array.compute(), expected)
    np.testing.assert_array_equal(false_discovery_control(SHARES, **options), expected)
    assert (of_frame.divisions, of_unknown.divisions) == (frame.divisions, (None,) * 5)
    for result in (of_frame, of_unknown):
        assert (result.name, result.dtype) == (name, expected.dtype)
        pd.testing.assert_series_equal(result.compute(), expected, check_exact=True)


def test_flags__go_into_the_frame_that_was_scored():
    """Without divisions there is no other way to know that the rows belong together."""
    rows = pd.DataFrame(
        np.random.default_rng(0).standard_normal((60, 2)), columns=["a", "b"]
    )
    rows.iloc[7] = 9.0
    model = LPE(3).fit(rows.iloc[20:])
    frame = dd.from_pandas(rows, npartitions=4).clear_divisions()

    p_values = model.score_samples(frame)
    actual = frame.assign(is_anomaly=false_discovery_control(p_values)).compute()

    expected = false_discovery_control(model.score_samples(rows))
    assert 0 < expected.sum() < len(rows)
    pd.testing.assert_series_equal(actual["is_anomaly"], expected)


def test_flags__of_rows_against_themselves_are_none():
    """Their p-values are ranks, whatever the rows are: no more are small than by chance."""
    rows = np.random.default_rng(0).integers(-3, 4, (60, 2)).astype(float)
    rows[7] = 99.0

    p_values = score(rows, n_neighbors=3)

    assert p_values.min() < 0.02
    assert not false_discovery_control(p_values, 0.99).any()


def test_flags__of_an_array_with_unknown_chunks():
    array = dd.from_pandas(pd.Series(SHARES), npartitions=3).to_dask_array()
    assert math.isnan(array.shape[0])

    assert false_discovery_control(array, Q).compute().tolist() == FLAGS


def test_p_values__are_computed_once():
    calls = []
    array = da.from_array(np.array(SHARES), chunks=2)
    p_values = array.map_blocks(lambda part: calls.append(len(part)) or part, meta=array)

    flags = false_discovery_control(p_values, Q)
    q_values = false_discovery_control(p_values, adjusted=True)
    assert calls == []

    assert flags.compute(scheduler="sync").tolist() == FLAGS
    assert calls == [2] * 5
    assert (q_values <= Q).compute(scheduler="sync").tolist() == FLAGS
    assert calls == [2] * 10


def test_adjustment__is_one_task_and_as_short_as_can_be(at_most_computes):
    array = da.from_array(np.array([*SHARES, 0.4, 0.4]), chunks=3)
    with at_most_computes(0):
        lazy = adjustment(array)

    steps = lazy.compute()

    assert steps.p_values.tolist() == [0.001, 0.02, 0.05, 0.07, 0.4, 0.5, 0.9]
    assert steps.cut_off(0.13) == 0.05
    assert math.isnan(steps.cut_off(1e-9))


@pytest.mark.parametrize("n_blocks", [1, 2, 8, 9, 64, 65, 600])
def test_graph__task_count(n_blocks):
    """A task to count and one to flag each block, and a tree that ends in the cut-off."""
    array = da.zeros(n_blocks, chunks=1)
    n_merges, width = 0, n_blocks
    while width > 1 or n_merges == 0:
        width = -(-width // MERGED_HISTOGRAMS)
        n_merges += width

    for result, n_flags in (
        (adjustment(array), 0),
        (false_discovery_control(array, Q), n_blocks),
        (false_discovery_control(array, adjusted=True), n_blocks),
    ):
        graph = dict(result.__dask_graph__())
        n_own = len(graph) - len(dict(array.__dask_graph__()))
        names = [key[0] if isinstance(key, tuple) else key for key in graph]
        own = [name for name in names if name.startswith("lpe-")]
        assert n_own == len(own) == n_blocks + n_merges + n_flags


def test_graph__of_a_dask_series_task_count():
    frame = dd.from_pandas(pd.Series(np.zeros(65)), npartitions=65)

    for adjusted in (False, True):
        result = false_discovery_control(frame, Q, adjusted=adjusted)
        graph = result.optimize().__dask_graph__()

        assert len(graph) - 65 == 65 + (9 + 2 + 1) + 65


def test_flags__of_nothing_and_of_nothing_measured():
    empty, unmeasured = np.empty(0), np.full(3, NAN)

    for p_values in (empty, unmeasured):
        expected = [False] * len(p_values)
        series = pd.Series(p_values)
        for given_as in (p_values, series, da.from_array(p_values, chunks=1)):
            actual = np.asarray(false_discovery_control(given_as))
            assert (actual.tolist(), actual.dtype) == (expected, bool)
            q_values = np.asarray(false_discovery_control(given_as, adjusted=True))
            np.testing.assert_array_equal(q_values, p_values)
        frame = dd.from_pandas(series, npartitions=1)
        assert false_discovery_control(frame).compute().tolist() == expected
    assert false_discovery_control([]).shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "Float64", "double[pyarrow]"])
def test_flags__of_other_numbers(dtype):
    """They are compared as float64, and what pandas calls missing is NaN."""
    series = pd.Series(SHARES, INDEX).astype(dtype)
    series = series.mask(series.isna())

    actual = false_discovery_control(series, 0.11)
    lazy = false_discovery_control(dd.from_pandas(series, npartitions=3), 0.11)

    assert actual.tolist() == FLAGS
    pd.testing.assert_series_equal(lazy.compute(), actual)


def test_flags__of_whole_numbers():
    assert false_discovery_control([0, 1, 1]).tolist() == [True, False, False]


@pytest.mark.parametrize("q", [0, 1, -0.1, 1.5, NAN, "0.1", None, True])
def test_q__is_a_number_between_0_and_1(q):
    with pytest.raises(ValueError, match=r"q=.* must be a number between 0 and 1"):
        false_discovery_control(SHARES, q)


@pytest.mark.parametrize("bad", [-1e-9, math.nextafter(1, 2), math.inf, -math.inf])
def test_p_values__lie_between_0_and_1(bad):
    series = pd.Series([0.5, NAN, bad])

    for kind in (np.asarray, pd.Series, da.from_array, lambda x: dd.from_pandas(x, 2)):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*Pass what score or"):
            dask.compute(false_discovery_control(kind(series)), scheduler="sync")


DIMENSION, NUMBERS = r"1 dimension, but have [02].*Choose", r"must be real numbers, but"


@pytest.mark.parametrize(
    ("p_values", "error", "message"),
    [
        (0.5, ValueError, DIMENSION),
        (np.zeros((3, 1)), ValueError, DIMENSION),
        (pd.DataFrame({"p_value": [0.5]}), ValueError, DIMENSION),
        (da.zeros((3, 1)), ValueError, DIMENSION),
        (dd.from_pandas(pd.DataFrame({"p": [0.5]}), 1), ValueError, DIMENSION),
        (["0.5"], TypeError, NUMBERS),
        (np.array([0.5, None]), TypeError, NUMBERS),
        (np.array([True]), TypeError, NUMBERS),
        (np.array([0.5j]), TypeError, NUMBERS),
        (pd.Series([0.5]).astype("category"), TypeError, NUMBERS),
        (da.from_array(np.array(["0.5"])), TypeError, NUMBERS),
        (dd.from_pandas(pd.Series(["0.5"]), 1), TypeError, NUMBERS),
        (dask.delayed([0.5]), TypeError, r"came as Delayed.*from_delayed"),
        (dask.bag.from_sequence([0.5]), TypeError, r"came as Bag.*from_delayed"),
    ],
    ids=lambda value: type(value).__module__,
)
def test_p_values__are_real_numbers_of_one_dimension(p_values, error, message):
    with pytest.raises(error, match=message):
        false_discovery_control(p_values)
