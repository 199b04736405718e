"""Exact sums of products."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.exact_sums import (
    N_LIMBS,
    Totals,
    as_float,
    rounded_sum_of_products,
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
    actual = as_float(sum(parts))

    exact = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert actual == expected


moderate = st.integers(-(2**53), 2**53).map(float) | st.floats(-1.0, 1e9)


@given(
    pairs=st.lists(st.tuples(moderate | numbers, moderate), max_size=30)
    | st.lists(st.tuples(moderate, moderate), max_size=300)
)
def test_rounded_sum_of_products__is_the_exact_one(pairs):
    """Also where numbers are so large or small that they are not taken apart."""
    left = np.array([a for a, _ in pairs], dtype=float)
    right = np.array([b for _, b in pairs], dtype=float)

    expected = as_float(sum_of_products(left, right))
    assert rounded_sum_of_products(left, right) == expected


@pytest.mark.parametrize("factor", [2.0**-401, 2.0**-399, 1.0, 2.0**399, 2.0**401])
@pytest.mark.parametrize("few", [3, 1000])
def test_rounded_sum_of_products__of_all_magnitudes(monkeypatch, factor, few):
    monkeypatch.setattr("lpe_dask.kernels.exact_sums.FEW", few)
    left, right = np.random.default_rng(0).standard_normal((2, 500)) * factor

    expected = as_float(sum_of_products(left, right))
    assert rounded_sum_of_products(left, right) == expected


@pytest.mark.parametrize("extreme", [5e-324, 2.2e-308, 1.7e308, -1.7e308, 0.0, -0.0])
def test_sum_of_products__holds_the_extremes_of_float64(extreme):
    limbs = sum_of_products(np.full(1000, extreme), np.full(1000, extreme))

    expected = 1000 * Fraction(extreme) ** 2
    assert sum(int(limb) << (32 * i) for i, limb in enumerate(limbs)) == expected * 2**2148
    assert limbs.shape == (N_LIMBS,)


def test_sum_of_products__of_many_rows_carries(monkeypatch):
    monkeypatch.setattr("lpe_dask.kernels.exact_sums.ROWS_BETWEEN_CARRIES", 7)
    values = np.random.default_rng(0).standard_normal(1000)

    actual = as_float(sum_of_products(values, np.ones(1000)))

    assert actual == math.fsum(values)


@given(data=st.data(), n_totals=st.integers(1, 4), n_parts=st.integers(1, 4))
def test_totals__are_exact_without_the_limbs_they_do_not_need(data, n_totals, n_parts):
    """Of any magnitudes and signs, also where parts cancel."""
    factors = st.lists(
        st.lists(
            numbers | st.sampled_from([0.0, 1.0, -1.0, 1e-300]), min_size=2, max_size=2
        ),
        min_size=n_totals,
        max_size=n_totals,
    )
    parts = [data.draw(factors) for _ in range(n_parts)]
    split = data.draw(st.integers(1, n_totals))

    def compact(part):
        pairs = [(np.array([a]), np.array([b])) for a, b in part]
        return Totals.join(
            [Totals.of_products(some) for some in (pairs[:split], pairs[split:]) if some]
        )

    actual = Totals.add(compact(part) for part in parts).as_floats()

    for k in range(n_totals):
        limbs = sum(
            sum_of_products(np.array([part[k][0]]), np.array([part[k][1]]))
            for part in parts
        )
        assert actual[k] == as_float(limbs)


def test_totals__of_ordinary_numbers_are_short():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 50, 1000)) * 1000.0

    totals = Totals.of_products(zip(left, right, strict=True))

    assert totals.limbs.shape[1] <= 8
    np.testing.assert_allclose(totals.as_floats(), (left * right).sum(axis=1), rtol=1e-9)
