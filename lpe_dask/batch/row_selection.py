"""Take rows of a partition, and the columns that identify them.

A file of its own, which imports little: workers import it for the first such task of a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def take(
    frame: pd.DataFrame, part: Any, places: NDArray[np.int64], names: list[str]
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Return rows by their places, and for each the values of other columns.

    Parameters
    ----------
    frame : DataFrame
        The measured columns of the partition.
    part : object
        The partition of a `tables.FileTable`.
    places : ndarray of shape (n,)
    names : list of str
        The other columns.
    """
    kept: list[dict[str, Any]] = [{}] * len(places)
    if names:  # as they are: in a frame, a whole number beside a missing one is a float
        kept = part.read(names).take(places).to_pylist()
    return frame.iloc[places], kept
