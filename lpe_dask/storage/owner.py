"""The owner of a lock: which process it is, and whether it is still running."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import psutil

from lpe_dask.storage.redaction import printable

#: Where Linux names the current boot and the namespace of process ids.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    Attributes
    ----------
    token : str
        Random, a new one for each lock.
    host, boot, pid_namespace : str
        Where the process id is valid: several machines may have the same name.
    pid : int
    started : float
        When the process started, by the clock of its machine.
    purpose : str
    since : str
        When the lock was taken, by the clock of its machine.
    beat : int
        Number of heartbeats.
    """

    token: str
    host: str
    boot: str
    pid_namespace: str
    pid: int
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
        """Return the owner of a lock file, None if the content is not valid."""
        try:
            given: dict[str, Any] = json.loads(content or b"")
            known = [field.name for field in fields(cls) if field.name in given]
            owner = cls(**{name: given[name] for name in known})
        except (ValueError, TypeError, RecursionError):
            return None
        texts = (given["token"], given["host"], given["purpose"])
        is_valid = isinstance(given["pid"], int) and all(isinstance(x, str) for x in texts)
        return owner if is_valid else None

    def as_json(self) -> bytes:
        """Return the content of the lock file."""
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    def __str__(self) -> str:
        return printable(f"process {self.pid} on {self.host} ({self.purpose})")

    def is_running(self) -> bool | None:
        """Return whether the process is running, None where this machine cannot know.

        A process that is running without a heartbeat has been stopped, or the machine was
        asleep. A process id with another start time may be another process, or the same one
        after the clock was set: nothing shows it.
        """
        is_here = (self.host, self.boot, self.pid_namespace) == _this_machine()
        if not is_here or self.pid == os.getpid():
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
        except (psutil.Error, ValueError, OverflowError):
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
