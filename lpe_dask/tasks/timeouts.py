"""Times to wait, as they are configured or given: texts such as 30min, or seconds."""

from __future__ import annotations

import re
from contextlib import suppress

import dask
from dask.utils import parse_timedelta


def seconds_of(text: str) -> float:
    """Return a time with its unit, such as 30min, in seconds.

    Raises
    ------
    ValueError
        If it is not a time above 0.
    """
    seconds = 0.0
    if re.match(r"\s*[0-9.]", text):  # to Dask, a unit alone is one of it
        with suppress(ValueError, LookupError, OverflowError):
            given = re.sub("min$", "m", text.strip())
            seconds = float(parse_timedelta(given, default=False))
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
        seconds = seconds_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(
            f"the configuration has lpe-dask.timeouts.{name}: {value!r}, which is not a "
            f"time above 0. Give seconds, or a text such as 90s, 30min or 2h."
        )
    return seconds
