r"""All blocks of nominal rows, or a neighbor graph, kept where searches find them.

    tasks  --keep-->  on a cluster    futures of the same tasks, under the same keys
                      in this process their values
                      in a spool      files, and their handles in this process

Graphs that search blocks hold the tasks that make them, all the way from the rows. Where a
scheduler has the results already it takes those, by their keys; where it has not, because
a worker was lost, the cluster was restarted, or it is another one, it makes them again.
What is kept only saves time. Values of this process that the tasks are made of count in
each graph with these blocks: see `call_scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self
from uuid import uuid4

from dask.delayed import Delayed

from lpe_dask.forks import ForkSafeLock
from lpe_dask.search.blocks.held_rows import HeldRows
from lpe_dask.search.blocks.spool_blocks import Handles, SpoolFolder, new_entry
from lpe_dask.tasks import (
    FrozenTasks,
    LocalValue,
    SpoolEntry,
    active_client,
    compute,
    eager_scope,
    pickling_purpose,
)


class Blocks:
    """Blocks, or a neighbor graph as the only one; copies of a model share them.

    Parameters
    ----------
    make : callable
        Gives the tasks that make them, all the way from the rows.
    n_blocks : int
        Blocks, or 1 for a graph.
    """

    def __init__(self, make: Callable[[], list[Delayed]], n_blocks: int) -> None:
        self._made = FrozenTasks(make)
        self._n_blocks = n_blocks
        self._values: list[LocalValue] = []
        self._in_spool = False
        self._token = uuid4().hex
        self._lock = ForkSafeLock()  # several threads may use one model

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self._n_blocks

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Share them; nothing changes them."""
        return self

    def __dask_tokenize__(self) -> str:
        return self._token

    @classmethod
    def of(cls, make: Callable[[], list[Delayed]], beside: HeldRows | None = None) -> Self:
        """Return the blocks that tasks make, kept for the scheduler; computes.

        ``beside`` are rows that are kept at the same time.
        """
        blocks = cls(make, 0)
        blocks._n_blocks = len(blocks._made.tasks())
        if beside is None:
            blocks.keep()
        else:
            beside.keep(blocks._compute(beside.tasks(None)))
        if blocks._values:  # nothing is made of the rows again
            blocks._made = FrozenTasks(_not_rebuildable)
        return blocks

    @classmethod
    def spooled(
        cls, tasks: list[Delayed], entry: SpoolEntry, beside: HeldRows | None = None
    ) -> Self:
        """Return blocks that tasks write into an entry of a spool; computes.

        ``beside`` as in `of`.
        """
        blocks = cls(_not_rebuildable, 0)
        held = [] if beside is None else beside.tasks(entry)
        results = compute(*tasks, *held)
        if beside is not None:
            beside.keep(results[len(tasks) :])
        blocks._take_handles(results[: len(tasks)], entry)
        return blocks

    def _take_handles(self, handles: Sequence[Any], entry: SpoolEntry) -> None:
        self._n_blocks, self._in_spool = len(handles), True
        self._values = [LocalValue(Handles(handles, entry), "lpe-blocks")]

    @property
    def is_spooled(self) -> bool | None:
        """Whether they are in a spool; None where that is not settled."""
        return self._in_spool

    def keep(self, *, in_spool: bool = False) -> None:
        """Have them ready where the active scheduler finds them; computes what is not."""
        with self._lock:
            if self.is_available():
                return
            self._compute([])

    def _compute(self, others: list[Delayed]) -> Sequence[Any]:
        """Compute and keep them; and others, whose results are returned."""
        if active_client() is not None:
            return self._made.persist(others)
        values = compute(*self._made.tasks(), *others)
        kept = values[: len(values) - len(others)]
        self._values = [LocalValue(value, "lpe-block") for value in kept]
        return values[len(kept) :]

    def tasks(self) -> list[Delayed]:
        """Return a task for each, which gives a `InMemoryBlock`, or the graph.

        Of those in a spool, one task, which gives all `Handles`.

        Raises
        ------
        RuntimeError
            If what they are made of was in the memory of a cluster that is gone.
        ValueError
            If that is in this process, and too much to be sent.
        """
        if self._values:
            return LocalValue.tasks(self._values)
        with self._lock:
            return self._made.tasks()

    def local_values(self) -> list[Any] | None:
        """Return the handles of blocks that are in the memory of this process, or a graph.

        None where they are elsewhere.
        """
        return [held.value for held in self._values] if self.are_local else None

    @property
    def are_local(self) -> bool:
        """Whether they are in the memory of this process."""
        return bool(self._values) and not self._in_spool

    def is_available(self) -> bool:
        """Return whether the active scheduler finds them."""
        return bool(self._values) or self._made.are_persisted()

    def __reduce__(self) -> tuple[Any, ...]:
        """Include the results: a copy of a model does not depend on a cluster."""
        if self._in_spool:
            raise TypeError(
                "the nominal rows of this model are in a spool, which is removed with the "
                "model and cannot be copied with it. Save the model and load it there, or "
                "fit where they fit into memory."
            )
        kept: list[Any] = [held.value for held in self._values]
        purpose = None if kept else pickling_purpose()
        if purpose == "hash":
            kept = [self._token]  # of what is pickled now, only a hash is kept
        if purpose == "graph":
            raise TypeError(
                "a model that was fitted on a cluster keeps its nominal rows there, and "
                "cannot be sent with a task (client.submit, client.map, delayed). Send a "
                "copy that has them, pickle.loads(pickle.dumps(model)), or save the model "
                "(model.save) and load it in the task (lpe_dask.load)."
            )
        if not kept:
            with eager_scope():
                kept = list(compute(*self._made.tasks()))
        return _unpickle, (self._n_blocks, kept)


class StoredBlocks(Blocks):
    """The blocks of a saved model, or its neighbor graph as the only one.

    A lazy scoring reads their files itself, and a pickled model does not contain them.

    Parameters
    ----------
    load : callable
        From an optional folder to put them into, to the tasks that read them.
    n_blocks : int
        Blocks, or 1 for a graph.
    """

    def __init__(
        self, load: Callable[[SpoolFolder | None], list[Delayed]], n_blocks: int
    ) -> None:
        super().__init__(partial(load, None), n_blocks)
        self._load = load

    @property
    def is_spooled(self) -> bool | None:
        """Whether they are in a spool; None where that is not settled."""
        return self._in_spool if self.is_available() else None

    def keep(self, *, in_spool: bool = False) -> None:
        """Have them ready where the active scheduler finds them; computes what is not."""
        with self._lock:
            if not in_spool or self.is_available():
                super().keep()
                return
            entry = new_entry()
            handles = compute(*self._load(SpoolFolder(entry.url)))
            self._take_handles(handles, entry)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredBlocks, (self._load, len(self))


def _unpickle(n_blocks: int, values: list[Any]) -> Blocks:
    blocks = Blocks(_not_rebuildable, n_blocks)
    blocks._values = [LocalValue(value, "lpe-block") for value in values]
    return blocks


def _not_rebuildable() -> list[Delayed]:
    raise AssertionError("values are never made again")
