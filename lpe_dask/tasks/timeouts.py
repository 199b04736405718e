"""Times to wait, as they are configured or given: texts such as 30min, or seconds."""

from __future__ import annotations

import re

import dask
from dask.utils import parse_timedelta


def seconds_of(text: str) -> float:
    """Return a time with its unit, such as 30min, in seconds.

    Raises
    ------
    ValueError
        If it is not a time above 0.
    """
    try:
        seconds = float(parse_timedelta(re.sub("min$", "m", text.strip()), default=False))
    except (ValueError, LookupError, OverflowError):
        seconds = 0.0
    if seconds == 0:
        raise ValueError(f"{text!r} is not a time above 0. Write it as 90s, 30min or 2h.")
    return seconds


def timeout(name: str) -> float:
    """Return the seconds of a key below ``lpe-dask.timeouts``; inf for null.

    Raises
    ------
    ValueError
        If it is neither a number nor a time above 0.
    """
    value = dask.config.get(f"lpe-dask.timeouts.{name}")
    if value is None:
        return float("inf")
    try:
        return seconds_of(value if isinstance(value, str) else f"{value}s")
    except ValueError as error:
        raise ValueError(
            f"the configuration has lpe-dask.timeouts.{name}: {error}"
        ) from None
