"""Long vectors of float64 in files: a task reads the part that it needs, and no more.

    StoredVector   part(start, stop)            reads the files that hold these
    SortedVector   searchsorted(values, side)   reads the files that the values fall into

Of a vector a process holds the names of its files, how long each is and how each begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lpe_dask.storage.arrays import ArrayFile
from lpe_dask.storage.filesystems import open_url
from lpe_dask.storage.messages import disk_full_context
from lpe_dask.storage.numeric_parquet import StoredFile
from lpe_dask.storage.retries import retried
from lpe_dask.storage.urls import child_url

#: Numbers in a file of a vector, about 2 MiB: at 1e9 rows there are 4,000 files.
FILE_NUMBERS = 2**18


class VectorFile(Protocol):
    """A file with a part of a vector."""

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Return its numbers from ``start`` to ``stop``."""


@dataclass(frozen=True, slots=True)
class SpooledNumbers:
    """A part of a vector, or several arrays, in a file that tasks of this process wrote.

    Attributes
    ----------
    url : str
    """

    url: str

    @staticmethod
    @retried
    def write(url: str, *arrays: NDArray[Any]) -> SpooledNumbers:
        """Write arrays to a file, and return it."""
        or_else = " or name another spool (configuration key lpe-dask.spool, --spool)"
        with (
            disk_full_context(url.rsplit("/", 1)[0], or_else),
            open_url(url, "wb") as file,
        ):
            ArrayFile.write(file, arrays)
        return SpooledNumbers(url)

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Return its numbers from ``start`` to ``stop``."""
        return self.parts([(0, start, stop)])[0]

    @retried
    def parts(self, bounds: Sequence[tuple[int, int, int | None]]) -> list[NDArray[Any]]:
        """Return rows of some arrays: which array, from where, and up to where."""
        try:
            with open_url(self.url, "rb") as file:
                arrays = ArrayFile(file)
                return [arrays.part(*of) for of in bounds]
        except FileNotFoundError as error:
            raise RuntimeError(
                f"{self.url}, with statistics of nominal rows, does not exist: it was "
                f"removed, or this worker does not see its storage. Fit again with a "
                f"folder or URL that all workers share (configuration key lpe-dask.spool, "
                f"--spool), or save a model where it was fitted (model.save) and load it "
                f"here (lpe_dask.load)."
            ) from error


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """A part of a vector in a file of a model, checked whenever it is read.

    Attributes
    ----------
    file : StoredFile
        With one column.
    column : str
    n : int
        Numbers in it.
    is_sorted : bool
        Whether they ascend, without NaN.
    """

    file: StoredFile
    column: str
    n: int
    is_sorted: bool

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Return its numbers from ``start`` to ``stop``.

        Raises
        ------
        ValueError
            If the file was altered, or holds something else.
        """
        columns = self.file.columns({self.column: np.float64}, self.n)
        values: NDArray[np.float64] = columns[self.column]
        if self.is_sorted:
            check_ascending(values, self.file.url)
        return values[start:stop]


def check_ascending(values: NDArray[np.float64], url: str) -> None:
    """Raise ValueError unless numbers ascend, without NaN; ``url`` names their file."""
    if np.isnan(values).any() or (values[1:] < values[:-1]).any():
        raise ValueError(f"{url} is not sorted or contains NaN")


class VectorPart(NamedTuple):
    """A file of a vector.

    Attributes
    ----------
    file : VectorFile
    n : int
        Numbers in it, at least 1.
    first : float
        The first of them.
    """

    file: VectorFile
    n: int
    first: float

    @staticmethod
    def write(values: NDArray[np.float64], folder: str) -> list[VectorPart]:
        """Write numbers to files of up to `FILE_NUMBERS` in a folder."""
        parts = []
        for start in range(0, len(values), FILE_NUMBERS):
            of_file = values[start : start + FILE_NUMBERS]
            url = child_url(folder, f"numbers-{uuid4().hex}")
            file = SpooledNumbers.write(url, of_file)
            parts.append(VectorPart(file, len(of_file), float(of_file[0])))
        return parts


class StoredVector:
    """Numbers in files, one after another.

    Parameters
    ----------
    files : list of VectorFile
    sizes : list of int
        Numbers in each, at least 1.
    firsts : list of float
        The first of each.
    entry : object, optional
        What keeps the files, for as long as this vector, here or in a task.
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        files: Sequence[VectorFile],
        sizes: Sequence[int],
        firsts: Sequence[float],
        entry: Any = None,
    ) -> None:
        self.files = list(files)
        self.starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
        self.firsts = np.asarray(firsts, np.float64)
        self.entry = entry

    @classmethod
    def of(cls, parts: Sequence[VectorPart], entry: Any = None) -> Self:
        """Return the vector of these parts."""
        files, sizes, firsts = zip(*parts, strict=True)
        return cls(files, sizes, firsts, entry)

    @property
    def parts(self) -> list[VectorPart]:
        """Its parts."""
        sizes = np.diff(self.starts).tolist()
        given = zip(self.files, sizes, self.firsts.tolist(), strict=True)
        return [VectorPart(*of) for of in given]

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int]:
        """As that of an array."""
        return (len(self),)

    def __getitem__(self, which: int | slice) -> Any:
        """Return a number, or those of a slice without step, read now."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            assert step == 1
            return self.part(start, stop)
        place = range(len(self))[which]
        return self.part(place, place + 1)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all numbers, read now: 8 bytes each."""
        values = self.part(0, len(self))
        return values if dtype is None else values.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} numbers in {len(self.files)} files)"

    def part(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the numbers from ``start`` to ``stop``, read now."""
        if start >= stop:
            return np.empty(0)
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        found = []
        for i in range(first, last):
            before, after = self.starts[i : i + 2].tolist()
            bounds = max(0, start - before), min(stop, after) - before
            found.append(self.files[i].read(*bounds))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def each_file(self) -> Iterator[NDArray[np.float64]]:
        """Yield the numbers of one file after another."""
        for file in self.files:
            yield file.read()

    def __sizeof__(self) -> int:
        """Return about the bytes of a message."""
        return len(self.files) * 512 + self.starts.nbytes + self.firsts.nbytes

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Share it; nothing changes it."""
        return self

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, list(map(repr, self.files)), self.starts.tolist()


class SortedVector(StoredVector):
    """Ascending numbers in files, in which others are looked up as in an array."""

    def searchsorted(
        self, values: NDArray[np.float64], side: Literal["left", "right"] = "left"
    ) -> NDArray[np.int64]:
        """Return the ranks of values, as `numpy.searchsorted` gives them.

        Only those files are read, one at a time and at most once, into which values fall.
        """
        sought = np.asarray(values, np.float64)
        ranks = np.full(sought.shape, len(self), np.int64)
        is_number = ~np.isnan(sought)  # NaN comes after all others
        # All files before the one that a value falls into have smaller numbers, and all
        # after it have none.
        which = np.searchsorted(self.firsts, sought, side) - 1
        ranks[is_number & (which < 0)] = 0
        found = np.flatnonzero(is_number & (which >= 0))
        if len(found) == 0:
            return ranks
        found = found[np.argsort(which[found], kind="stable")]
        used, edges = np.unique(which[found], return_index=True)
        for i, places in zip(used.tolist(), np.split(found, edges[1:]), strict=True):
            in_file = np.searchsorted(self.files[i].read(), sought[places], side)
            ranks[places] = self.starts[i] + in_file
        return ranks
