"""End a command in an orderly way at Ctrl-C and at SIGTERM: as an exception, once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

#: What ends a command: Ctrl-C on a terminal, and what supervisors and batch systems send.
SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Seconds after a signal in which the command ends, and no further one stops it from that.
ENDING_SECONDS = 10.0


class Terminated(KeyboardInterrupt):
    """SIGTERM came: whatever cleans up after Ctrl-C does the same after this."""


@contextmanager
def signals_raised() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and `Terminated` at SIGTERM within the context.

    For commands; a library leaves signals alone. A signal that is ignored stays so, as of
    commands in the background. After one that came, this goes on beyond the context: then
    the process is to end, and what follows soon must not stop it from cleaning up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    came: list[float] = []

    def raise_it(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if came and now - came[-1] < ENDING_SECONDS:
            return
        came.append(now)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, raise_it)
    try:
        yield
    finally:
        if not came:
            for number in taken:
                signal.signal(number, before[number])


@contextmanager
def signals_held() -> Iterator[None]:
    """Let signals wait for the end of the context.

    Ctrl-C does not even reach a process started in it: a terminal interrupts all processes
    of a command, but only this one is to mind, and ends the others.
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
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:  # also instead of an error: the signal may be why something failed
            signal.raise_signal(held[0])


def ignore_signals() -> None:
    """Let no signal stop the end of this process."""
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
