"""Statistics of parts, and of all parts together."""

import itertools
import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lpe_dask.batch.part_stats import PartStats, top_anomalies
from lpe_dask.monitoring import PValueBins

#: Of ten calibration rows without ties.
BINS = PValueBins.of(np.arange(1, 11), 0.2, 0)


@st.composite
def scored(draw):
    """p-values and statistics on a coarse grid, some missing, and where they are cut."""
    n_rows = draw(st.integers(1, 30))
    grid = st.integers(0, 10).map(lambda j: j / 10) | st.just(np.nan)
    p_values = draw(npst.arrays(np.float64, n_rows, elements=grid))
    levels = st.sampled_from([0, 1, 2, np.inf])
    statistic = draw(npst.arrays(np.float64, n_rows, elements=levels))
    cuts = draw(st.lists(st.integers(0, n_rows), max_size=3).map(sorted))
    return p_values, statistic, [0, *cuts, n_rows]


def values_of(rows):
    """Counts of one column, as if 1 were missing and 2 were unseen; and of two statuses."""
    counts = [(rows == value).sum() for value in (1, 2, 0, np.inf)]
    return np.array(counts[:1]), np.array(counts[1:2]), np.array(counts[2:])


def stats_of(p_values, statistic, edges, graph):
    return [
        PartStats.of(
            BINS, graph, number, p_values[start:stop], statistic[start:stop],
            p_values[start:stop] <= 0.2, values_of(statistic[start:stop]),
        )
        for number, (start, stop) in enumerate(itertools.pairwise(edges))
    ]  # fmt: skip


@given(scored(), st.sampled_from(["knn", "radius"]))
def test_merge__does_not_depend_on_how_rows_are_cut(table, graph):
    p_values, statistic, edges = table
    whole = PartStats.merge(stats_of(p_values, statistic, [0, len(p_values)], graph), graph)
    parts = PartStats.merge(stats_of(p_values, statistic, edges, graph), graph)

    assert parts.counts == whole.counts
    np.testing.assert_array_equal(parts.bins, whole.bins)
    for stats in (parts, whole):
        found = stats.missing, stats.unseen, stats.statuses
        np.testing.assert_equal(found, values_of(statistic))
    places = np.array(edges)[parts.top["part"]] + parts.top["place"]
    pd.testing.assert_frame_equal(
        parts.top.assign(part=0, place=places, row=places), whole.top
    )


@given(scored(), st.sampled_from(["knn", "radius"]), st.integers(1, 5))
def test_top_anomalies__are_the_first_by_p_value_statistic_and_place(table, graph, n_rows):
    p_values, statistic, _ = table
    columns = {"part": 7, "place": range(len(p_values)), "statistic": statistic}

    top = top_anomalies(pd.DataFrame({"p_value": p_values, **columns}), graph, n_rows)

    sign = -1 if graph == "knn" else 1
    measured = [i for i in range(len(p_values)) if p_values[i] == p_values[i]]
    first = sorted(measured, key=lambda i: (p_values[i], sign * statistic[i], i))[:n_rows]
    assert top["place"].tolist() == first
    assert set(top["part"]) <= {7}


@given(scored())
def test_from_json__is_what_was_converted(table):
    (stats,) = stats_of(*table[:2], [0, len(table[0])], "knn")

    copy = PartStats.from_json(json.loads(json.dumps(stats.as_json())))

    assert copy.counts == stats.counts
    for name in ("bins", "missing", "unseen", "statuses"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(stats, name))
    pd.testing.assert_frame_equal(copy.top, stats.top)
