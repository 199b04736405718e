"""p-values against the formulas, and their bins against plain counting of ranks."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from definitions import possible_p_values
from lpe_dask.monitoring.bins import BinCounts, PValueBins
from lpe_dask.pvalues import Calibration
from lpe_dask.pvalues.formulas import p_values
from lpe_dask.storage import SortedVector, VectorPart, vectors
from strategies import row_parts

statistics = st.one_of(st.integers(0, 6).map(float), st.just(math.inf))


@given(
    statistic=st.lists(statistics | st.just(math.nan), max_size=20),
    calibration=st.lists(statistics, min_size=1, max_size=20),
)
def test_fractions__equal_their_definitions(statistic, calibration):
    measured, ascending = np.array(statistic, dtype=float), np.array(sorted(calibration))

    tail = p_values(measured, ascending)
    head = p_values(measured, ascending, graph="radius")

    for i, value in enumerate(statistic):
        if math.isnan(value):
            assert math.isnan(tail[i])
            assert math.isnan(head[i])
        else:
            assert tail[i] == definitions.knn_p_value(value, calibration)
            assert head[i] == definitions.radius_p_value(value, calibration)


INCLUDES_SELF = st.sampled_from([0, 1])


def ranks_of(calibration):
    """How many calibration rows are at least as anomalous as each, with itself."""
    return np.array([(calibration >= value).sum() for value in calibration])


@st.composite
def calibrations(draw, max_rows=60):
    """Ascending statistics, many of them equal, or none."""
    n_values = draw(st.sampled_from([1, 2, 7, 10**6]))
    values = draw(st.lists(st.integers(1, n_values), min_size=1, max_size=max_rows))
    return np.sort(np.array(values, float))


@given(
    m=st.integers(1, 3000),
    includes_self=INCLUDES_SELF,
    alpha=st.floats(1e-9, 1, exclude_max=True)
    | st.integers(1, 999).map(lambda k: k / 1000),
)
def test_flag__is_the_last_rank_whose_float_p_value_is_at_most_alpha(
    m, includes_self, alpha
):
    bins = PValueBins.of(np.arange(1, m + 1), alpha, includes_self)

    flagged = possible_p_values(m, includes_self) <= alpha
    assert bins.flag == flagged.sum() - 1
    assert bins.above == max(0, bins.flag)


@pytest.mark.parametrize("includes_self", [0, 1])
@pytest.mark.parametrize("m", [3, 99, 100, 1000])
def test_flag__where_alpha_is_itself_a_p_value_or_the_number_before(m, includes_self):
    """0.29 * 100, and others, are below 29 in float64, and 0.05 - 1e-17 times 100 is 5."""
    every = np.arange(1, m + 1)
    for j in range(1 - includes_self, m):
        alpha = (j + includes_self) / (m + includes_self)

        assert PValueBins.of(every, alpha, includes_self).flag == j
        assert PValueBins.of(every, np.nextafter(alpha, 0), includes_self).flag == j - 1


@given(calibration=calibrations(), alpha=st.floats(1e-3, 0.7), includes_self=INCLUDES_SELF)
def test_edges__are_ranks_that_occur_above_the_tail(calibration, alpha, includes_self):
    ranks, m = ranks_of(calibration), len(calibration)

    bins = PValueBins.of(ranks, alpha, includes_self)

    *inner, last = bins.edges
    assert last == m
    assert set(inner) <= set(ranks.tolist())
    assert list(bins.edges) == sorted(set(bins.edges))
    assert all(j >= max(0.1, 2 * alpha) * m for j in inner)
    assert bins.flag <= bins.edges[0]
    assert bins.above == max((j for j in ranks if j <= bins.flag), default=0)
    assert all(type(j) is int for j in (bins.flag, bins.above, *bins.edges))


@given(calibration=calibrations(), includes_self=INCLUDES_SELF)
def test_widths__are_the_calibration_rows_of_each_cell(calibration, includes_self):
    ranks, m = ranks_of(calibration), len(calibration)
    bins = PValueBins.of(ranks, 0.05, includes_self)

    own = BinCounts.of(bins.count((ranks + includes_self) / (m + includes_self)))

    assert own.bulk.tolist() == bins.widths.tolist()
    assert (own.tail, own.flagged) == (bins.edges[0], bins.above)


def test_edges__where_nothing_is_tied():
    shares = (
        0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
        0.98, 1,
    )  # fmt: skip
    every = np.arange(1, 10_001)

    assert PValueBins.of(every, 0.05, 0).edges == tuple(round(p * 10_000) for p in shares)
    assert PValueBins.of(every, 0.11, 0).edges[:3] == (2200, 2500, 3000)
    assert PValueBins.of(every, 0.6, 0).edges == (10_000,)


@pytest.mark.parametrize("includes_self", [0, 1])
@pytest.mark.parametrize("m", [1, 10, 99_991])
def test_count__finds_every_rank_again(m, includes_self):
    """One bin for each rank, so that a rank that is off by one would show."""
    bins = PValueBins(m, includes_self, 0.01, 0, 0, tuple(range(m + 1)))

    for dtype in (np.float64, np.float32):  # whose ranks are computed with 64 bits
        found = possible_p_values(m, includes_self).astype(dtype)
        counts = BinCounts.of(bins.count(found))
        assert counts.bulk.tolist() == [1] * m
        assert (counts.flagged, counts.tail) == (1, 1)


@given(
    calibration=calibrations(),
    statistic=st.lists(st.integers(-3, 10**6) | st.just(np.nan), max_size=40),
    alpha=st.floats(1e-3, 0.7),
    includes_self=INCLUDES_SELF,
)
def test_count__counts_each_row_once(calibration, statistic, alpha, includes_self):
    bins = PValueBins.of(ranks_of(calibration), alpha, includes_self)
    statistic = np.array(statistic, float)
    found = p_values(statistic, calibration, includes_self=includes_self)

    counts = BinCounts.of(bins.count(found))

    known = statistic[~np.isnan(statistic)]
    ranks = [int((calibration >= value).sum()) for value in known]
    assert (counts.rows, counts.rows_nan) == (len(statistic), len(statistic) - len(known))
    assert counts.measured == len(known)
    assert counts.flagged == (found <= alpha).sum()
    assert counts.tail == sum(j <= bins.edges[0] for j in ranks)
    assert counts.bulk.tolist() == [
        sum(low < j <= high for j in ranks)
        for low, high in zip(bins.edges, bins.edges[1:], strict=False)
    ]


@given(data=st.data(), includes_self=INCLUDES_SELF)
def test_count__of_partitions_adds_up_to_that_of_the_whole(data, includes_self):
    bins = PValueBins.of(np.arange(1, 41), 0.1, includes_self)
    ranks = data.draw(st.lists(st.integers(0, 40) | st.just(np.nan), min_size=1))
    found = (np.array(ranks, float) + includes_self) / (40 + includes_self)
    parts = data.draw(row_parts(len(found)))

    total = np.sum([bins.count(found[part]) for part in parts], axis=0)

    whole = bins.count(found)
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(total, whole)


@pytest.mark.parametrize("rows", [np.empty(0), np.full(3, np.nan)])
def test_count__of_no_p_values_is_0(rows):
    counts = PValueBins.of(np.arange(1, 41), 0.1, 0).count(rows)

    assert counts.tolist() == [len(rows), len(rows)] + [0] * (len(counts) - 2)


@pytest.mark.parametrize(
    ("p_values", "message"),
    [
        *(([0.5, x, np.nan], "are between 0 and 1, ") for x in (-0.1, 1.1, np.inf, 7)),
        *((np.full(shape, 0.5), "one for each row") for shape in ((), (3, 1), (1, 3))),
    ],
)
def test_count__refuses_other_than_one_p_value_for_each_row(p_values, message):
    with pytest.raises(ValueError, match=message):
        PValueBins.of(np.arange(1, 41), 0.1, 0).count(np.array(p_values))


@given(calibration=calibrations(), alpha=st.floats(1e-3, 0.7), includes_self=INCLUDES_SELF)
def test_histogram__has_all_rows_and_the_whole_promise(calibration, alpha, includes_self):
    bins = PValueBins.of(ranks_of(calibration), alpha, includes_self)
    found = possible_p_values(len(calibration), includes_self)

    histogram = bins.histogram(bins.count(np.append(found, np.nan)))

    assert json.loads(json.dumps(histogram)) == histogram
    assert set(histogram) == {"upper", "promised", "rows"}
    n_cells = len(bins.edges) + (bins.flag >= 0)
    assert [len(values) for values in histogram.values()] == [n_cells] * 3
    assert sum(histogram["rows"]) == len(found)
    assert sum(histogram["promised"]) == pytest.approx(1)
    assert min(histogram["promised"]) >= 0
    assert histogram["upper"] == sorted(histogram["upper"])
    assert histogram["upper"][-1] == 1
    if bins.flag >= 0:
        assert histogram["upper"][0] <= alpha
        assert histogram["rows"][0] == (found <= alpha).sum()


@pytest.mark.parametrize(("alpha", "largest_flagged"), [(0.05, 4), (0.005, 0)])
def test_histogram__promises_the_share_of_gaps(alpha, largest_flagged):
    bins = PValueBins.of(np.arange(1, 100), alpha, 0)

    histogram = bins.histogram(bins.count(possible_p_values(99)))

    # Where nothing is tied, one of the possible p-values lies in each gap.
    assert histogram["promised"] == [rows / 100 for rows in histogram["rows"]]
    assert histogram["upper"][:2] == [largest_flagged / 99, 10 / 99]


def test_histogram__of_conformal_p_values_none_of_which_can_be_flagged():
    bins = PValueBins.of(np.arange(1, 51), 0.01, 1)

    histogram = bins.histogram(bins.count(possible_p_values(50, 1)))

    assert bins.flag == -1
    assert histogram["upper"][0] == 6 / 51
    assert histogram["rows"][0] == 6
    assert histogram["promised"][0] == 6 / 51


@pytest.mark.parametrize("graph", ["knn", "radius"])
@pytest.mark.parametrize("includes_self", [0, 1])
@pytest.mark.parametrize("n_values", [1, 2, 30, 1000, 10**6])
def test_bins__of_values_on_storage_are_the_same(
    graph, includes_self, n_values, tmp_path, monkeypatch
):
    monkeypatch.setattr(vectors, "FILE_NUMBERS", 40)
    values = np.sort(np.random.default_rng(0).integers(0, n_values, 700)).astype(float)
    given = graph, includes_self, None
    right = Calibration.of(*given, values)
    vector = SortedVector.of(VectorPart.write(values, str(tmp_path)))

    for alpha in (0.001, 0.01, 0.04, 0.2, 0.6):
        found = PValueBins.of_calibration(Calibration.of(*given, vector), alpha)
        assert found == PValueBins.of_calibration(right, alpha)
