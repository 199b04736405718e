"""What is found in parts, and added up."""

import itertools
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lpe_dask.batch.found import Extremes, Found
from lpe_dask.pvalues import PValueBins

#: Of ten calibration rows without ties.
BINS = PValueBins.of(np.arange(1, 11), 0.2, 0)


@st.composite
def scored(draw):
    """p-values and statistics on a coarse grid, some missing, and where they are cut."""
    n_rows = draw(st.integers(1, 30))
    grid = st.integers(0, 10).map(lambda j: j / 10) | st.just(np.nan)
    p_values = draw(npst.arrays(np.float64, n_rows, elements=grid))
    statistic = draw(npst.arrays(np.float64, n_rows, elements=st.sampled_from([0, 1, 2])))
    cuts = draw(st.lists(st.integers(0, n_rows), max_size=3).map(sorted))
    return p_values, statistic, [0, *cuts, n_rows]


def values_of(rows):
    """Counts of one column, as if 1 were missing and 2 were unseen."""
    return np.array([(rows == 1).sum()]), np.array([(rows == 2).sum()])


def found_in(p_values, statistic, edges, graph):
    return [
        Found.of(
            p_values[start:stop], statistic[start:stop], p_values[start:stop] <= 0.2,
            BINS, graph, number, values_of(statistic[start:stop]),
        )
        for number, (start, stop) in enumerate(itertools.pairwise(edges))
    ]  # fmt: skip


@given(scored(), st.sampled_from(["knn", "radius"]))
def test_found_joined__does_not_depend_on_how_rows_are_cut(table, graph):
    p_values, statistic, edges = table
    whole = Found.joined(found_in(p_values, statistic, [0, len(p_values)], graph), graph)
    parts = Found.joined(found_in(p_values, statistic, edges, graph), graph)
    assert parts.counts == whole.counts
    np.testing.assert_array_equal(parts.bins, whole.bins)
    missing, unseen = values_of(statistic)
    assert (parts.missing, parts.unseen) == (whole.missing, whole.unseen)
    assert (parts.missing, parts.unseen) == (missing, unseen)
    np.testing.assert_array_equal(parts.extremes.p_values, whole.extremes.p_values)
    np.testing.assert_array_equal(parts.extremes.statistic, whole.extremes.statistic)
    places = np.array(edges)[parts.extremes.parts] + parts.extremes.places
    np.testing.assert_array_equal(places, whole.extremes.places)


@given(scored(), st.sampled_from(["knn", "radius"]), st.integers(1, 5))
def test_extremes_of__are_the_first_by_p_value_statistic_and_place(table, graph, most):
    p_values, statistic, _ = table
    extremes = Extremes.of(p_values, statistic, graph, 7, most)
    sign = -1 if graph == "knn" else 1
    measured = [i for i in range(len(p_values)) if p_values[i] == p_values[i]]
    first = sorted(measured, key=lambda i: (p_values[i], sign * statistic[i], i))[:most]
    assert extremes.places.tolist() == first
    assert set(extremes.parts.tolist()) <= {7}


@given(scored())
def test_found_from_json__is_what_was_converted(table):
    (found,) = found_in(*table[:2], [0, len(table[0])], "knn")
    copy = Found.from_json(json.loads(json.dumps(found.as_json())), 0)
    assert copy.counts == found.counts
    for own, other in zip(
        (found.bins, found.missing, found.unseen, *found.extremes.columns()),
        (copy.bins, copy.missing, copy.unseen, *copy.extremes.columns()), strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(own, other)


def test_found_from_json__keeps_infinite_statistics():
    found = Found.of(
        np.array([0.0]),
        np.array([np.inf]),
        np.array([True]),
        BINS,
        "knn",
        3,
        values_of(np.zeros(1)),
    )
    copy = Found.from_json(json.loads(json.dumps(found.as_json())), 3)
    assert copy.extremes.statistic.tolist() == [np.inf]
