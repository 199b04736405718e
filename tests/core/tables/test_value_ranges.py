"""What nominal rows have in each column, and which values are unlike it."""

import itertools
from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import LPE
from lpe_dask.model.detector import fitted_of
from lpe_dask.tables.row_status import status_codes
from lpe_dask.tables.value_ranges import (
    BlockRanges,
    ValueRanges,
    ranges_of,
)

#: Two columns of numbers, and the codes of one of categories.
ROWS = st.lists(
    st.tuples(*[st.integers(-3, 3).map(float)] * 2, st.integers(0, 6).map(float)),
    min_size=1,
    max_size=30,
)


def right(rows):
    columns = list(zip(*rows, strict=True))
    times = Counter(Counter(columns[2]).values())
    low, high = (tuple(f(column) for column in columns) for f in (min, max))
    more = sum(n for of, n in times.items() if of > 1)
    return ValueRanges(low, high, ((times[1], more),))


@given(ROWS, st.lists(st.integers(0, 30), max_size=4))
def test_ranges__are_those_of_all_rows_however_these_are_cut(rows, cuts):
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    array = np.array(rows)
    blocks = [array[a:b] for a, b in itertools.pairwise(edges)]

    found = ranges_of([BlockRanges.of(block, [2]) for block in blocks])

    assert found == right(rows)


@given(ROWS, ROWS, st.integers(1, 9))
def test_unseen__are_counted_as_defined(nominal, rows, chunk):
    ranges, array = right(nominal), np.array(rows)
    array[::4, 0], array[::3, 2] = np.nan, -1  # a category that no nominal row has
    array[1::5, 1] = np.inf

    with dask.config.set(scheduler="sync"):
        counted = dask.compute(*ranges.count_new(da.from_array(array, (chunk, 3))))

    missing, unseen = (sum(of) for of in list(zip(*counted, strict=True))[:2])
    codes = np.concatenate([of[2] for of in counted])
    np.testing.assert_array_equal(codes, status_codes(array))
    for place, column in enumerate(array.T):
        finite = column[np.isfinite(column)]
        low, high = ranges.low[place], ranges.high[place]
        assert missing[place] == len(column) - len(finite)
        assert unseen[place] == sum(not low <= value <= high for value in finite)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.uint8, np.bool_])
def test_unseen__of_numbers_of_any_type(kind):
    rows = np.array([[0, 1], [1, 1], [1, 0]]).astype(kind)

    (counts,) = dask.compute(
        *ValueRanges((0, 1), (1, 1), ()).count_new(da.from_array(rows))
    )

    assert [of.tolist() for of in counts[:3]] == [[0, 0], [0, 1], [0, 0, 0]]
    assert counts[3] is None


@pytest.mark.parametrize("chunk", [7, 40])
def test_models__have_the_ranges_of_the_rows_that_are_used(chunk):
    rows = np.random.default_rng(0).integers(0, 9, (40, 3)) / 2
    rows[5, 1], rows[6, 0] = np.nan, 99.0
    whole = np.isfinite(rows).all(axis=1)

    model = LPE(3, missing="drop", scale="standard").fit(da.from_array(rows, (chunk, 3)))

    found = fitted_of(model).ranges
    assert found.low == tuple(rows[whole].min(axis=0))
    assert found.high == tuple(rows[whole].max(axis=0))
    assert found.rare == ()
