"""Retry storage operations after temporary errors, and after no others.

    @retried               after temporary errors: a busy server, a lost connection
    @retried_until_visible    also while a file that others have written is not visible yet

A decorated function is one complete operation, so that it can be repeated. How often, and
after how long, is configured: ``lpe-dask.retries``.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import dask.config

from lpe_dask.storage.messages import short_message, single_line
from lpe_dask.storage.redaction import redact
from lpe_dask.storage.urls import Url

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


#: Temporary errors of disks and networks. ESTALE: a file of NFS was replaced by another
#: machine; EBUSY, EREMOTEIO: S3 said 503, 500. Not every operating system has all of them.
_NUMBER_NAMES = (
    "EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR EIO "
    "ENETDOWN ENETRESET ENETUNREACH EPIPE EREMOTEIO ESHUTDOWN ESTALE ETIMEDOUT"
)
_PASSING_NUMBERS = {
    getattr(errno, name) for name in _NUMBER_NAMES.split() if hasattr(errno, name)
} | {socket.EAI_AGAIN}

#: Temporary errors of servers; 409: a conflict with another request.
_PASSING_ANSWERS = {408, 409, 425, 429, 500, 502, 503, 504}

#: Errors of connections in libraries that need not be installed: botocore, aiohttp, azure.
_PASSING_NAMES = {
    "ClientConnectionError", "ClientPayloadError", "ConnectTimeoutError",
    "EndpointConnectionError", "HTTPClientError", "IncompleteRead", "IncompleteReadError",
    "ServiceRequestError", "ServiceResponseError",
}  # fmt: skip

#: HTTP statuses of a storage that does not know whoever asks, or does not let them.
_REFUSALS = {401, 403}

#: Errors of libraries that find no keys, or whose keys are refused.
_REFUSAL_NAMES = {
    "ClientAuthenticationError", "CredentialRetrievalError", "DefaultCredentialsError",
    "NoAuthTokenError", "NoCredentialsError", "PartialCredentialsError", "RefreshError",
}  # fmt: skip

#: What S3 says of tokens with the status of other errors, too; to HEAD no more than 400.
_REFUSAL_CODES = {"400", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}

#: Errors that are never temporary, whatever their number or HTTP status.
_PERMANENT = (
    FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError,
    PermissionError,
)  # fmt: skip


class RefusedError(PermissionError):
    """A storage demands other keys than it was given, or is given none."""


#: Whether nothing is retried in this context, because its caller repeats it anyway.
no_retries: ContextVar[bool] = ContextVar("no_retries", default=False)


def retried(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is retried after temporary errors."""
    return _with_retries(function, is_transient)


