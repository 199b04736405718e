"""Rows that are read beside those that are packed, and kept for a later step of a fit.

    partition -+-> its rows of the reference --> blocks
               +-> its other rows -------------> held, in memory or in a spool, as they came

Calibration rows that belong to no block are measured once all blocks are there: without
this they would be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.blocks.spool_blocks import SpoolFolder
from lpe_dask.tasks import LocalValue, SpoolEntry, meta_of, new_array, new_tasks


class HeldRows:
    """Some nominal rows, kept until they are released.

    Parameters
    ----------
    source : callable
        Gives them, a dask array of shape (n, n_features), with known chunks.
    """

    def __init__(self, source: Callable[[], da.Array]) -> None:
        self._source = source
        self._chunks: tuple[tuple[int, ...], ...] = ()
        self._kept: Sequence[Any] = ()
        self._empty: Any = None
        self._entry: SpoolEntry | None = None

    def tasks(self, entry: SpoolEntry | None) -> list[Delayed]:
        """Return tasks whose results are to be given to `keep`.

        ``entry`` is that of the spool of the blocks; None: they stay in memory.
        """
        rows = self._source()
        self._chunks, self._empty, self._entry = rows.chunks, meta_of(rows), entry
        folder = None if entry is None else SpoolFolder(entry.url)
        blocks = range(rows.numblocks[0])
        return new_tasks(
            "hold", ((_hold, (rows.name, i, 0), folder) for i in blocks), [rows]
        )

    def keep(self, results: Sequence[Any]) -> None:
        """Keep what the tasks gave: arrays, what reads them, or tasks that have them."""
        if len(results) > 0 and not isinstance(results[0], Delayed):
            results = [LocalValue(of, "lpe-held") for of in results]
        self._kept = results

    def rows(self) -> da.Array:
        """Return the rows, lazily: read again, if they were not kept."""
        if not self._kept:
            return self._source()
        held = self._kept
        if isinstance(held[0], LocalValue):
            held = LocalValue.tasks(held)
        return new_array(
            "held", ((_held, of.key) for of in held), held, self._chunks, self._empty
        )

    def release(self) -> None:
        """Keep the rows no longer."""
        self._kept = ()
        if self._entry is not None:
            SpoolFolder(self._entry.url).remove_rows()
            self._entry = None


# The functions below run inside tasks.


def _hold(rows: NDArray[np.generic], folder: SpoolFolder | None) -> Any:
    return rows if folder is None else folder.write_rows(rows)


def _held(held: Any) -> NDArray[np.generic]:
    rows: NDArray[np.generic] = held if isinstance(held, np.ndarray) else held.load()
    return rows
