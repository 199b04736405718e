"""Compile a kernel once per machine, and never fail at import because of a cache.

Kernels release the GIL, so Dask's threads run them side by side, and keep the compiled code
on disk, so that new worker processes start at once. No fast-math: the bits of a result must
be those of the formula, term by term.
"""

from __future__ import annotations

import logging
import threading
import token
import tokenize
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import dask
import numba
from numba import njit

from lpe_dask.forks import after_fork
from lpe_dask.kernels.numba_internals import (
    fork_between_compilations,
    name_for_cache,
    no_refcount,
    reset_file_locks,
    save_one_at_a_time,
)
from lpe_dask.kernels.simd_profiles import chosen_profile

logger = logging.getLogger(__name__)

fork_between_compilations()
after_fork(reset_file_locks)

if (_folder := dask.config.get("lpe-dask.cache-folder", None)) is not None:
    numba.config.CACHE_DIR = str(_folder)  # read by `njit`

#: Taken by the one warning of this process that kernels are not kept on disk.
_said = threading.Lock()


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` to be compiled as a part of the kernels that call it.

    For the inner steps of a loop, and what is short: each other function is compiled by
    itself, and again within each that calls it, and so on.
    """
    return _compile(function, inline="always", **no_refcount())


def borrowing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled to use arrays that its caller keeps alive.

    Otherwise each array that is taken out of a record is counted, and counted down again,
    with two locked instructions: more than a third of a search. Such a function makes no
    arrays of its own. Only kernels call it: for Python to call it too, records of fifty
    arrays would have to be taken apart in each.
    """
    return _compile(
        function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **no_refcount()
    )


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
    return _compile(function, no_cfunc_wrapper=True)


#: Kinds of tokens that no result depends on, and those that a statement may follow.
_IGNORED = token.COMMENT, token.NL, token.ENCODING
_BEFORE_STATEMENTS = token.NEWLINE, token.INDENT, token.DEDENT


def _state_of_sources() -> str:
    """Return a digest of all that kernels depend on, but for comments and docstrings.

    From tokens: Python before 3.11.8 cannot parse syntax trees in several threads at once
    (CPython issue 106905), and numba and NumPy may parse at the same time.
    """
    digest = blake2b(digest_size=6)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with path.open("rb") as source:
            tokens = [each[:2] for each in tokenize.tokenize(source.readline)]
        decisive = [each for each in tokens if each[0] not in _IGNORED]
        kinds = [token.NEWLINE, *(kind for kind, _ in decisive), token.ENDMARKER]
        for before, each, after in zip(kinds[:-2], decisive, kinds[2:], strict=True):
            is_statement = before in _BEFORE_STATEMENTS and after == token.NEWLINE
            if each[0] != token.STRING or not is_statement:
                digest.update(repr(each).encode())
    return digest.hexdigest()


#: Changes with what any kernel does, and with the form that they are compiled in.
KERNEL_STATE = f"{_state_of_sources()}_{chosen_profile()}"


def _compile(function: Callable[..., Any], **options: bool | str) -> Callable[..., Any]:
    try:
        kernel: Callable[..., Any] = njit(nogil=True, cache=True, **options)(function)
        name_for_cache(kernel, KERNEL_STATE)
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
