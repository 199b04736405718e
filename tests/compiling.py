"""Kernels compiled, or as they are defined; their inner parts; processes with a cache."""

import os
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

from numba import njit

from lpe_dask.kernels import compilation

#: What may be taken: for how much work of a process nothing is loaded, nor compiled.
WAYS = {"compiled": -1.0, "defined": 1e300}


@contextmanager
def taking(way):
    """Take compiled kernels, or their definitions, within."""
    limit = WAYS[way]
    forget_work()
    with (
        patch.object(compilation, "LOADED_WORK", limit),
        patch.object(compilation, "COMPILED_WORK", limit),
    ):
        yield
    forget_work()


def forget_work():
    """Begin as a new process does."""
    work = compilation.compiler
    work.done = 0.0
    work.expected.clear()
    work.ready.clear()


def environment_with_cache(folder, **others):
    """Return that of a process whose cache of compiled code is in a folder; None: its own.

    ``others`` are further variables.
    """
    own = ("DASK_LPE_DASK", "NUMBA_CACHE_DIR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    cache = {} if folder is None else {"NUMBA_CACHE_DIR": str(folder)}
    return {**kept, **cache, **others}


def said_by(program, folder, **others):
    """Run a new process: its output, and the lines of its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment_with_cache(folder, **others),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split(), done.stderr.splitlines()


def from_python(kernel):
    """Return a part of kernels so that Python may call it.

    Not cached on disk: numba would not notice that what it calls has changed.
    """

    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call
