"""Compile a kernel once per machine, and never fail at import because of a cache.

Kernels release the GIL, so Dask's threads run them side by side, and keep the compiled code
on disk, so that new worker processes start at once. No fast-math: the bits of a result must
be those of the formula, term by term.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

logger = logging.getLogger(__name__)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled by numba at its first call, without the GIL.

    Parameters
    ----------
    function : callable
        Defined at module level, so that its compiled form can be found again.

    Returns
    -------
    kernel : callable
        Cached on disk where numba finds a writable folder; otherwise compiled anew by each
        process, which a log line says.
    """
    try:
        kernel: Callable[..., Any] = njit(nogil=True, cache=True)(function)
    except RuntimeError as error:  # "no locator available": nothing here is writable
        logger.info("%s is compiled by each process: %s", function.__name__, error)
        kernel = njit(nogil=True)(function)
    return kernel
