"""A table with a column of each kind of category, and two of numbers, on a grid."""

import numpy as np
import pandas as pd

#: A column of each kind, and two of numbers, in no order.
NAMES = ["protocol", "x", "flag", "level", "y", "port"]
CATEGORICAL = ["port", "protocol", "flag", "level"]
NUMBERS = ["x", "y"]


def table(n_rows, seed, protocols=("tcp", "udp", "7"), ports=(80, 443)):
    """Rows on a grid: equal distances and repeated rows are the usual case."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "protocol": rng.choice(protocols, n_rows),
            "x": rng.integers(0, 5, n_rows) * 0.1,
            "flag": rng.integers(0, 2, n_rows) == 1,
            "level": pd.Categorical(rng.choice(["low", "high"], n_rows)),
            "y": rng.integers(0, 3, n_rows) * 0.25,
            "port": rng.choice(ports, n_rows),
        }
    )
    return frame[NAMES]
