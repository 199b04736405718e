"""Try again what storages fail at now and then, and nothing else.

    @retried               after errors that pass: a busy server, a lost connection
    @retried_until_seen    also while a file is not to be seen that others have written

Whatever is decorated does a thing as a whole, so that it may be done again. How often, and
how long after, is configured: ``lpe-dask.retries``.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import dask.config
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from lpe_dask.messages import brief

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: What an operating system says of disks and networks that may be well again soon. ESTALE:
#: a file of NFS was replaced by another machine; EBUSY, EREMOTEIO: S3 said 503, 500.
_PASSING_NUMBERS = {
    getattr(errno, name)
    for name in (
        "EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN",
        "EHOSTUNREACH", "EINTR", "EIO", "ENETDOWN", "ENETRESET", "ENETUNREACH", "EPIPE",
        "EREMOTEIO", "ESHUTDOWN", "ESTALE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
} | {socket.EAI_AGAIN}  # fmt: skip

#: What servers answer that may do better soon; 409: another request is in the way.
_PASSING_ANSWERS = {408, 409, 425, 429, 500, 502, 503, 504}

#: Errors of connections in libraries that need not be installed: botocore, aiohttp, azure.
_PASSING_NAMES = {
    "ClientConnectionError", "ClientPayloadError", "ConnectTimeoutError",
    "EndpointConnectionError", "HTTPClientError", "IncompleteRead", "IncompleteReadError",
    "ServiceRequestError", "ServiceResponseError",
}  # fmt: skip

#: Errors that are certain, whatever number or answer they come with.
_LASTING = (
    FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError,
    PermissionError,
)  # fmt: skip


def retried(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is tried again after errors that pass."""
    return _patient(function, is_passing)


def retried_until_seen(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is tried again also after FileNotFoundError.

    For what another machine has written for certain: what NFS lists may be half a minute
    old.
    """
    return _patient(function, _is_passing_or_unseen)


def is_passing(error: BaseException) -> bool:
    """Return whether an error of a storage may be gone when the same is tried again.

    The one place that tells. What was given (permission, name, a full disk, values) stays
    as it is; so does what was tried again already.
    """
    if hasattr(error, "was_retried") or isinstance(error, _LASTING):
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    answers = [_answer(e) for e in (error, error.__cause__)]  # s3fs translates errors
    if (answer := next((a for a in answers if a is not None), None)) is not None:
        return answer in _PASSING_ANSWERS
    if isinstance(error, OSError) and error.errno in _PASSING_NUMBERS:
        return True
    return not _PASSING_NAMES.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _is_passing_or_unseen(error: BaseException) -> bool:
    is_unseen = isinstance(error, FileNotFoundError) and not hasattr(error, "was_retried")
    return is_unseen or is_passing(error)


def _answer(error: BaseException | None) -> int | None:
    """Return the HTTP status that an error carries, in the ways of several libraries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        return _whole(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    names = ("status", "status_code", "code")  # aiohttp, azure, gcsfs
    return next((n for name in names if (n := _whole(getattr(error, name, None)))), None)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or str(value).isdecimal() else None


def _patient(
    function: Callable[_P, _R], is_worth_it: Callable[[BaseException], bool]
) -> Callable[_P, _R]:
    @wraps(function)
    def patient(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = dask.config.get("lpe-dask.retries")
        first, longest = given["first-pause"], given["longest-pause"]
        attempts = Retrying(
            retry=retry_if_exception(is_worth_it),
            stop=stop_after_attempt(given["attempts"]),
            # Many tasks that fail together do not come back together.
            wait=wait_exponential(first, longest) + wait_random(0, first),
            before_sleep=_tell,
            retry_error_callback=_give_up,
        )
        return attempts(function, *args, **kwargs)

    return patient


def _tell(state: RetryCallState) -> None:
    assert state.outcome is not None
    assert state.next_action is not None
    error = state.outcome.exception()
    assert isinstance(error, Exception)
    logger.warning(
        "a storage failed, perhaps for the moment: %s Attempt %d follows in %.1f s.",
        brief(error), state.attempt_number + 1, state.next_action.sleep,
    )  # fmt: skip


def _give_up(state: RetryCallState) -> NoReturn:
    """Raise the last error, marked: who called need not try it again."""
    assert state.outcome is not None
    error = state.outcome.exception()
    assert error is not None
    error.was_retried = True  # type: ignore[attr-defined]
    error.add_note(f"Tried {state.attempt_number} times.")
    raise error
