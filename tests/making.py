"""Tables that workers make themselves; imports little, as it is part of what they take."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd


def forget_peak():
    """Make the largest resident size of this process that of now."""
    Path("/proc/self/clear_refs").write_text("5")


def some_rows(seed, n_rows, n_features):
    return np.random.default_rng(seed).standard_normal((n_rows, n_features))


def some_frame(seed, n_rows, n_features):
    names = [f"x{i}" for i in range(n_features)]
    return pd.DataFrame(some_rows(seed, n_rows, n_features), columns=names)


def as_frame(n_rows, n_features, n_partitions, seed):
    """Return rows as a dask DataFrame; other seeds give other rows."""
    import dask.dataframe as dd  # not for workers

    make = partial(some_frame, n_rows=n_rows // n_partitions, n_features=n_features)
    first = seed * n_partitions
    seeds = range(first, first + n_partitions)
    return dd.from_map(make, seeds, meta=some_frame(0, 0, n_features))


def as_array(n_rows, n_features, n_partitions, seed):
    """Return the same rows as a dask array."""
    lengths = [n_rows // n_partitions] * n_partitions
    return as_frame(n_rows, n_features, n_partitions, seed).to_dask_array(lengths)
