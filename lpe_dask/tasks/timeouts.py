"""Times to wait, as they are configured or given: texts such as 30min, or seconds."""

from __future__ import annotations

import re

import dask
from dask.utils import parse_timedelta

#: A number that Dask reads, and a unit.
_TIME = re.compile(r"\s*([0-9]{1,15}(\.[0-9]{1,15})?)\s*([A-Za-z]+)\s*")


def seconds_of(text: str) -> float:
    """Return a time with its unit, such as 30min, in seconds; ValueError if it is none."""
    message = f"{text!r} is not a time. Write it as 90s, 30min or 2h."
    if (parts := _TIME.fullmatch(text)) is None:
        raise ValueError(message)
    unit = "m" if parts[3] == "min" else parts[3]
    try:
        return float(parse_timedelta(parts[1] + unit))
    except (KeyError, ValueError) as error:
        raise ValueError(message) from error


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
        seconds = seconds_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(
            f"the configuration has lpe-dask.timeouts.{name}: {value!r}, which is not a "
            f"time. Give seconds, or a text such as 90s, 30min or 2h."
        )
    return seconds
