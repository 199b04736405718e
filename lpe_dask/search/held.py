r"""Blocks of nominal rows, or a neighbor graph, in memory.

    tasks  --keep-->  on a cluster    futures of the same tasks, under the same keys
                      in this process their values

Graphs that search blocks hold the tasks that make them, all the way from the rows. Where a
scheduler has the results already it takes those, by their keys; where it has not, because
a worker was lost, the cluster was restarted, or it is another one, it makes them again.
What is kept only saves time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import Block
from lpe_dask.tasks import (
    Held,
    active_client,
    carries,
    check_reachable,
    compute,
    enter,
    is_eager,
    is_large,
    is_naming,
    is_sending,
    is_shared,
    needs_sent,
    persist_cancellably,
    settle_tasks,
    with_kept,
)


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block in memory, with a sample of its rows as another one.

    Attributes
    ----------
    block : Block
    sample : Block, optional
        Where searches will want it.
    """

    block: Block
    sample: Block | None

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        of_sample = 0 if self.sample is None else self.sample.__sizeof__()
        return self.block.__sizeof__() + of_sample

    @property
    def low(self) -> NDArray[np.float64]:
        """The lowest coordinates of its rows in the basis."""
        return self.block.low

    @property
    def high(self) -> NDArray[np.float64]:
        """The highest coordinates of its rows in the basis."""
        return self.block.high

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return self.block.n_rows

    def load(self) -> Block:
        """Return the block."""
        return self.block

    def load_sample(self) -> Block:
        """Return the block of sampled rows."""
        assert self.sample is not None
        return self.sample


class Rows(NamedTuple):
    """Some rows of a region with their numbers, and how many the whole region has."""

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    n_in_region: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows of one partition, sorted by the region of the reference they belong to.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
        As prepared.
    numbers : ndarray of shape (n_rows,)
        Their numbers in the reference.
    starts : ndarray of shape (n_regions + 1,)
        Region ``p`` is the rows from ``starts[p]`` to ``starts[p + 1]``.
    """

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.rows.nbytes + self.numbers.nbytes + self.starts.nbytes

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each region."""
        return np.diff(self.starts)

    def read(self, region: int, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of a region, or as many of them as it has."""
        first, last = self.starts[region : region + 2]
        which = slice(min(first + start, last), min(first + stop, last))
        return Rows(self.rows[which], self.numbers[which], int(last - first))


class SharedBlocks:
    """All blocks of a reference, wherever they are: copies of a model share them."""

    def __init__(self, n_blocks: int) -> None:
        self._n_blocks = n_blocks
        self._token = uuid4().hex
        self._lock = threading.RLock()  # several threads may use one model

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self._n_blocks

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Share them; nothing changes them."""
        return self

    def __dask_tokenize__(self) -> str:
        return self._token


class HeldBlocks(SharedBlocks):
    """Blocks, or a neighbor graph as the only one, which are kept in memory.

    Parameters
    ----------
    make : callable
        Gives the tasks that make them, all the way from the rows.
    n_blocks : int
        Blocks, or 1 for a graph.
    n_bytes : int, default=0
        Bytes of this process that the tasks are made of.
    """

    is_spooled = False

    def __init__(
        self, make: Callable[[], list[Delayed]], n_blocks: int, n_bytes: int = 0
    ) -> None:
        super().__init__(n_blocks)
        self._make = make
        self._n_bytes = n_bytes
        self._tasks: list[Delayed] | None = None
        self._futures: list[Any] = []
        self._client: Any = None  # a weak reference to whose futures these are
        self._values: list[Held] = []

    @classmethod
    def of(
        cls, tasks: list[Delayed], make: Callable[[], list[Delayed]], n_bytes: int = 0
    ) -> Self:
        """Return what tasks make, kept where the active scheduler finds it; computes.

        Parameters
        ----------
        tasks : list of Delayed
        make : callable
            Gives such tasks anew.
        n_bytes : int, default=0
            As for `HeldBlocks`.
        """
        blocks = cls(make, len(tasks), n_bytes)
        blocks._tasks = settle_tasks(tasks)
        blocks.keep()
        if blocks._values:  # nothing is made of the rows again
            blocks._make, blocks._tasks = _nothing, None
        return blocks

    def keep(self, *, in_spool: bool = False) -> None:
        """Have them ready where the active scheduler finds them; computes what is not."""
        with self._lock:
            if self.are_kept():
                return
            client = active_client()
            if client is None:
                values = compute(*self._recipe())
                self._values = [Held(value, "lpe-block") for value in values]
            else:
                self._futures = persist_cancellably(self._recipe())
                self._client = weakref.ref(client)

    def tasks(self) -> list[Delayed]:
        """Return a task for each, which gives a `HeldBlock`, or the graph.

        Raises
        ------
        RuntimeError
            If what they are made of was in the memory of a cluster that is gone.
        """
        if self._values:
            return [enter(value, "lpe-block") for value in self._values]
        with self._lock:
            return self._recipe()

    def are_kept(self) -> bool:
        """Return whether the active scheduler finds them."""
        if self._values:
            return True
        holder = None if self._client is None else self._client()
        is_here = holder is not None and holder is active_client()
        if not (is_here and all(map(_is_alive, _futures_of(self._futures)))):
            if self._futures and not is_shared() and self._need_client_data():
                self._tasks = None  # what they were made of was sent, and let go
            self._futures, self._client = [], None
        return bool(self._futures)

    def _recipe(self) -> list[Delayed]:
        """Return the tasks that make them, all the way from the rows."""
        if not is_eager() and not is_shared() and self._need_client_data():
            if carries(self._n_bytes) or not self.are_kept():
                return self._make()
            assert self._tasks is not None
            return with_kept(self._tasks, _futures_of(self._futures))
        if self._tasks is None:
            self._tasks = settle_tasks(self._make())
        check_reachable(self._tasks)
        return self._tasks

    def _need_client_data(self) -> bool:
        """Return whether tasks need what was sent from this process, and is not kept."""
        has_sent = self._tasks is not None and needs_sent(self._tasks)
        return is_large(self._n_bytes) or has_sent

    def __reduce__(self) -> tuple[Any, ...]:
        """Bring the results along: a copy of a model does not depend on a cluster."""
        kept: list[Any] = [held.value for held in self._values]
        if not kept and is_naming():
            kept = [self._token]  # of what is pickled now, only a hash is kept
        if not kept and is_sending():
            raise TypeError(
                "a model that was fitted on a cluster keeps its nominal rows there, and "
                "cannot go along with a task (client.submit, client.map, delayed). Send a "
                "copy that has them, pickle.loads(pickle.dumps(model)), or save the model "
                "(model.save) and load it in the task (lpe_dask.load)."
            )
        return _restored, (self._n_blocks, kept or list(compute(*self._recipe())))


def _restored(n_blocks: int, values: list[Any]) -> HeldBlocks:
    blocks = HeldBlocks(_nothing, n_blocks)
    blocks._values = [Held(value, "lpe-block") for value in values]
    return blocks


def _nothing() -> list[Delayed]:
    raise AssertionError("values are never made again")


def _futures_of(persisted: list[Delayed]) -> list[Any]:
    return [future for task in persisted for future in task.dask.values()]


def _is_alive(future: Any) -> bool:
    """Return whether the future of a task that was persisted may still give a result."""
    return future.status in ("pending", "finished")
