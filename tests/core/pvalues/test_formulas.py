"""p-values against the formulas."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask.pvalues.formulas import p_values

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
