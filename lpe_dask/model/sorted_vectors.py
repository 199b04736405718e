r"""Sort a vector on storage, of which no process holds more than a part.

    a range of places    --sort-->      run: ascending             TASK_NUMBERS numbers
    a range of values    --merge-->     of all runs, ascending     SortedVector

Of each run the client holds every PAGE-th value, 2 bytes for 1,000 numbers, by which it
cuts the runs into ranges of about equally many; equal values are cut, too. With n numbers,
n / TASK_NUMBERS tasks read a part of as many runs each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model import measured_vectors
from lpe_dask.model.measured_vectors import range_edges
from lpe_dask.storage import (
    SortedVector,
    SpooledNumbers,
    StoredVector,
    VectorPart,
    child_url,
)
from lpe_dask.tasks import compute, new_tasks, shared_folder, to_task

#: Numbers of a run between two of which the client knows the values.
PAGE = 2**12


def ascending(vector: StoredVector) -> SortedVector:
    """Return the numbers of a vector that are not NaN, ascending; computes."""
    folder, entry = shared_folder("runs"), shared_folder("calibration")
    whole = to_task(vector, "lpe-statistic")
    edges = pairwise(range_edges(len(vector)).tolist())
    sorts = ((_sort, whole.key, *of_range, folder.url, PAGE) for of_range in edges)
    runs = [run for run in compute(*new_tasks("sort", sorts, [whole])) if run.n > 0]
    urls = to_task([run.url for run in runs], "lpe-runs")
    merges = ((_merge, urls.key, *cuts, entry.url) for cuts in pairwise(_cuts(runs)))
    parts = compute(*new_tasks("merge", merges, [urls]))
    return SortedVector.of([part for of_range in parts for part in of_range], entry)


@dataclass(frozen=True, slots=True)
class Run:
    """Ascending numbers in a file.

    Attributes
    ----------
    url : str
    n : int
    firsts : ndarray of shape (n_pages,)
        The first number of each page.
    """

    url: str
    n: int
    firsts: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in all runs: what is before it is no more than what is after it.

    Equal values are ordered by their runs, so that these can be cut, too.

    Attributes
    ----------
    value : float
        The number at the place, in the run ``run`` at ``place``.
    run, place : int
    pages : ndarray of shape (n_runs, 2)
        From where to where the cut of each run can be, of which tasks find the place.
    """

    value: float
    run: int
    place: int
    pages: NDArray[np.int64]

    def sides(self, n_runs: int) -> list[Literal["left", "right"]]:
        """Return on which side of equal values the cut of each run is."""
        return ["right" if i < self.run else "left" for i in range(n_runs)]


def _cuts(runs: Sequence[Run]) -> list[Cut]:
    """Return cuts between which there are about `TASK_NUMBERS` numbers, and no more pages.

    Of each run, at most a page more than these is between two of them.
    """
    sizes = np.array([run.n for run in runs])
    values = np.concatenate([run.firsts for run in runs])
    of_runs = np.repeat(np.arange(len(runs)), [len(run.firsts) for run in runs])
    places = np.concatenate([np.arange(len(run.firsts)) * PAGE for run in runs])
    order = np.lexsort((places, of_runs, values))
    cuts = [Cut(-np.inf, 0, 0, np.zeros((len(runs), 2), np.int64))]
    for i in order[:: max(1, measured_vectors.TASK_NUMBERS // PAGE)][1:].tolist():
        cut = Cut(float(values[i]), int(of_runs[i]), int(places[i]), cuts[0].pages)
        pages = [
            _page_of(run, cut, k, side)
            for k, (run, side) in enumerate(zip(runs, cut.sides(len(runs)), strict=True))
        ]
        cuts.append(Cut(cut.value, cut.run, cut.place, np.array(pages)))
    return [*cuts, Cut(np.inf, len(runs), 0, np.column_stack([sizes, sizes]))]


def _page_of(run: Run, cut: Cut, k: int, side: Literal["left", "right"]) -> tuple[int, int]:
    """Return from where to where the cut of a run can be."""
    if k == cut.run:
        return cut.place, cut.place
    n_before = int(np.searchsorted(run.firsts, cut.value, side))
    return max(0, n_before - 1) * PAGE, min(n_before * PAGE, run.n)


# The functions below run inside tasks: NumPy in, files out.


def _sort(vector: StoredVector, start: int, stop: int, folder: str, page: int) -> Run:
    values = vector.part(start, stop)
    run = np.sort(values[~np.isnan(values)])
    url = child_url(folder, f"run-{uuid4().hex}")
    SpooledNumbers.write(url, run)
    return Run(url, len(run), run[::page].copy())


def _merge(urls: Sequence[str], low: Cut, high: Cut, folder: str) -> list[VectorPart]:
    """Write the numbers of all runs between two cuts."""
    found = []
    sides = zip(low.sides(len(urls)), high.sides(len(urls)), strict=True)
    for k, (url, (below, above)) in enumerate(zip(urls, sides, strict=True)):
        first, last = int(low.pages[k, 0]), int(high.pages[k, 1])
        values = SpooledNumbers(url).read(first, last)
        start = _cut_in(values, first, low, k, below)
        found.append(values[start : _cut_in(values, first, high, k, above)])
    return VectorPart.write(np.sort(np.concatenate(found)), folder)


def _cut_in(
    values: NDArray[np.float64],
    first: int,
    cut: Cut,
    k: int,
    side: Literal["left", "right"],
) -> int:
    """Return the place of a cut in numbers of a run, which are those from ``first`` on."""
    low, high = (int(place) - first for place in cut.pages[k])
    if low >= high:
        return low
    return low + int(np.searchsorted(values[low:high], cut.value, side))
