"""P-values within groups are those of each group by itself, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lpe_dask.pvalues.formulas import p_values
from lpe_dask.pvalues.group_formulas import GroupStatistics

N_GROUPS = 4
VALUES = st.sampled_from([-np.inf, 0.0, 1.0, 1.5, 2.0, np.inf])


@st.composite
def rows(draw, elements, most, codes):
    n_rows = draw(st.integers(0, most))
    values = draw(npst.arrays(np.float64, n_rows, elements=elements))
    return values, np.array(draw(st.lists(codes, min_size=n_rows, max_size=n_rows)))


@given(
    rows(VALUES, 20, st.integers(0, N_GROUPS - 1)),
    rows(VALUES | st.just(np.nan), 20, st.sampled_from([-1.0, 0, 1, 2, 3, np.nan])),
    st.sampled_from(["knn", "radius"]), st.integers(0, 1), st.booleans(),
)  # fmt: skip
def test_p_values__are_those_of_each_group(known, asked, graph, includes_self, with_own):
    (values, codes), (statistic, groups) = known, asked
    form = {"graph": graph, "includes_self": includes_self}
    own = np.arange(len(statistic)) % 2 == 0 if with_own else None
    found = GroupStatistics.of(values, codes.astype(int), N_GROUPS)

    actual = found.p_values(statistic, groups.astype(float), own, **form)

    expected = np.full(len(statistic), np.nan)
    for group in range(N_GROUPS):
        which, of_group = groups == group, np.sort(values[codes == group])
        if len(of_group) > 0:
            is_own = None if own is None else own[which]
            expected[which] = p_values(statistic[which], of_group, is_own, **form)
    np.testing.assert_array_equal(actual, expected)
    assert found.sizes.tolist() == [(codes == g).sum() for g in range(N_GROUPS)]


@pytest.mark.parametrize("n_groups", [1, 1000])
def test_p_values__of_many_groups(n_groups):
    rng = np.random.default_rng(0)
    codes, asked = rng.integers(0, n_groups, 5000), rng.integers(0, n_groups, 300)
    values, statistic = rng.random(5000), rng.random(300)

    actual = GroupStatistics.of(values, codes, n_groups).p_values(statistic, asked * 1.0)

    for p, s, g in zip(actual, statistic, asked, strict=True):
        of_group = values[codes == g]
        if len(of_group):
            assert p == (of_group >= s).sum() / len(of_group)
        else:
            assert np.isnan(p)
