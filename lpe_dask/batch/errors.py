"""Errors of a run: of the job, of the input, and of what came after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lpe_dask.storage import short_message


class JobKeyError(ValueError):
    """The value of a key of a job does not go with the files that the job names.

    Attributes
    ----------
    section, key : str
    """

    def __init__(self, message: str, section: str, key: str) -> None:
        super().__init__(message)
        self.section, self.key = section, key


class RunError(RuntimeError):
    """A run that failed after its tasks had started, rather than on what it was given."""


@contextmanager
def input_errors_pass(what: str = "fitted") -> Iterator[None]:
    """Let errors about the input pass; turn any other into a `RunError`."""
    try:
        yield
    except (ValueError, TypeError):
        raise
    except Exception as error:
        if type(error) is MemoryError:  # of a plan; that of an allocation is a subclass
            raise
        raise RunError(
            f"the run stopped while it {what}: {short_message(error)}"
        ) from error
