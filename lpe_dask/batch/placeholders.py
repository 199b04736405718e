"""Fill the placeholders of a text: the day of a run, and environment variables.

    ${NAME}             the environment variable NAME
    {date}              the day of the run, as 2026-11-20
    {date-7d}           days before it; {date+1d}: after it
    {date-7d..date}     each day of a range, both ends included: one text for each
    {summary}           the path of the summary; in the command of [notify] only

Braces have no other meaning, so a typing error is refused and not taken for the name of a
file. Values of environment variables are not searched for placeholders again.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

#: Most days of a range, ten years: more is a typing error.
MAX_RANGE_DAYS = 3660

#: All placeholders, for messages.
SYNTAX = "{date}, {date-7d}, {date+1d}, ${NAME}, and for data {date-7d..date}"

_PLACEHOLDER = re.compile(
    r"\$\{(?P<variable>[^{}]*)\}|\{(?P<first>[^{}]*?)\.\.(?P<last>[^{}]*)\}"
    r"|\{(?P<day>[^{}]*)\}"
)
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_DAY = re.compile(r"date(?:([+-][0-9]{1,6})d)?")


def has_range(text: str) -> bool:
    """Return whether ``text`` contains a range of days."""
    return any(match.lastgroup == "last" for match in _PLACEHOLDER.finditer(text))


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The values of placeholders.

    Attributes
    ----------
    day : datetime.date
        The day of the run.
    environment : mapping of str to str

    Examples
    --------
    >>> placeholders = Placeholders(datetime.date(2026, 3, 1), {"DATA": "s3://logs"})
    >>> placeholders.expand("${DATA}/{date-1d}")
    ['s3://logs/2026-02-28']
    >>> placeholders.expand("in/{date-1d..date}/*.csv")
    ['in/2026-02-28/*.csv', 'in/2026-03-01/*.csv']
    """

    day: datetime.date
    environment: Mapping[str, str] = field(repr=False)  # it may have passwords

    def expand(self, text: str, later: Collection[str] = ()) -> list[str]:
        """Return ``text`` filled, once for each day of the range in it, ascending.

        Parameters
        ----------
        text : str
        later : collection of str
            Placeholders that are left as they are.

        Raises
        ------
        ValueError
            For an unknown placeholder, a variable that is not set, more than one range, or
            one that is empty or too long.
        """
        if brace := re.search(r"[{}]", _PLACEHOLDER.sub("", text)):
            raise ValueError(
                f"unmatched {brace[0]}: braces are for placeholders, {_syntax(later)}."
            )
        ranges = [m for m in _PLACEHOLDER.finditer(text) if m.lastgroup == "last"]
        if len(ranges) > 1:
            raise ValueError(
                f"{len(ranges)} ranges of days are in one path; one is allowed. Write the "
                f"others as separate paths, in a list."
            )
        days = self._days(ranges[0]) if ranges else [self.day]
        return [
            _PLACEHOLDER.sub(partial(self._value, range_day=day, later=later), text)
            for day in days
        ]

    def expand_variables(self, text: str) -> str:
        """Return ``text`` with environment variables filled in, and days as they are.

        Examples
        --------
        >>> placeholders = Placeholders(datetime.date(2026, 3, 1), {"DATA": "s3://logs"})
        >>> placeholders.expand_variables("${DATA}/out/{date-1d}")
        's3://logs/out/{date-1d}'
        """
        return _PLACEHOLDER.sub(
            lambda of: self._variable(of[1]) if of.lastgroup == "variable" else of[0], text
        )

    def with_variables(self, text: str) -> str:
        """Return ``text`` with environment variables filled in, and nothing else changed.

        Raises
        ------
        ValueError
            For a variable that is not set; says nothing else of the text.

        Examples
        --------
        >>> placeholders = Placeholders(datetime.date(2026, 3, 1), {"KEY": "k"})
        >>> placeholders.with_variables("${KEY}{date}")
        'k{date}'
        """
        return _VARIABLE.sub(lambda match: self._variable(match[1]), text)

    def first_day(self, text: str) -> tuple[str, datetime.date] | None:
        """Return the text before the first day in ``text``, and that day; None without one.

        Examples
        --------
        >>> placeholders = Placeholders(datetime.date(2026, 3, 1), {"DATA": "s3://logs"})
        >>> placeholders.first_day("${DATA}/out/{date-1d}/scores")
        ('s3://logs/out/', datetime.date(2026, 2, 28))
        """
        for match in _PLACEHOLDER.finditer(text):
            if match.lastgroup != "variable":
                return self.expand(text[: match.start()])[0], self._day(match["day"])
        return None

    def _days(self, match: re.Match[str]) -> list[datetime.date]:
        first, last = self._day(match["first"]), self._day(match["last"])
        n_days = (last - first).days + 1
        if not 1 <= n_days <= MAX_RANGE_DAYS:
            raise ValueError(
                f"the range {match[0]} has {n_days} days; 1 to {MAX_RANGE_DAYS} are "
                f"allowed. Write the earlier day first, for example {{date-7d..date}}."
            )
        return [first + datetime.timedelta(days=i) for i in range(n_days)]

    def _value(
        self, match: re.Match[str], range_day: datetime.date, later: Collection[str]
    ) -> str:
        if match["day"] in later:
            return match[0]
        if match.lastgroup == "variable":
            return self._variable(match["variable"])
        day = range_day if match.lastgroup == "last" else self._day(match["day"], later)
        return day.isoformat()

    def _variable(self, name: str) -> str:
        if value := self.environment.get(name):
            return value
        # Without its beginning it would be another path.
        raise ValueError(
            f"the environment variable {shorten(name, 60)} is not set, or empty. Set it, "
            f"or write its value into the file."
        )

    def _day(self, text: str, later: Collection[str] = ()) -> datetime.date:
        match = _DAY.fullmatch(text)
        with suppress(OverflowError):  # a day outside the years 1 to 9999
            if match is not None:
                return self.day + datetime.timedelta(days=int(match[1] or 0))
        raise ValueError(
            f"unknown placeholder {{{shorten(text, 60)}}}. Placeholders are "
            f"{_syntax(later)}."
        )


def _syntax(later: Collection[str]) -> str:
    """Return all placeholders of a text, for messages."""
    return ", ".join([*(f"{{{name}}}" for name in later), SYNTAX])


def shorten(text: str, length: int) -> str:
    """Return ``text``, without its middle if it is longer than ``length``."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ... {text[-half:]}"
