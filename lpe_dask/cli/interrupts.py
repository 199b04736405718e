"""End a command in an orderly way at Ctrl-C, at SIGTERM and when it gives up.

Each is an exception in the main thread, raised once.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, NoReturn

logger = logging.getLogger(__name__)

#: Signals that end a command: Ctrl-C on a terminal, and that of supervisors.
SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Seconds after a signal for the command to end; further signals are ignored meanwhile.
ENDING_SECONDS = 10.0


class Terminated(KeyboardInterrupt):
    """SIGTERM came; a subclass, so that the same code cleans up as after Ctrl-C."""


class StallTimeout(KeyboardInterrupt):
    """The command gave up by itself; a subclass, so that the same code cleans up."""


class DeadlineTimeout(StallTimeout):
    """The command gave up, as it would not have been done by its deadline."""


#: Why the command gave up, each time that it did.
_reasons: list[StallTimeout] = []

#: Those of them that are yet to be raised.
_pending: list[StallTimeout] = []

#: Seconds after which a signal comes again whose exception Python has ignored.
_RESEND_SECONDS = 0.05


def interrupt_main(reason: StallTimeout) -> None:
    """Raise a reason to give up in the main thread, whatever it waits for.

    By a signal that is not ignored, as Ctrl-C is by commands in the background.
    """
    handled = [number for number in SIGNALS if callable(signal.getsignal(number))]
    if not handled or not hasattr(signal, "pthread_kill"):  # Windows
        logger.error("%s But nothing can end it from within.", reason)
        return
    _reasons.append(reason)
    _pending.append(reason)
    signal.pthread_kill(threading.main_thread().ident or 0, handled[-1])


def was_aborted() -> bool:
    """Return whether the command gave up: then some of its threads may wait for ever."""
    return bool(_reasons)


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and `Terminated` at SIGTERM within the context.

    For commands; a library leaves signals alone. Ignored signals stay ignored, as those of
    commands in the background. After a signal the handlers remain beyond the context: the
    process is going to end, and a second signal must not stop it from cleaning up. Where a
    signal comes within a finalizer or callback, as imports have them, Python ignores the
    exception: then it comes again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    came: list[tuple[float, int]] = []
    before_ignored = sys.unraisablehook

    def resend(ignored: Any) -> None:
        is_ours = isinstance(ignored.exc_value, KeyboardInterrupt) and came
        if not is_ours or not hasattr(signal, "pthread_kill"):  # Windows
            before_ignored(ignored)
            return
        _, number = came[-1]
        came[-1] = (-ENDING_SECONDS, number)
        main = threading.main_thread().ident
        threading.Timer(_RESEND_SECONDS, signal.pthread_kill, (main, number)).start()

    def raise_it(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if came and now - came[-1][0] < ENDING_SECONDS:
            return
        if _pending:
            reason = _pending.pop()
            # After a deadline the process may go on, with another day.
            goes_on = isinstance(reason, DeadlineTimeout)
            came.append((-math.inf if goes_on else now, number))
            raise reason
        came.append((now, number))
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    taken = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, raise_it) for number in taken}
    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = before_ignored
        if not came:
            _restore(before)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Let signals wait for the end of the context.

    Processes started in it ignore Ctrl-C: a terminal interrupts all processes of a command,
    but only this one is to react, and ends the others.
    """
    held: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: held.append(number))
        for number in SIGNALS
    }
    try:
        with _interrupts_blocked():
            yield
    finally:
        _restore(before)
        if held:  # also instead of an error: the signal may be why something failed
            signal.raise_signal(held[0])


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def handle_signals(end: Callable[[], NoReturn]) -> None:
    """Call a function at the next signal, except at those that are ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: end())


def ignore_signals() -> None:
    """Ignore signals from now on, while this process ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started in the context: they inherit that.

    SIGTERM stays open: with it a nanny ends a worker that takes too much memory.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
