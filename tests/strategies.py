"""Data on coarse grids, where ties, duplicates and constant columns are the usual case."""

import itertools

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst


@st.composite
def point_sets(draw, min_rows=1, max_rows=12, n_features=None):
    """Points on the grid -3..3, in steps that are, or are not, exact in binary."""
    if n_features is None:
        n_features = draw(st.integers(1, 3))
    shape = (draw(st.integers(min_rows, max_rows)), n_features)
    step = draw(st.sampled_from([1.0, 0.1, 1e-9, 1e7]))
    offset = draw(st.sampled_from([0.0, 5.0, 1e7]))
    grid = draw(npst.arrays(np.int64, shape, elements=st.integers(-3, 3)))
    return grid * step + offset


@st.composite
def row_chunks(draw, n_rows):
    """Any way of cutting ``n_rows`` into chunks of at least one row."""
    cuts = draw(st.sets(st.integers(1, n_rows - 1))) if n_rows > 1 else set()
    edges = [0, *sorted(cuts), n_rows]
    return tuple(b - a for a, b in itertools.pairwise(edges))


@st.composite
def row_parts(draw, n_rows):
    """Any division of the numbers of rows into parts of at least one, in any order."""
    numbers = np.array(draw(st.permutations(range(n_rows))))
    return np.split(numbers, np.cumsum(draw(row_chunks(n_rows)))[:-1])
