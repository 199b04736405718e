"""The workers of several runs, one after the other: opened once, when one needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from lpe_dask.cli.json_lines import no_run_named
from lpe_dask.tasks import Workers

if TYPE_CHECKING:
    from lpe_dask.cli.cluster import WorkerChoice
    from lpe_dask.forecast import Workload


class SharedWorkers:
    """Workers that stay open from one run to the next.

    Threads of this process do a run for which other workers would not pay, as long as none
    are open: they need no start. From the first run that needs more, all have the same.

    Parameters
    ----------
    choice : WorkerChoice
        As options and the job say.
    stack : ExitStack
        Ends them.
    """

    def __init__(self, choice: WorkerChoice, stack: ExitStack) -> None:
        self._choice = choice
        self._stack = stack
        self._is_open = False

    @property
    def give_up_after(self) -> float:
        """See `WorkerChoice`."""
        return self._choice.give_up_after

    @property
    def finish_within(self) -> float:
        """See `WorkerChoice`; each run has this time."""
        return self._choice.finish_within

    def larger(self, than: Workers) -> Iterator[tuple[str, Workers]]:
        """See `WorkerChoice`."""
        return self._choice.larger(than)

    def resolve(self, sizes_of: Callable[[], Workload]) -> WorkerChoice | SharedWorkers:
        """Return the workers for a run, as `WorkerChoice.resolve` does."""
        if not self._is_open:
            choice = self._choice.resolve(sizes_of)
            if choice.is_in_process:
                return choice
        return self

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context in which Dask computes on these workers, which stay open."""
        if not self._is_open:
            with no_run_named():
                self._stack.enter_context(self._choice.open())
            self._is_open = True
        yield

    @contextmanager
    def for_plan(self) -> Iterator[Callable[[Workload], Workers]]:
        """Return a context that gives who would do so much work; starts none."""
        if self._is_open:
            workers = Workers.active(wait=True)
            yield lambda sizes: workers
            return
        with self._choice.for_plan() as choose:
            yield choose

    def close(self) -> None:
        """End the workers; the next run opens others."""
        self._stack.close()
        self._is_open = False
