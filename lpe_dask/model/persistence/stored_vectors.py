"""Statistics of many nominal rows in the files of a model: written and read by tasks.

StoredVector --StoredVectors.store--> <name>-00000.parquet ..., <name>-index.parquet
files --StoredVectors.load--> StoredVector, whose files are checked when they are read
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from lpe_dask.storage import (
    SortedVector,
    StoredFile,
    StoredNumbers,
    StoredVector,
    VectorFile,
    VectorPart,
    check_ascending,
    child_url,
)
from lpe_dask.tasks import compute, new_tasks

#: Of the files of the sorted statistics, and of those in the order of the rows.
CALIBRATION, NOMINAL = "calibration", "nominal"

#: The column of a file of a vector, and those of the file that lists the others.
_COLUMN, _INDEX = "statistic", {"first": np.float64, "n": np.int64}


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """How many files each vector has that is not in one file.

    Attributes
    ----------
    calibration : int, optional
        The sorted statistics.
    nominal : int, optional
        Those in the order of the rows.
    """

    calibration: Annotated[int, Field(ge=1, le=10**5)] | None = None
    nominal: Annotated[int, Field(ge=1, le=10**5)] | None = None

    def file_names(self) -> set[str]:
        """Return the names of all files."""
        names: set[str] = set()
        for name, n_files in ((CALIBRATION, self.calibration), (NOMINAL, self.nominal)):
            if n_files is not None:
                names |= {_index_name(name), *_part_names(name, n_files)}
        return names


def store_vector(vector: StoredVector, name: str, url: str) -> dict[str, StoredFile]:
    """Write a vector to files in a folder, and return these by their names; computes."""
    names = _part_names(name, len(vector.files))
    tasks = (
        (_store, file, child_url(url, of_file))
        for file, of_file in zip(vector.files, names, strict=True)
    )
    files = dict(zip(names, compute(*new_tasks("store-vector", tasks)), strict=True))
    index = {"first": vector.firsts, "n": np.diff(vector.starts)}
    files[_index_name(name)] = StoredFile.write(child_url(url, _index_name(name)), index)
    return files


def load_vector(
    files: Mapping[str, StoredFile], name: str, n_files: int, n_most: int
) -> StoredVector:
    """Return a vector whose files are read when it is used.

    Parameters
    ----------
    files : mapping of str to StoredFile
        By name.
    name : {"calibration", "nominal"}
    n_files : int
    n_most : int
        Numbers that there can be, at most.

    Raises
    ------
    ValueError
        If the file that lists the others was altered, or says what cannot be.
    """
    index = files[_index_name(name)]
    columns = index.columns(_INDEX, n_files)
    firsts, sizes = columns["first"], columns["n"]
    if sizes.min() < 1 or sizes.max() > n_most or sizes.sum() > n_most:
        raise ValueError(f"{index.url} lists files of no numbers, or of too many")
    is_sorted = name == CALIBRATION
    if is_sorted:
        check_ascending(firsts, index.url)
    parts = []
    given = zip(_part_names(name, n_files), sizes.tolist(), firsts.tolist(), strict=True)
    for of_file, n, first in given:
        files[of_file].check_plausible(1, n)
        file = StoredNumbers(files[of_file], _COLUMN, n, is_sorted)
        parts.append(VectorPart(file, n, first))
    return (SortedVector if is_sorted else StoredVector).of(parts)


def _part_names(name: str, n_files: int) -> list[str]:
    return [f"{name}-{i:05}.parquet" for i in range(n_files)]


def _index_name(name: str) -> str:
    return f"{name}-index.parquet"


# Runs inside tasks.


def _store(file: VectorFile, url: str) -> StoredFile:
    return StoredFile.write(url, {_COLUMN: file.read()})
