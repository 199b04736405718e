"""Run a kernel compiled, or as it is defined, in NumPy, while that is faster.

    work so far in this process --little--> definition    numba is not even imported
                                --more--> compiled, if it is on disk, else definition
                                --too much--> compiled, after it was compiled and put there

To compile the search takes longer than NumPy takes for thousands of rows, and to load what
was compiled as long as it takes for a thousand. No result depends on which of them runs.

The unit of work is what NumPy takes for a pair and one of its columns, about 2 ns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from lpe_dask.forks import ForkSafeLock, after_fork
from lpe_dask.kernels import definition

logger = logging.getLogger(__name__)

#: Work of a process up to which nothing is loaded, about a second, and up to which nothing
#: is compiled, about five.
LOADED_WORK, COMPILED_WORK = 6e8, 3e9

#: What selecting among the squares of a pair takes, in columns.
SELECTION_COLUMNS = 2


class _Kernel(NamedTuple):
    """Where a kernel is, and what a line says while it is compiled.

    Attributes
    ----------
    module : str
        Has the compiled form; the definition, if there is any, has the same name.
    purpose : str
    seconds : int
        About what compilation takes.
    """

    module: str
    purpose: str
    seconds: int


KERNELS = {
    "fold_nearest": _Kernel("nearest", "the search for neighbors", 20),
    "fold_pairs": _Kernel("pairs", "the search for neighbors of both rows of a pair", 15),
    "fold_counts": _Kernel("counts", "the search within a radius", 10),
    "walk_all": _Kernel("walks", "walks along a neighbor graph", 5),
    "add_products": _Kernel("products", "exact sums", 2),
    "join_lists": _Kernel("graph_search", "the index of an approximate search", 3),
    "search_beams": _Kernel("graph_search", "the approximate search", 8),
}

_lock = ForkSafeLock()


@dataclass
class Compiler:
    """Knows what this process has compiled, and what is worth it; `compiler` is the one.

    Attributes
    ----------
    announce : callable
        Called with the line that says what is compiled.
    is_compiling : bool
        Whether a thread compiles a kernel.
    done : float
        Work that was done without compilation.
    expected : dict from str to float
        Work that is expected of each kernel.
    ready : dict from str to callable
        The kernels that are compiled.
    """

    announce: Callable[[str], None] = logger.warning
    is_compiling: bool = False
    done: float = 0.0
    expected: dict[str, float] = field(default_factory=dict)
    ready: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def expect(self, name: str, work: float) -> None:
        """Have a kernel compiled at once where a computation takes so much work in all."""
        self.expected[name] = max(self.expected.get(name, 0.0), work)

    def runs_compiled(self, name: str) -> bool:
        """Return whether a kernel runs compiled when it does what is expected of it."""
        total = max(self.done, self.expected.get(name, 0.0))
        if name in self.ready or total > COMPILED_WORK:
            return True
        if total <= LOADED_WORK:
            return False
        from lpe_dask.kernels.numba_internals import is_on_disk

        return is_on_disk(
            getattr(import_module(f"lpe_dask.kernels.{KERNELS[name].module}"), name)
        )


compiler = Compiler()


def _reset_in_fork() -> None:
    compiler.is_compiling = False  # if a thread compiles, it is one of the parent


after_fork(_reset_in_fork)


def search_work(n_pairs: float, n_columns: int) -> float:
    """Return the work of comparing so many pairs of rows with so many columns.

    Examples
    --------
    >>> search_work(1_000_000, 5)
    7000000
    """
    return n_pairs * (n_columns + SELECTION_COLUMNS)


def all_on_disk() -> bool:
    """Return whether other processes find all kernels that this one has compiled."""
    from lpe_dask.kernels.numba_internals import is_on_disk

    return all(map(is_on_disk, compiler.ready.values()))


def run(name: str, work: float, *arguments: Any) -> Any:
    """Call a kernel, and return what it returns.

    Parameters
    ----------
    name : str
    work : float
        Of this call without compilation; inf where there is no definition in NumPy.
    arguments
        Of the kernel.
    """
    kernel = compiler.ready.get(name) or _chosen(name, work, arguments)
    return kernel(*arguments)


def _chosen(name: str, work: float, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    total = max(compiler.done + work, compiler.expected.get(name, 0.0))
    if total > LOADED_WORK:
        kernel = _compiled(name, arguments, may_compile=total > COMPILED_WORK)
        if kernel is not None:
            return kernel
    compiler.done += work
    logger.debug(
        "%s runs in NumPy: %.3g units of work by this process", name, compiler.done
    )
    defined: Callable[..., Any] = getattr(definition, name)
    return defined


def _compiled(
    name: str, arguments: tuple[Any, ...], *, may_compile: bool
) -> Callable[..., Any] | None:
    """Return a kernel that is compiled for such arguments; None if it is not to be."""
    from numba import typeof

    from lpe_dask.kernels.numba_internals import (
        compile_for,
        is_kept,
        is_on_disk,
        one_process_at_a_time,
    )

    of = KERNELS[name]
    module = import_module(f"lpe_dask.kernels.{of.module}")
    kernel: Callable[..., Any] = getattr(module, name)
    signature = tuple(map(typeof, arguments))
    with _lock:
        if name in compiler.ready:
            return kernel
        if not is_on_disk(kernel, signature):
            if not may_compile:
                return None
            waiting = f"waiting for another process that compiles {of.purpose}"
            with one_process_at_a_time(kernel, partial(logger.info, waiting)):
                if not is_on_disk(kernel, signature):
                    often = "once per machine" if is_kept(kernel) else "by each process"
                    compiler.announce(
                        f"compiling {of.purpose}, {often}: about {of.seconds} s"
                    )
                with _compiling():
                    compile_for(kernel, signature)
        compiler.ready[name] = kernel
        return kernel


@contextmanager
def _compiling() -> Iterator[None]:
    compiler.is_compiling = True
    try:
        yield
    finally:
        compiler.is_compiling = False
