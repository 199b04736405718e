"""Use what numba and locket keep to themselves: here, and nowhere else in this package.

Each function stands for one such use, as those of `tasks.dask_internals` do for Dask. All
of them ran with the oldest version that pyproject.toml allows, numba 0.61.0
(``make test-oldest``), and with 0.68.1.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import locket
import numba
from locket import LockError, lock_file
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler_lock import global_compiler_lock


def no_refcount() -> dict[str, bool]:
    """Return the option of `numba.njit` by which references to arrays are not counted.

    Uses ``_nrt``: a function compiled with it makes no arrays, and its caller has to keep
    alive those that it is given. No public option does without the counting.
    Known to work since numba 0.61.0.
    """
    return {"_nrt": False}


def target_features() -> set[str]:
    """Return the features of the processor that numba compiles for, by LLVM's names.

    Uses ``get_host_cpu_features`` of its code generator, which heeds NUMBA_ENABLE_AVX, and
    ``NUMBA_CPU_FEATURES`` as it does. llvmlite knows the machine alone.
    Known to work since numba 0.61.0.
    """
    listed: str | None = numba.config.CPU_FEATURES
    if listed is None:  # "" is none at all, as for NUMBA_CPU_NAME=generic
        listed = get_host_cpu_features()
    features = {name[1:] for name in listed.split(",") if name.startswith("+")}
    # Every 64-bit ARM has it; LLVM finds nothing out where it knows no such processor.
    return features | ({"neon"} if platform.machine() in ("aarch64", "arm64") else set())


def name_for_cache(kernel: Any, state: str) -> None:
    """Let the cache on disk find a kernel by its name and the state of the code alone.

    Uses ``_cache._cache_file`` of what `numba.njit` returns, an ``IndexDataCacheFile``. It
    is named by the line that a function begins at and valid for one content of its file: it
    sees no changes in other files, as its documentation warns, and takes one in a comment
    for another function.
    Known to work since numba 0.61.0.
    """
    function = kernel.py_func
    name = f"{function.__module__}.{function.__qualname__}-{state}"
    kernel._cache._cache_file = IndexDataCacheFile(
        kernel._cache.cache_path, f"{name}.{sys.implementation.cache_tag}", state
    )


def save_one_at_a_time(kernel: Any, on_failure: Callable[[OSError], None]) -> None:
    """Let one process at a time add a compiled form of a function to the cache on disk.

    Uses ``_cache.save_overload`` of what `numba.njit` returns. It reads which files there
    are, one for the arguments of each form, and writes the next one: two processes that
    compile for float32 and for float64 at the same time write files of the same name.
    Others then run machine code for other arguments, and crash or give wrong results. Where
    a folder cannot be locked or written, nothing is added, and ``on_failure`` gets the
    error. Known to work since numba 0.61.0.
    """
    cache = kernel._cache
    save = cache.save_overload

    def save_alone(signature: Any, result: Any) -> None:
        try:
            os.makedirs(cache.cache_path, exist_ok=True)
            with lock_file(os.path.join(cache.cache_path, "lpe_dask.lock")):
                save(signature, result)
        except OSError as error:
            on_failure(error)

    cache.save_overload = save_alone


def is_kept(kernel: Any) -> bool:
    """Return whether a kernel has a cache on disk.

    Uses ``_cache`` of what `numba.njit` returns, as `is_on_disk` does.
    Known to work since numba 0.61.0.
    """
    return getattr(kernel._cache, "_cache_file", None) is not None


def is_on_disk(kernel: Any, signature: tuple[Any, ...] | None = None) -> bool:
    """Return whether the cache on disk has a kernel, compiled for these types, or for any.

    Uses ``_cache`` of what `numba.njit` returns, and of that ``_index_key`` and
    ``_cache_file._load_index``. Nothing public says whether a call is going to compile.
    Known to work since numba 0.61.0.
    """
    if not is_kept(kernel):
        return False
    file = kernel._cache._cache_file
    key = kernel._cache._index_key(signature or (), kernel.targetctx.codegen())
    known = file._load_index()
    return key in known if signature else any(each[1:] == key[1:] for each in known)


def compile_for(kernel: Any, signature: tuple[Any, ...]) -> None:
    """Compile a kernel for arguments of these types, or take it from the cache on disk.

    Uses ``compile`` of what `numba.njit` returns, as a call does.
    Known to work since numba 0.61.0.
    """
    kernel.compile(signature)


@contextmanager
def one_process_at_a_time(kernel: Any, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of the cache on disk for compilation, where there is one.

    ``on_wait`` is called if another process has it.

    Uses ``_cache.cache_path`` of what `numba.njit` returns.
    Known to work since numba 0.61.0.
    """
    with ExitStack() as stack:
        if (folder := getattr(kernel._cache, "cache_path", None)) is not None:
            with suppress(OSError):  # such as a file system without locks
                os.makedirs(folder, exist_ok=True)
                path = os.path.join(folder, "lpe_dask.compiling.lock")
                try:
                    stack.enter_context(lock_file(path, timeout=0))
                except LockError:
                    on_wait()
                    stack.enter_context(lock_file(path))
        yield


def fork_between_compilations() -> None:
    """Let forks of this process wait until no other thread compiles.

    A fork has no part of what such a thread would have done, but the locks that it held.

    Uses ``global_compiler_lock``, which is held for as long as a function is compiled, or
    taken from the cache or put there. Nothing public says when that is.
    Known to work since numba 0.61.0.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=global_compiler_lock.acquire,
            after_in_parent=global_compiler_lock.release,
            after_in_child=global_compiler_lock.release,
        )


def reset_file_locks() -> None:
    """Let this process, a fork, wait for no thread of its parent that has a file's lock.

    Uses ``_locks`` and ``_locks_lock`` of locket, the locks of a process by path.
    Known to work since locket 1.0.0.
    """
    locket._locks_lock = threading.Lock()
    locket._locks.clear()


def data_of(context: Any, builder: Any, array: Any, value: Any) -> Any:
    """Return the pointer to the numbers of an array, in code that is being generated.

    Uses ``make_array`` of the typing context, on which numba's own functions of arrays are
    built. `numba.extending` documents ``intrinsic``, but not what arrays are in it.
    Known to work since numba 0.61.0.
    """
    return context.make_array(array)(context, builder, value).data


def shape_of(context: Any, builder: Any, array: Any, value: Any) -> Any:
    """Return the shape of an array, in code that is being generated.

    Uses ``make_array`` as `data_of` does.
    Known to work since numba 0.61.0.
    """
    return context.make_array(array)(context, builder, value).shape
