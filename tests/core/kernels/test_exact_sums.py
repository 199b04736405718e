"""Exact sums of products."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.exact_sums import (
    N_LIMBS,
    as_whole_number,
    sum_of_products,
)

pytestmark = pytest.mark.usefixtures("either_way")

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(pairs=st.lists(st.tuples(numbers, numbers), max_size=30), data=st.data())
def test_sum_of_products__is_exact_however_it_is_cut(pairs, data):
    left = np.array([a for a, _ in pairs], dtype=float)
    right = np.array([b for _, b in pairs], dtype=float)
    cut = data.draw(st.integers(0, len(pairs)))

    parts = [
        sum_of_products(left[part], right[part]) for part in (slice(cut), slice(cut, None))
    ]
    actual = Fraction(as_whole_number(sum(parts)), 2**2148)

    assert actual == sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))


@pytest.mark.parametrize("extreme", [5e-324, 2.2e-308, 1.7e308, -1.7e308, 0.0, -0.0])
def test_sum_of_products__holds_the_extremes_of_float64(extreme):
    limbs = sum_of_products(np.full(1000, extreme), np.full(1000, extreme))

    expected = 1000 * Fraction(extreme) ** 2
    assert as_whole_number(limbs) == expected * 2**2148
    assert limbs.shape == (N_LIMBS,)


def test_sum_of_products__of_many_rows_carries(monkeypatch):
    monkeypatch.setattr("lpe_dask.kernels.exact_sums.ROWS_BETWEEN_CARRIES", 7)
    values = np.random.default_rng(0).standard_normal(1000)

    actual = as_whole_number(sum_of_products(values, np.ones(1000)))

    assert Fraction(actual, 2**2148) == sum(map(Fraction, values.tolist()))
