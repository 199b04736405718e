"""Find the number of a group by its values.

values of each column --_ObjectPlaces, _NumberPlaces--> places among the different ones
places of some columns together --_NumberPlaces--> places among those that groups have
places of all columns --order--> numbers of groups
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.forks import ForkSafeLock


class GroupIndex:
    """An index of the values of groups, which a process makes once, when one is sought.

    It is complete before another thread sees it, which one of pandas is not. It is not
    pickled: other processes make their own.

    Parameters
    ----------
    values : DataFrame of shape (n_groups, n_columns)
        All different; nothing changes it.
    """

    def __init__(self, values: pd.DataFrame) -> None:
        self._values = values
        self._index: _Index | None = None
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupIndex, (self._values,)

    def numbers(self, keys: pd.DataFrame) -> NDArray[np.int64]:
        """Return the number of the group with the values of each row; -1 if none has.

        Parameters
        ----------
        keys : DataFrame
            Columns of the same types.
        """
        with self._lock:
            if self._index is None:
                self._index = _Index(self._values)
        return self._index.numbers(keys)


class _Index:
    """What `GroupIndex` makes."""

    def __init__(self, values: pd.DataFrame) -> None:
        first, *others = _columns(values)
        self._first, together = _different(first)
        self._others: list[tuple[_ObjectPlaces | _NumberPlaces, _NumberPlaces]] = []
        for column in others:
            of_column, places = _different(column)
            # No more than the groups: products over many columns could overflow.
            of_pairs, together = _different_numbers(together * len(of_column) + places)
            self._others.append((of_column, of_pairs))
        self._order = np.empty(len(values) + 1, np.int64)
        self._order[together] = np.arange(len(values))
        self._order[-1] = -1

    def numbers(self, keys: pd.DataFrame) -> NDArray[np.int64]:
        """Return what `GroupIndex.numbers` does."""
        first, *others = _columns(keys)
        together = self._first.places(first)
        for column, (of_column, of_pairs) in zip(others, self._others, strict=True):
            places = of_column.places(column)
            is_known = (together >= 0) & (places >= 0)
            found = of_pairs.places(together * len(of_column) + places)
            together = np.where(is_known, found, -1)
        return self._order[together]


class _NumberPlaces:
    """Different whole numbers, ascending."""

    def __init__(self, different: NDArray[np.int64]) -> None:
        self._different = different

    def __len__(self) -> int:
        return len(self._different)

    def places(self, sought: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the place of each number; -1 if it is not there."""
        if len(self) == 0:
            return np.full(len(sought), -1)
        places = np.minimum(np.searchsorted(self._different, sought), len(self) - 1)
        return np.where(self._different[places] == sought, places, -1)


class _ObjectPlaces:
    """Different values of one type."""

    def __init__(self, different: NDArray[Any]) -> None:
        places = range(len(different))
        self._places = dict(zip(different.tolist(), places, strict=True))

    def __len__(self) -> int:
        return len(self._places)

    def places(self, sought: NDArray[Any]) -> NDArray[np.int64]:
        """Return the place of each value; -1 if it is not there."""
        places = (self._places.get(value, -1) for value in sought.tolist())
        return np.fromiter(places, np.int64, len(sought))


def _different(
    values: NDArray[Any],
) -> tuple[_ObjectPlaces | _NumberPlaces, NDArray[np.int64]]:
    """Return the different ones of some values, and the place of each value."""
    if values.dtype != object:
        return _different_numbers(values)
    places, different = pd.factorize(values)
    return _ObjectPlaces(different), places


def _different_numbers(
    numbers: NDArray[np.int64],
) -> tuple[_NumberPlaces, NDArray[np.int64]]:
    if (numbers[1:] > numbers[:-1]).all():  # as those of a single column are
        return _NumberPlaces(numbers), np.arange(len(numbers))
    different, places = np.unique(numbers, return_inverse=True)
    return _NumberPlaces(different), places


def _columns(frame: pd.DataFrame) -> list[NDArray[Any]]:
    """Return whole numbers, booleans and dates as whole numbers, and others as objects."""
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    return [
        of.astype(np.int64 if of.dtype.kind in "biM" else object).to_numpy()
        for of in columns
    ]
