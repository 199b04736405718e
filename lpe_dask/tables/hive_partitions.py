"""Read the keys in the names of folders, such as ``year=2026``, as columns of text.

They are text whatever they look like: what one input shows does not decide about another,
and ``007`` keeps its zeros.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from lpe_dask.tables.listing import path_of

logger = logging.getLogger(__name__)

#: Type of the columns of keys.
TYPE = pa.dictionary(pa.int32(), pa.string())

#: What Hive, Spark and pandas write for a missing value.
_NULL = "__HIVE_DEFAULT_PARTITION__"


def of_files(
    names: Sequence[str], columns: Collection[str]
) -> tuple[list[dict[str, str | None]], dict[str, str]]:
    """Return the keys of each file that all have, and why the others are left out.

    Parameters
    ----------
    names : sequence of str
        Of the files.
    columns : collection of str
        Columns in the files, which are taken instead of keys of their names; a log line
        says so.
    """
    keys = [_of_file(name) for name in names]
    if both := sorted({*columns}.intersection(*keys)):
        logger.warning(
            "keys in names of folders are also columns in the files, which are used: %s",
            ", ".join(both),
        )
    unlike: dict[str, str] = {}
    for name, of_file in zip(names, keys, strict=True):
        for key in (of_file.keys() ^ keys[0].keys()) - {*columns}:
            has, lacks = (name, names[0]) if key in of_file else (names[0], name)
            unlike.setdefault(
                key,
                f"{has} is in a folder of the key {key!r}, and {lacks} is not. Name files "
                f"in folders of the same keys; or leave the key out (columns=, --columns, "
                f"keep=, --keep).",
            )
    left_out = {*columns, *unlike}
    return [{k: v for k, v in of.items() if k not in left_out} for of in keys], unlike


def _of_file(name: str) -> dict[str, str | None]:
    parts = [part.partition("=") for part in path_of(name).split("/")[:-1]]
    found = {unquote(key): unquote(value) for key, sign, value in parts if key and sign}
    return {key: None if value == _NULL else value for key, value in found.items()}


def column(value: str | None, n_rows: int) -> pa.Array:
    """Return the column of a key of a file."""
    codes = pa.array(np.zeros(n_rows, np.int32))
    if value is None:
        codes = pa.nulls(n_rows, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array([value or ""], pa.string()))
