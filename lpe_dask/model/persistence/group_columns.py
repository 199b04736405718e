"""The values of groups as numbers, of which alone the files of a model consist.

    dates, booleans, whole numbers   --StoredColumn--> int64
    text, larger whole numbers       --words_of--> JSON, eight characters a number

What is read is checked as if a stranger had written it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from lpe_dask.tables import BOOLEAN, DATES, TEXT, WHOLE, ZONED_DATES

#: Characters that are one number.
_WORD_BYTES = 8

#: What pandas may be asked for as a time zone: names that can only be of zones.
_ZONE = re.compile(
    r"(?!dateutil)[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}|UTC[+-]\d\d:\d\d"
)

#: Of an instant that is none.
_NOT_A_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """How the values of groups in a column are stored.

    Attributes
    ----------
    kind : str
        What they are, as in `GroupLevels`; also of dates with a time zone "dates".
    zone : str, optional
        The time zone of dates that have one.
    n_words : int, optional
        Numbers of the JSON that lists the values; None: they are numbers themselves.
    """

    kind: str
    zone: str | None = None
    n_words: Annotated[int, Field(ge=1, lt=2**31)] | None = None

    @property
    def is_known(self) -> bool:
        """Whether there are such columns."""
        kinds = (TEXT, WHOLE) if self.n_words is not None else (BOOLEAN, DATES, WHOLE)
        has_zone = self.zone is not None
        return self.kind in kinds and (
            not has_zone or (self.kind == DATES and _zoned(str(self.zone)) is not None)
        )

    @property
    def level_kind(self) -> str:
        """What the values are in `GroupLevels`."""
        return self.kind if self.zone is None else ZONED_DATES

    @classmethod
    def of(cls, kind: str, values: pd.Series) -> tuple[StoredColumn, NDArray[np.int64]]:
        """Return how values of a kind are stored, and the numbers that are."""
        if values.dtype == object:
            words = words_of(values.tolist())
            return cls(kind, n_words=len(words)), words
        if kind not in (DATES, ZONED_DATES):
            return cls(kind), values.to_numpy(np.int64)
        zone = None
        if isinstance(values.dtype, pd.DatetimeTZDtype):
            name = str(values.dtype.tz)
            zone = name if _zoned(name) == values.dtype else "UTC"  # the same instants
            values = values.dt.tz_convert("UTC").dt.tz_localize(None)
        return cls(DATES, zone), values.to_numpy("M8[us]").view(np.int64)

    def values(self, numbers: NDArray[np.int64], n_groups: int) -> pd.Series:
        """Return the values of so many groups again.

        Raises
        ------
        ValueError
            If they are others.
        """
        if self.n_words is not None:
            type_ = str if self.kind == TEXT else int
            return pd.Series(values_of(numbers, type_, n_groups), dtype=object)
        if self.kind == BOOLEAN:
            if not np.isin(numbers, (0, 1)).all():
                raise ValueError("has numbers that are no truth values")
            return pd.Series(numbers == 1)
        if self.kind == WHOLE:
            return pd.Series(numbers)
        if (numbers == _NOT_A_TIME).any():
            raise ValueError("has a missing date")
        dates = pd.Series(numbers.view("M8[us]"))
        if self.zone is None:
            return dates
        return dates.dt.tz_localize("UTC").dt.tz_convert(self.zone)


def _zoned(name: str) -> pd.DatetimeTZDtype | None:
    """Return the type of dates in a time zone; None if no zone has this name."""
    if not _ZONE.fullmatch(name):
        return None
    try:
        return pd.DatetimeTZDtype("us", name)
    except (ValueError, TypeError, KeyError, OSError):
        return None


def words_of(values: list[Any]) -> NDArray[np.int64]:
    """Return a list of text or whole numbers as numbers: its JSON, and spaces.

    Examples
    --------
    >>> words = words_of(["a", "b"])
    >>> words.tobytes(), values_of(words, str, 2)
    (b'["a","b"]       ', ['a', 'b'])
    """
    content = json.dumps(values, separators=(",", ":")).encode("ascii")
    content += b" " * (-len(content) % _WORD_BYTES)
    return np.frombuffer(content, "<i8").astype(np.int64)


def values_of(words: NDArray[np.int64], type_: type, n_values: int | None) -> list[Any]:
    """Return the list that `words_of` was given.

    Parameters
    ----------
    words : ndarray of int
    type_ : type
        Of all values: str or int.
    n_values : int, optional
        How many there are, where that is known.

    Raises
    ------
    ValueError
        If it is no such list.
    """
    try:
        values = json.loads(words.astype("<i8").tobytes().decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ValueError("contains no list of values") from error
    if not isinstance(values, list) or not {*map(type, values)} <= {type_}:
        raise ValueError("contains something else than a list of values of one type")
    if n_values is not None and len(values) != n_values:
        raise ValueError(f"lists {len(values)} values instead of {n_values}")
    return values


def are_ascending(values: pd.DataFrame) -> bool:
    """Return whether rows of a frame are sorted by all columns, and no two are equal."""
    is_less = np.zeros(max(0, len(values) - 1), bool)
    is_equal = np.ones_like(is_less)
    for name in values.columns:
        column = values[name].array
        before, after = np.asarray(column[:-1]), np.asarray(column[1:])
        is_less |= is_equal & np.asarray(before < after, bool)
        is_equal &= np.asarray(before == after, bool)
    return bool(is_less.all())
