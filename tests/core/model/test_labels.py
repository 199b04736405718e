"""Decisions at a level, by their definition."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.model.labels import labels, margin, threshold


@given(
    alpha=st.floats(1e-9, 1, exclude_max=True),
    shares=st.lists(st.floats(0, 1) | st.just(math.nan), max_size=20),
)
def test_decisions__are_at_most_alpha(alpha, shares):
    p_values = np.array([*shares, alpha], dtype=float)
    offset = threshold(alpha)

    flagged = labels(p_values, offset) == -1

    np.testing.assert_array_equal(flagged, p_values <= alpha)
    np.testing.assert_array_equal(margin(p_values, offset) < 0, flagged)
    assert labels(p_values, offset).dtype == np.int64
