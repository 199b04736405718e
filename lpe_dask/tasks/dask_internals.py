"""All uses of private parts of Dask and `distributed`.

Each function is one such use: its docstring names the part, and says why nothing public
does the same. All of them ran with the oldest versions that pyproject.toml allows, dask and
distributed 2025.5.0 (``make test-oldest``), and with 2026.8.0. Look here first when a later
one breaks this. Private parts of numba are used in `kernels.numba_internals` only.
"""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import dask
from dask import threaded
from dask._task_spec import Alias, GraphNode, Task, TaskRef, convert_legacy_graph
from dask.base import get_scheduler
from dask.graph_manipulation import chunks
from dask.tokenize import tokenize_lock

# Collections


def meta_of(collection: Any) -> Any:
    """Return the empty array or frame that has the type of a dask array or frame.

    Uses ``_meta``. The constructors take a meta, but nothing public gives it back.
    Known to work since dask 2025.5.0.
    """
    return collection._meta


def simplified(frame: Any) -> Any:
    """Return a dask frame that reads no more columns than it needs, in its partitions.

    Uses ``simplify``, which is not documented: the one public way, ``optimize``, may also
    read several partitions as one.
    Known to work since dask 2025.5.0.
    """
    return frame.simplify()


def with_selection(frame: Any, select: Callable[..., Any]) -> Any:
    """Return a dask frame in which a function selects columns, where Dask would in a task.

    ``select(partition, names=..., partition_info=...)``; see `map_partitions` of Dask.

    Uses ``dask.dataframe.dask_expr._expr.Projection``, ``simplify`` and ``substitute``.
    Nothing public says what a frame is made of, or changes that.
    Known to work since dask 2025.5.0.
    """
    from dask.dataframe.dask_expr import new_collection  # not for workers
    from dask.dataframe.dask_expr._expr import Projection

    expression, is_changed = frame.simplify().expr, False
    while found := [p for p in expression.find_operations(Projection) if p.ndim == 2]:
        meta = found[0]._meta
        selected = new_collection(found[0].frame).map_partitions(
            select, names=list(meta.columns), meta=meta, enforce_metadata=False
        )
        expression, is_changed = expression.substitute(found[0], selected.expr), True
    return new_collection(expression) if is_changed else frame


def source_names(frame: Any) -> set[str]:
    """Return the names of what a dask frame reads, which stand for the columns read.

    Uses ``simplify``, and ``walk``, ``dependencies`` and ``_name`` of expressions. Nothing
    public says what a frame is made of.
    Known to work since dask 2025.5.0.
    """
    parts = frame.simplify().expr.walk()
    return {part._name for part in parts if not part.dependencies()}


# Tasks


