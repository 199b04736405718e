"""Why rows have no p-value, beside the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import definitions
from lpe_dask.tables.row_status import RowStatus, status_codes, status_names

VALUES = st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf])
SHAPES = npst.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5)


@given(npst.arrays(np.float64, SHAPES, elements=VALUES), st.sampled_from("fd"))
def test_status_codes__name_what_the_definition_says(rows, kind):
    codes = status_codes(rows.astype(kind))

    expected = [definitions.status(row) for row in rows]
    assert status_names(codes).tolist() == expected
    assert RowStatus.column(codes).tolist() == expected
    assert RowStatus.count(codes).tolist() == [*map(expected.count, RowStatus.NAMES)]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_status_codes__are_ok_for_numbers_that_cannot_be_missing(dtype):
    assert status_codes(np.ones((3, 2), dtype)).tolist() == [0, 0, 0]
