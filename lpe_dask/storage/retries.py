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
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import dask.config
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_before_delay,
    wait_exponential,
    wait_random,
)

from lpe_dask.storage.messages import brief

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _numbers(names: str) -> set[int]:
    """Return the numbers of errors, as far as this operating system has them."""
    found = {getattr(errno, name) for name in names.split() if hasattr(errno, name)}
    return found | {socket.EAI_AGAIN}


#: What an operating system says of disks and networks that may be well again soon. ESTALE:
#: a file of NFS was replaced by another machine; EBUSY, EREMOTEIO: S3 said 503, 500.
_PASSING_NUMBERS = _numbers(
    "EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR EIO "
    "ENETDOWN ENETRESET ENETUNREACH EPIPE EREMOTEIO ESHUTDOWN ESTALE ETIMEDOUT"
)

#: Those that come where no server was reached: the address may be wrong. Libraries that
#: have names of their own for it have tried for some seconds already.
_UNREACHED_NUMBERS = _numbers("ECONNREFUSED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH")
_UNREACHED_NAMES = {
    "ClientConnectorError", "ConnectTimeoutError", "EndpointConnectionError",
    "ServiceRequestError",
}  # fmt: skip

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


#: Whether nothing is tried again in this context: who is there comes back by itself.
tries_once: ContextVar[bool] = ContextVar("tries_once", default=False)


def retried(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is tried again after errors that pass."""
    return _patient(function, is_passing)


def retried_until_seen(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is tried again also after FileNotFoundError.

    For what another machine has written for certain: what NFS lists may be half a minute
    old.
    """
    return _patient(function, _is_passing_or_unseen)


def retried_as_a_whole(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that is tried again from its beginning, and nothing in it alone.

    For what has to look again before it does a thing again.
    """

    @retried
    @wraps(function)
    def whole(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = tries_once.set(True)
        try:
            return function(*args, **kwargs)
        finally:
            tries_once.reset(before)

    return whole


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
    return _is_named(error, _PASSING_NAMES)


def _is_unreached(error: BaseException) -> bool:
    """Return whether no server was there to answer, as far as the error tells."""
    is_numbered = isinstance(error, OSError) and error.errno in _UNREACHED_NUMBERS
    return is_numbered or _is_named(error, _UNREACHED_NAMES)


def _is_named(error: BaseException, names: set[str]) -> bool:
    return not names.isdisjoint(kind.__name__ for kind in type(error).__mro__)


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
        if tries_once.get():
            return function(*args, **kwargs)
        given = dask.config.get("lpe-dask.retries")
        first, longest = given["first-pause"], given["longest-pause"]
        attempts = Retrying(
            retry=retry_if_exception(is_worth_it),
            stop=partial(
                _is_enough, attempts=given["attempts"], unreached=given["unreached"]
            ),
            # Many tasks that fail together do not come back together.
            wait=wait_exponential(first, longest) + wait_random(0, first),
            before_sleep=_tell,
            retry_error_callback=_give_up,
        )
        return attempts(function, *args, **kwargs)

    return patient


def _is_enough(state: RetryCallState, *, attempts: int, unreached: float) -> bool:
    if state.attempt_number >= attempts:
        return True
    # Twice at least: the first attempt may have sent much before.
    is_vain = state.attempt_number > 1 and _is_unreached(_error_of(state))
    return is_vain and stop_before_delay(unreached)(state)


def _tell(state: RetryCallState) -> None:
    assert state.next_action is not None
    logger.warning(
        "a storage failed, perhaps for the moment: %s Attempt %d follows in %.1f s.",
        brief(_error_of(state)), state.attempt_number + 1, state.next_action.sleep,
    )  # fmt: skip


def _give_up(state: RetryCallState) -> NoReturn:
    """Raise the last error, marked: who called need not try it again.

    Those of other libraries, and those of no connection, come as ConnectionError, which
    says what to check.
    """
    error = cause = _error_of(state)
    if not isinstance(error, OSError) or _is_unreached(error):
        error = ConnectionError(
            f"a storage does not answer: {brief(error)} It was tried "
            f"{state.attempt_number} times in {state.seconds_since_start:.0f} s. Check its "
            f"address, the network and the credentials, and start again."
        )
    else:
        error.add_note(f"Tried {state.attempt_number} times.")
    error.was_retried = True  # type: ignore[attr-defined]
    if error is cause:
        raise error
    raise error from cause


def _error_of(state: RetryCallState) -> Exception:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, Exception)  # no other is tried again
    return error
