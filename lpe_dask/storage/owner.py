"""Say who holds a lock, and whether that process still runs."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self
from uuid import uuid4

import psutil
from pydantic import BaseModel, Field, ValidationError

#: Where Linux names the time since which it is up, and the space that process ids count in.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class Owner(BaseModel, frozen=True):
    """Who has a lock.

    Attributes
    ----------
    token : str
        Random, one for each time that a lock is taken.
    host, boot, pid_namespace : str
        Where process ids are those that are meant: many machines may have one name.
    pid : int
    started : float
        When the process began, by the clock of its machine.
    purpose : str
    since : str
        When the lock was taken, for people: nothing is decided by it.
    beat : int
        Grows with each sign of life.
    """

    token: str
    host: str
    boot: str
    pid_namespace: str
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    started: float
    purpose: str
    since: str
    beat: int = 0

    @classmethod
    def of_this_process(cls, purpose: str) -> Self:
        """Return an owner with a new token."""
        host, boot, pid_namespace = _this_machine()
        return cls(
            token=uuid4().hex, host=host, boot=boot, pid_namespace=pid_namespace,
            pid=os.getpid(), started=psutil.Process().create_time(), purpose=purpose,
            since=datetime.now(UTC).isoformat(),
        )  # fmt: skip

    @classmethod
    def from_json(cls, content: bytes | None) -> Self | None:
        """Return the owner that a file names, None if it names none."""
        try:
            return cls.model_validate_json(content or b"")
        except ValidationError:
            return None

    def as_json(self) -> bytes:
        """Return what the file holds."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def __str__(self) -> str:
        text = f"process {self.pid} on {self.host} ({self.purpose})"
        return "".join(sign if sign.isprintable() else "?" for sign in text)

    def is_here(self) -> bool:
        """Return whether the process was one of this machine, since it was started."""
        return (self.host, self.boot, self.pid_namespace) == _this_machine()

    def is_running(self) -> bool | None:
        """Return whether the process lives, None where that cannot be told from here.

        A process that runs without a sign of life has been stopped, or the machine slept. A
        process id with another start may be another process, or the same one after the
        clock was set: that cannot be told.
        """
        if not self.is_here() or self.pid == os.getpid():
            return None
        if not psutil.pid_exists(1):  # the processes of other users are hidden
            return None
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return True if process.create_time() == self.started else None
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return None


def _this_machine() -> tuple[str, str, str]:
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = str(psutil.boot_time())
    try:
        namespace = os.readlink(_PID_NAMESPACE)
    except OSError:
        namespace = ""
    return platform.node(), boot, namespace
