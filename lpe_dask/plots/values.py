"""Values that plots take, of any kind, as arrays in memory."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.pvalues import checked_p_values


class KnownRows(NamedTuple):
    """The rows with a p-value, and their labels."""

    p_values: NDArray[np.float64]
    labels: NDArray[np.bool_] | None
    where: NDArray[np.bool_]  # among all that were given

    @property
    def n_missing(self) -> int:
        """Rows without a p-value."""
        return int((~self.where).sum())


def known_rows(p_values: Any, labels: Any, name: str = "is_anomaly") -> KnownRows:
    """Return the rows with a p-value; ``name`` is the argument ``labels`` of the plot."""
    values = checked_p_values(computed(p_values))
    rows = ~np.isnan(values)
    if not rows.any():
        raise ValueError(
            f"p_values has {len(values)} rows, but none of them is a number: there is "
            f"nothing to draw. Give at least one p-value."
        )
    if labels is None:
        return KnownRows(values[rows], None, rows)
    given = pd.Series(aligned(name, labels, rows))
    others = given[~given.isin([0, 1])].unique().tolist()
    if others:
        raise ValueError(
            f"{name} contains {', '.join(map(repr, others[:3]))}; it takes True or 1 "
            f"for anomalies and False or 0 for nominal rows. For labels of predict give "
            f"labels == -1."
        )
    return KnownRows(values[rows], given.to_numpy(bool), rows)


def in_memory(values: Any) -> Any:
    """Return the result of a Dask collection, or values that are none as they are."""
    return values.compute() if hasattr(values, "compute") else values


def computed(values: Any) -> NDArray[Any]:
    """Return values of any kind as an array in memory."""
    return np.asarray(in_memory(values))


def aligned(name: str, values: Any, rows: NDArray[np.bool_]) -> NDArray[Any]:
    """Return values given in addition to p-values, of the rows that have a p-value."""
    array = computed(values)
    if array.shape != rows.shape:
        raise ValueError(
            f"{name} has the shape {array.shape}, and p_values {rows.shape}. Give one "
            f"of each per row."
        )
    return array[rows]


def check_alpha(alpha: Any) -> None:
    """Raise ValueError if a false-alarm level to mark is not in [0, 1]."""
    if not isinstance(alpha, Real) or not 0 <= float(alpha) <= 1:
        raise ValueError(f"alpha={alpha!r} must be between 0 and 1.")


def check_count(name: str, count: Any, least: int = 1) -> None:
    """Raise ValueError if the argument ``name`` is no whole number, or is too small."""
    if type(count) is bool or not isinstance(count, Integral) or int(count) < least:
        raise ValueError(f"{name}={count!r} must be a whole number, at least {least}.")
