"""What counts as drift: by how much runs may differ from what is promised."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True, slots=True)
class DriftConfig:
    """What counts as drift.

    Attributes
    ----------
    delta : float
        The probability of a false verdict "drift", over all runs of a series.
    tolerance : float
        By which share more, or fewer, rows than promised may have small p-values.
    anomalies : float
        The share of rows that may be anomalies, beside false alarms.
    shift : float
        By how much the distribution of p-values of rows that are not anomalous may shift:
        the largest difference of distribution functions.
    """

    delta: float = 0.01
    tolerance: float = 0.25
    anomalies: float = 0.05
    shift: float = 0.02

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            most = math.inf if name == "tolerance" else 1
            least = math.ulp(0.0) if name == "delta" else 0
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise ValueError(f"{name}={value!r} must be a number.")
            if not least <= value < most:
                above = "above 0" if name == "delta" else "of at least 0"
                below = "" if most == math.inf else " and below 1"
                raise ValueError(f"{name}={value!r} must be a number {above}{below}.")


#: Tests among which delta is divided.
N_TESTS = 3

#: That which is taken where none is given.
DEFAULT_CONFIG = DriftConfig()