def rename_aliases(tasks: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return tasks in which an alias has the key that it has in the graph.

    Uses ``dask._task_spec.Alias``, which `from_delayed` makes with other keys, and fusion
    then loses. There is no public name for what tasks of a frame are.
    Known to work since dask 2025.5.0.
    """
    return {
        key: Alias(key, task.target) if isinstance(task, Alias) else task
        for key, task in tasks.items()
    }


def without_identities(
    tasks: Mapping[Any, Any], identity: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return the tasks without those that only return another one's result.

    The others name that one itself.

    Parameters
    ----------
    tasks : mapping
        A graph, with tuples ``(identity, key)`` for some keys.
    identity : callable

    Uses ``substitute`` of the classes in ``dask._task_spec``. There is no public name for
    what tasks of a frame are.
    Known to work since dask 2025.5.0.
    """
    targets = {
        key: task[1]
        for key, task in tasks.items()
        if isinstance(task, tuple) and task[:1] == (identity,)
    }
    return {
        key: task.substitute(targets) if isinstance(task, GraphNode) else task
        for key, task in tasks.items()
        if key not in targets
    }


def task_specs(graph: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the tasks of a graph, all in the one form that Dask runs.

    Uses ``dask._task_spec.convert_legacy_graph``. Graphs hold tuples and objects side by
    side, and no public function returns what a task depends on in either.
    Known to work since dask 2025.5.0.
    """
    return dict(convert_legacy_graph(dict(graph)))


def dependencies_of(spec: Any) -> frozenset[Any]:
    """Return the keys that a task, as `task_specs` gives it, depends on.

    Uses ``dependencies`` of the classes in ``dask._task_spec``: nothing public returns what
    a single task needs.
    Known to work since dask 2025.5.0.
    """
    return frozenset(spec.dependencies)


def without_aliases(specs: dict[Any, Any]) -> dict[Any, Any]:
    """Return tasks in which a fused task has the key of the alias that names it.

    Fusion leaves an alias for each; with it, the next fusion would come out differently.

    Uses ``Alias``, ``copy`` and ``key`` of ``dask._task_spec``. The public optimizations
    leave aliases as they are.
    Known to work since dask 2025.5.0.
    """
    aliases = [key for key, task in specs.items() if isinstance(task, Alias)]
    needed = Counter(key for task in specs.values() for key in task.dependencies)
    for key in aliases:
        while isinstance(alias := specs.get(key), Alias):  # it may name another one
            if alias.target not in specs or needed[alias.target] > 1:
                break
            task = specs.pop(alias.target).copy()
            task.key = key
            specs[key] = task
    return specs


def rename_tasks(specs: Mapping[Any, Any], keys: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return tasks under other keys, which they also know each other by.

    Uses ``substitute`` of the classes in ``dask._task_spec``: the public ``clone`` leaves
    what tasks depend on as it was.
    Known to work since dask 2025.5.0.
    """
    return {keys[key]: spec.substitute(keys, key=keys[key]) for key, spec in specs.items()}


def add_dependency(specs: Mapping[Any, Any], first: Any) -> dict[Any, Any]:
    """Return tasks of which those that need no other wait for one more.

    Uses ``Task`` and ``TaskRef`` of ``dask._task_spec``: the public ``bind`` clones first;
    see `rename_tasks`.
    Known to work since dask 2025.5.0.
    """
    tasks = {key for key, spec in specs.items() if isinstance(spec, Task)}
    waiting = {
        key: Task(key, chunks.bind, specs[key], TaskRef(first))
        for key in tasks
        if not tasks.intersection(specs[key].dependencies)
    }
    return dict(specs) | waiting


def has_barrier(specs: Mapping[Any, Any]) -> bool:
    """Return whether tasks are part of a shuffle, which `distributed` knows by their keys.

    Uses how ``distributed.shuffle`` names the task between its two halves. Nothing public
    tells such tasks, and under another key the plugin does not find its shuffle.
    Known to work since distributed 2025.5.0.
    """
    return any(str(key).startswith("shuffle-barrier-") for key in specs)


def execute_task(spec: Any) -> Any:
    """Run a task without dependencies, as `task_specs` gives it.

    Uses ``__call__`` of the classes in ``dask._task_spec``: a scheduler runs graphs, and no
    public function a single task within another.
    Known to work since dask 2025.5.0.
    """
    return spec()


# Clients, asked without an import of `distributed`


def computing_client() -> Any | None:
    """Return the client that a compute would use here, None if it would use none.

    Uses that a client becomes the scheduler as its bound method ``get``. `distributed` has
    ``get_client``, which also gives one where the configuration sends computes elsewhere.
    Known to work since dask 2025.5.0.
    """
    if "distributed" not in sys.modules:  # which `get_scheduler` would import
        return None
    try:
        owner = getattr(get_scheduler(), "__self__", None)
    except RuntimeError:  # Dask's answer to an asynchronous client
        return None
    if owner in _parent_clients:
        raise RuntimeError(
            "this process is a fork of the one that has the client of distributed by "
            "which it is to compute, and cannot use it. Make a Client in this process, or "
            "compute by threads: dask.config.set(scheduler='threads')."
        )
    return owner if hasattr(owner, "scheduler_info") else None


def clients_of_process() -> list[Any]:
    """Return the clients of this process, whatever their state.

    Uses ``Client._instances``, which may change while it is read (RuntimeError). Public
    functions return one of them only.
    Known to work since distributed 2025.5.0.
    """
    # Another thread may be importing it.
    kind = getattr(sys.modules.get("distributed"), "Client", None)
    return [] if kind is None else list(kind._instances)


def is_in_task() -> bool:
    """Return whether this thread runs a task of a worker, and takes one of its places.

    Uses ``distributed.threadpoolexecutor.thread_state.proceed``, which ``secede`` unsets.
    ``get_worker`` does not distinguish them.
    Known to work since distributed 2025.5.0.
    """
    pool = sys.modules.get("distributed.threadpoolexecutor")
    return pool is not None and bool(getattr(pool.thread_state, "proceed", False))


def is_submitting(client: Any) -> bool:
    """Return whether this thread is in the middle of sending a graph with a client.

    Uses ``Client._refcount_lock``, which is held while a graph is pickled. Nothing public
    shows a value that it is pickled on its way to a scheduler.
    Known to work since distributed 2025.5.0.
    """
    lock: Any = getattr(client, "_refcount_lock", None)
    return lock is not None and bool(lock._is_owned())


def is_tokenizing() -> bool:
    """Return whether this thread is in the middle of finding a name for a task.

    Then it must not wait for results: a scheduler in this process names tasks, too.

    Uses ``dask.tokenize.tokenize_lock``, which is held then, and ``_is_owned`` of
    Python's RLock. Nothing public shows a value why it is pickled.
    Known to work since dask 2025.5.0.
    """
    lock: Any = tokenize_lock
    return bool(lock._is_owned())


# A fork of this process


#: Clients of the process that this one is a fork of.
_parent_clients: WeakSet[Any] = WeakSet()


def reset_threads() -> None:
    """Let a fork compute with threads of its own; those of its parent are not in it.

    Uses ``default_pool``, ``pools`` and ``pools_lock`` of ``dask.threaded``,
    ``tokenize_lock``, ``dask.config.config_lock`` and ``_at_fork_reinit`` of Python's
    locks, which frees them. Dask gives tasks to the threads that it had before the fork,
    and waits for ever.
    Known to work since dask 2025.5.0.
    """
    locks: list[Any] = [threaded.pools_lock, tokenize_lock, dask.config.config_lock]
    for lock in locks:
        lock._at_fork_reinit()
    pools = [pool for by_size in threaded.pools.values() for pool in by_size.values()]
    for pool in [threaded.default_pool, *pools]:
        if pool is not None:  # a thread of the parent may hold its lock
            atexit.unregister(pool.shutdown)
    threaded.default_pool = None
    threaded.pools.clear()


def detach_clients() -> None:
    """Let a fork compute without the clients of its parent, whose threads are not in it.

    Uses ``Client._instances``, ``_current_client`` and ``_refcount_lock`` of
    ``distributed``, which would wait for an answer for ever, ``SpecCluster._instances``
    and ``_children`` of `multiprocessing`, which the end of Python would close and kill,
    and ``_closed`` of event loops, by which other calls raise at once.
    Known to work since distributed 2025.5.0.
    """
    clients = clients_of_process()
    if not clients:
        return
    from multiprocessing import process

    from distributed import client as module
    from distributed.deploy.spec import SpecCluster

    module._current_client.set(None)
    SpecCluster._instances.clear()
    children: set[Any] = vars(process)["_children"]
    children.clear()
    for client in clients:
        client.status = "closed"
        _parent_clients.add(client)
        client._refcount_lock._at_fork_reinit()
        with suppress(RuntimeError):  # it has no loop any more
            client.loop.asyncio_loop._closed = True
    if dask.config.get("scheduler", None) == "dask.distributed":  # as a client sets it
        dask.config.set(scheduler=None)


# The scheduler


def is_reading_graph(scheduler: Any) -> bool:
    """Return whether a scheduler is about to have tasks that it does not name yet.

    Uses ``Scheduler._active_graph_updates``. Graphs are read in a thread of their own, and
    events report them only afterwards.
    Known to work since distributed 2025.5.0.
    """
    return bool(getattr(scheduler, "_active_graph_updates", 0))


def remembered_messages(scheduler: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages to each worker that a scheduler keeps, to be changed in place.

    Uses ``stream_comms`` and ``recent_message_log`` of their ``BatchedSend``. The log, for
    people who look for faults, keeps tasks alive that the scheduler has forgotten.
    Known to work since distributed 2025.5.0.
    """
    for comm in scheduler.stream_comms.values():
        for messages in getattr(comm, "recent_message_log", ()):
            if isinstance(messages, list):  # what was large is replaced by a text
                yield messages


# A cluster on this machine


def processes_and_threads() -> tuple[int, int]:
    """Return how many workers `LocalCluster` starts by itself, and threads of each.

    Uses ``distributed.deploy.utils.nprocesses_nthreads``. A plan needs the numbers without
    a cluster; that a cluster chooses them is documented, but not how.
    Known to work since distributed 2025.5.0.
    """
    from distributed.deploy.utils import nprocesses_nthreads

    n_workers, threads = nprocesses_nthreads()
    return n_workers, threads


def disable_gc_diagnosis() -> None:
    """Stop `distributed` from measuring the garbage collector, once a cluster runs.

    Uses ``distributed.gc.disable_gc_diagnosis``. It measures from within the collector,
    where Ctrl-C gets lost; no configuration key turns that off.
    Known to work since distributed 2025.5.0.
    """
    from distributed import gc

    gc.disable_gc_diagnosis()
