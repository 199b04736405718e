"""How long the steps of a run take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Steps:
    """The times of the steps of a run, which begins now."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time until the context ends to that of a step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - began
            self._seconds[name] = self._seconds.get(name, 0.0) + taken

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    @property
    def by_step(self) -> dict[str, float]:
        """Seconds of each step so far, by name."""
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}
