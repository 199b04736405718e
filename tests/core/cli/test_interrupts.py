"""Signals: which exception they raise, and when they wait."""

import os
import signal
import threading
import time

import pytest

from lpe_dask.cli import interrupts
from lpe_dask.cli.interrupts import (
    SIGNALS,
    DeadlineTimeout,
    StallTimeout,
    Terminated,
    deferred_signals,
    interrupt_main,
    signals_as_exceptions,
    was_aborted,
)


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)


RAISED = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


@pytest.mark.parametrize(("number", "raised"), RAISED)
def test_signals_raised__as_an_exception_and_once(monkeypatch, number, raised):
    def end_meanwhile():
        try:
            with signals_as_exceptions():
                send(number)
        except KeyboardInterrupt as error:
            for other in SIGNALS:
                send(other)
            return type(error)

    assert end_meanwhile() is raised

    # It may have got lost on the way, so that after a while the next one counts again.
    monkeypatch.setattr(interrupts, "ENDING_SECONDS", 0.0)
    with pytest.raises(raised):
        send(number)


def test_signals_raised__also_soon_after_a_deadline_as_the_next_day_has_its_own():
    def end(name):
        interrupt_main(DeadlineTimeout(name))
        time.sleep(0.5)

    with signals_as_exceptions():
        for name in ("first day", "second day"):
            with pytest.raises(DeadlineTimeout, match=name):
                end(name)
        with pytest.raises(KeyboardInterrupt) as ended:
            send(signal.SIGINT)

    assert type(ended.value) is KeyboardInterrupt


@pytest.mark.parametrize(("number", "raised"), RAISED)
def test_signals_raised__again_where_python_ignores_the_exception(number, raised):
    class Finalized:
        def __del__(self):
            send(number)

    held = [Finalized()]

    def lose_one():
        held.clear()
        time.sleep(10)

    with pytest.raises(raised), signals_as_exceptions():
        lose_one()


def test_signals_raised__leaves_what_others_raise_in_finalizers_alone(monkeypatch):
    class Finalized:
        def __del__(self):
            raise KeyboardInterrupt

    finalized, seen = Finalized(), []
    monkeypatch.setattr("sys.unraisablehook", seen.append)
    with signals_as_exceptions():
        del finalized

    assert [type(ignored.exc_value) for ignored in seen] == [KeyboardInterrupt]


def test_signals_raised__leaves_handlers_of_others_alone():
    """Signals that are ignored stay so, and other threads have no handlers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen = []

    def look():
        with signals_as_exceptions():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with signals_as_exceptions():
        send(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler

    assert seen == [signal.default_int_handler]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("error", [None, OSError("a worker has gone")])
def test_signals_held__come_after_the_context_and_instead_of_an_error(number, error):
    seen = []

    def interrupt_and_go_on():
        with deferred_signals():
            send(number)
            seen.append("the rest")
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        interrupt_and_go_on()

    assert seen == ["the rest"]
    assert signal.getsignal(number) is signal.default_int_handler
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_signals_held__works_without_signal_masks(monkeypatch):
    monkeypatch.delattr(signal, "pthread_sigmask")

    with deferred_signals():
        pass

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handle_signals__calls_unless_they_are_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen = []

    interrupts.handle_signals(lambda: seen.append("end"))
    for number in SIGNALS:
        send(number)
    assert seen == ["end"]

    interrupts.ignore_signals()
    for number in SIGNALS:
        send(number)
    assert seen == ["end"]


@pytest.mark.parametrize("ignored", [[], [signal.SIGINT], [signal.SIGTERM], SIGNALS])
def test_interrupt_main__is_raised_whatever_is_ignored(ignored, caplog):
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)

    def wait():
        with signals_as_exceptions():
            timer.start()
            time.sleep(0.5 if ignored == SIGNALS else 30)
            assert "nothing moves But nothing can end it from within." in caplog.text
            raise StallTimeout("nothing moves, and only this test ends it")

    timer = threading.Timer(0.1, interrupt_main, [StallTimeout("nothing moves")])
    with pytest.raises(StallTimeout, match="nothing moves"):
        wait()
    timer.join()

    assert was_aborted() == (ignored != SIGNALS)
    interrupts._reasons.clear()
