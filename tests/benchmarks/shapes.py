"""Tables that imitate what logs and forms hold: flags, levels, heavy tails, repeats.

Each is the same at every call, and its rows are in no order unless it says so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Levels of the text columns that `one_hot` encodes; 60 columns together.
LEVELS = (3, 5, 8, 12, 15, 17)


def flags(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return columns of 0 and 1, of which 10 to 40 % are 1."""
    rng = np.random.default_rng(10)
    shares = rng.uniform(0.1, 0.4, n_features)
    return (rng.random((n_rows, n_features)) < shares).astype(np.float32)


def one_hot(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return text columns with rare levels, one-hot encoded and standardised."""
    assert n_features == sum(LEVELS)
    rng = np.random.default_rng(11)
    columns = []
    for n_levels in LEVELS:
        chosen = rng.choice(n_levels, n_rows, p=rng.dirichlet(np.full(n_levels, 0.4)))
        columns.append(np.eye(n_levels)[chosen])
    return standardised(np.concatenate(columns, axis=1))


def whole_numbers(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return counts, with many ties."""
    rng = np.random.default_rng(12)
    means = rng.uniform(0.5, 8, n_features)
    return rng.poisson(means, (n_rows, n_features)).astype(np.float32)


def log_normal(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return positive numbers, some of them far out."""
    rng = np.random.default_rng(13)
    return rng.lognormal(0, 1.5, (n_rows, n_features)).astype(np.float32)


def heavy_tailed(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return numbers with 1.5 degrees of freedom: nearly those of Cauchy."""
    rng = np.random.default_rng(14)
    return rng.standard_t(1.5, (n_rows, n_features)).astype(np.float32)


def constant_columns(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return normal columns, one of them constant and one nearly so."""
    rng = np.random.default_rng(15)
    rows = rng.standard_normal((n_rows, n_features))
    rows[:, 3] = 7
    rows[:, 4] = 1 + 1e-6 * rng.standard_normal(n_rows)
    return rows.astype(np.float32)


def in_time(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return rows in the order of time, around a random walk."""
    rng = np.random.default_rng(16)
    walk = np.cumsum(0.05 * rng.standard_normal((n_rows, n_features)), axis=0)
    return (walk + rng.standard_normal((n_rows, n_features))).astype(np.float32)


def repeats(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return normal rows, 30 % of which repeat another one."""
    rng = np.random.default_rng(17)
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    is_copy = rng.random(n_rows) < 0.3
    rows[is_copy] = rows[rng.choice(np.flatnonzero(~is_copy), is_copy.sum())]
    return rows


def half_equal(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return normal rows, half of which are one and the same."""
    rng = np.random.default_rng(18)
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    rows[rng.random(n_rows) < 0.5] = rows[0]
    return rows


def mixed(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Make a table of a form: numbers, flags, counts and amounts, standardised."""
    assert n_features == 34
    rng = np.random.default_rng(19)
    columns = [
        rng.standard_normal((n_rows, 6)),
        rng.random((n_rows, 20)) < 0.2,
        rng.integers(0, 50, (n_rows, 4)),
        rng.lognormal(0, 1, (n_rows, 4)),
    ]
    return standardised(np.concatenate(columns, axis=1))


def standardised(rows: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return columns of mean 0 and deviation 1; a constant one is 0."""
    wide = rows.astype(np.float64)
    deviations = wide.std(axis=0)
    deviations[deviations == 0] = 1
    return ((wide - wide.mean(axis=0)) / deviations).astype(np.float32)
