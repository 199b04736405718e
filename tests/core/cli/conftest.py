"""Fixtures of commands, which handle signals: no test is to leave that to the next one."""

import signal

import pytest

from lpe_dask.cli.interrupts import SIGNALS


@pytest.fixture(autouse=True)
def handlers():
    """Let signals interrupt, also where a shell runs the tests in the background."""
    before = [signal.signal(number, signal.default_int_handler) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)
