"""Compile a kernel once per machine, and never fail at import because of a cache.

Kernels release the GIL, so Dask's threads run them side by side, and keep the compiled code
on disk, so that new worker processes start at once. No fast-math: the bits of a result must
be those of the formula, term by term.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numba import njit

from lpe_dask.kernels.forms import chosen_form
from lpe_dask.kernels.private_uses import (
    find_without_bytecode,
    fork_between_compilations,
    name_for_cache,
    save_one_at_a_time,
    without_counting,
)

logger = logging.getLogger(__name__)

fork_between_compilations()

#: Taken by the one warning of this process that kernels are not kept on disk.
_said = threading.Lock()


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled as a part of the kernels that call it.

    For the inner steps of a loop that take many arrays: handing these over would cost more
    than the step. They are borrowed (see `borrowing`).
    """
    return _compile(function, forceinline=True, **without_counting())


def borrowing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled to use arrays that its caller keeps alive.

    Otherwise each array that is taken out of a record is counted, and counted down again,
    with two locked instructions: more than a third of a search. Such a function makes no
    arrays of its own.
    """
    return _compile(function, **without_counting())


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled by numba at its first call, without the GIL.

    Parameters
    ----------
    function : callable
        Defined at module level, so that its compiled form can be found again.

    Returns
    -------
    kernel : callable
        Cached on disk where numba finds a writable folder; otherwise compiled again by each
        process, which one warning of it says.
    """
    return _compile(function)


def _state_of_sources() -> str:
    digest = blake2b(digest_size=6)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


#: Changes with any line of any kernel, and with the form that they are compiled in.
KERNEL_STATE = f"{_state_of_sources()}_{chosen_form()}"


def _compile(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    # numba looks a compiled form up by name and by the file of the function alone, and
    # would take one that has old versions of functions from other files inside.
    name_for_cache(function, KERNEL_STATE)
    try:
        kernel: Callable[..., Any] = njit(nogil=True, cache=True, **options)(function)
        find_without_bytecode(kernel)
        save_one_at_a_time(kernel, _warn_once)
    except RuntimeError as error:  # "no locator available": nothing here is writable
        _warn_once(error)
        kernel = njit(nogil=True, **options)(function)
    return kernel


def _warn_once(error: Exception) -> None:
    if _said.acquire(blocking=False):
        logger.warning(
            "each process compiles the kernels anew, as they cannot be kept on disk (%s). "
            "Before it starts, name a folder that can be written to: configuration key "
            "lpe-dask.cache-folder, environment variable DASK_LPE_DASK__CACHE_FOLDER.",
            error,
        )
