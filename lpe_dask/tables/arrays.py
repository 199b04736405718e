"""Take lists of rows and masked arrays as arrays, in which a masked value is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Whole numbers of less are floats as well.
_FIRST_GAP = 2**53


def as_array(X: Any) -> Any:
    """Return lists of rows and masked arrays as arrays, and anything else as it is.

    Of objects where there is text, or whole numbers that may be too large for floats: NumPy
    would make text of the numbers beside it, or floats of all. A masked value is NaN, or
    None among objects.

    Raises
    ------
    ValueError
        If the rows of a list are not of one length.
    """
    if isinstance(X, np.ma.MaskedArray):
        return _filled(X)
    if not isinstance(X, list | tuple):
        return X
    if any(map(_has_masked, X)):
        return np.asarray(_without_masks(X), dtype=object)
    try:
        array = np.asarray(X)
    except ValueError as error:  # of other shapes
        raise ValueError(_ragged(X)) from error
    is_text = array.dtype.kind in "US"
    return np.asarray(X, dtype=object) if is_text or _may_have_lost(array) else array


def _filled(X: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    """Return a masked array without mask: the same where nothing is masked."""
    plain, is_masked = np.asarray(X.data), np.ma.getmaskarray(X)
    if not is_masked.any():
        return plain
    if plain.dtype.kind in "fc":
        return np.where(is_masked, plain.dtype.type(np.nan), plain)
    if plain.dtype.kind in "iu":
        floats = np.where(is_masked, np.nan, plain)
        if not _may_have_lost(floats):
            return floats
    objects = plain.astype(object)
    objects[is_masked] = None
    return objects


def _has_masked(row: Any) -> bool:
    if isinstance(row, list | tuple):
        return np.ma.core.MaskedConstant in set(map(type, row))
    return isinstance(row, np.ma.MaskedArray)


def _without_masks(X: Any) -> Any:
    """Return rows with None for what is masked."""
    if isinstance(X, np.ma.MaskedArray):
        return X.tolist()
    return [*map(_without_masks, X)] if isinstance(X, list | tuple) else X


def _may_have_lost(array: NDArray[Any]) -> bool:
    """Return whether floats may be rounded, as whole numbers beside floats are."""
    return array.dtype.kind == "f" and bool((np.abs(array) >= _FIRST_GAP).any())


def _ragged(X: Any) -> str:
    """Return an error about rows of which one is unlike the first."""
    sizes = [len(row) if isinstance(row, list | tuple) else np.shape(row) for row in X]
    unlike = next((i for i, size in enumerate(sizes) if size != sizes[0]), 0)
    return (
        f"all rows of a list must have equally many values, each of one number, but row 0 "
        f"is {X[0]!r:.60}, and row {unlike} is {X[unlike]!r:.60}. Give each row as a list "
        f"with a value for each column, None for a missing one; or all as dicts."
    )