def retried_until_visible(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is retried also after FileNotFoundError.

    For files that are certainly there: the lists of NFS may be half a minute old, and some
    libraries take any failure of a storage for an absent file.
    """
    return _with_retries(function, _is_passing_or_unseen)


def retried_without_inner_retries(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is retried from its beginning, and no step of it alone.

    For functions that have to look again before they repeat an operation.
    """

    @retried
    @wraps(function)
    def whole(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = no_retries.set(True)
        try:
            return function(*args, **kwargs)
        finally:
            no_retries.reset(before)

    return whole


def attempt_seconds() -> float:
    """Return for how long a server may be silent in one attempt."""
    return float(dask.config.get("lpe-dask.retries.attempt-timeout"))


def is_transient(error: BaseException) -> bool:
    """Return whether an error of a storage is temporary, so that a retry may succeed.

    The only place that decides. Other causes (permission, name, a full disk, values) stay;
    what was retried already is not retried again.
    """
    if hasattr(error, "was_retried") or isinstance(error, _PERMANENT):
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    answers = [_answer(e) for e in (error, error.__cause__)]  # s3fs translates errors
    if (answer := next((a for a in answers if a is not None), None)) is not None:
        return answer in _PASSING_ANSWERS
    if isinstance(error, OSError) and error.errno in _PASSING_NUMBERS:
        return True
    return _is_named(error, _PASSING_NAMES) and not _is_of_values(error)


def has_been_retried(error: BaseException | None) -> bool:
    """Return whether an error, or what caused it, was temporary and stayed too long."""
    while error is not None and not hasattr(error, "was_retried"):
        error = error.__cause__
    return error is not None


def _is_of_connection(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or _is_named(error, _PASSING_NAMES)


def _is_of_values(error: BaseException) -> bool:
    """Return whether a library calls it a failed connection that it was given bad values.

    botocore does so, for a key with a line break in it.
    """
    cause = getattr(error, "kwargs", {}).get("error")
    is_general = type(error).__name__ == "HTTPClientError"  # others say what has failed
    return is_general and isinstance(cause, ValueError | TypeError)


def _is_named(error: BaseException, names: set[str]) -> bool:
    return not names.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _is_passing_or_unseen(error: BaseException) -> bool:
    is_unseen = isinstance(error, FileNotFoundError) and not hasattr(error, "was_retried")
    return is_unseen or is_transient(error)


def is_refusal(error: BaseException) -> bool:
    """Return whether a storage, or its library, asks for other keys than it was given."""
    if isinstance(error, RefusedError):  # which says so itself
        return False
    if _is_named(error, _REFUSAL_NAMES):
        return True
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
        if _answer(each) in _REFUSALS or code in _REFUSAL_CODES:
            return True
    return False


def _answer(error: BaseException | None) -> int | None:
    """Return the HTTP status of an error of several libraries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        return _whole(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    names = ("status", "status_code", "code")  # aiohttp, azure, gcsfs
    return next((n for name in names if (n := _whole(getattr(error, name, None)))), None)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or str(value).isdecimal() else None


def _with_retries(
    function: Callable[_P, _R], is_worth_it: Callable[[BaseException], bool]
) -> Callable[_P, _R]:
    @wraps(function)
    def patient(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if no_retries.get():
            return function(*args, **kwargs)
        options, began = dask.config.get("lpe-dask.retries"), time.monotonic()
        attempt, pause = 1, options["first-pause"]
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if is_refusal(error):
                    raise _refused(error, args) from error
                if not is_worth_it(error):
                    _raise_for_options(error, args)
                    raise
                if attempt >= options["attempts"]:
                    _give_up(error, attempt, time.monotonic() - began)
                    raise
                # Many tasks that fail together must not retry together.
                wait = min(pause, options["longest-pause"])
                wait += random.uniform(0, options["first-pause"])
                attempt, pause = attempt + 1, 2 * pause
                logger.warning(
                    "temporary storage failure: %s Retrying in %.1f s (attempt %d).",
                    short_message(error), wait, attempt,
                )  # fmt: skip
            time.sleep(wait)

    return patient


def _refused(error: Exception, args: tuple[Any, ...]) -> RefusedError:
    """Return the error of a storage that refuses, about what a function was called for."""
    what = redact(_place_of(args) or "the storage")
    return RefusedError(
        f"access to {what} is refused: {short_message(error)} Check the keys "
        f"(storage_options=, or the section [storage] of a job; or where the library of "
        f"the storage looks: environment, its own files, the configuration of fsspec), "
        f"what they may do, and the address of the storage."
    )


def _raise_for_options(error: Exception, args: tuple[Any, ...]) -> None:
    """Raise TypeError if a filesystem does not know an option that it was given."""
    place = _place_of(args)
    is_of_options = isinstance(error, TypeError) and "keyword argument" in str(error)
    if is_of_options and isinstance(place, Url):
        raise TypeError(
            f"{redact(place)} cannot be opened with these options: {single_line(error)}. "
            f"Correct their names in storage_options=, or in the section [storage] of the "
            f"job."
        ) from error


def _place_of(args: tuple[Any, ...]) -> str | None:
    """Return the URL or name that a function of a storage was called for."""
    named = (getattr(of, "url", getattr(of, "name", of)) for of in args)
    return next((of for of in named if isinstance(of, str)), None)


def _give_up(error: Exception, n_attempts: int, seconds: float) -> None:
    """Mark the last error, so that callers do not retry it.

    Errors of other libraries, and of connections, are raised as a ConnectionError that says
    what to check.
    """
    if isinstance(error, OSError) and not _is_of_connection(error):
        error.add_note(f"Tried {n_attempts} times.")
        error.was_retried = True  # type: ignore[attr-defined]
        return
    unavailable = ConnectionError(
        f"the storage is not available: {short_message(error)} {n_attempts} attempts in "
        f"{seconds:.0f} s failed. Check its address, the network and the credentials, and "
        f"start again."
    )
    unavailable.was_retried = True  # type: ignore[attr-defined]
    raise unavailable from error
