"""What others may put where a file of ours is looked for, and a limit for who meets it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

#: Seconds and bytes of what neither hangs nor grows; importing the package takes some.
SECONDS, BYTES = 60, 3 * 2**30

#: A user who has nothing.
NOBODY = 65534

_LIMITED = (
    f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({BYTES}, {BYTES}))\n"
)


def pipe(path):
    os.mkfifo(path)


def zeros(path):
    os.symlink("/dev/zero", path)


def nothing(path):
    os.symlink("/nowhere/at/all", path)


def folder(path):
    os.mkdir(path)


def huge(path):
    """Make a file of a tebibyte that takes no place."""
    with open(path, "wb") as file:
        file.truncate(2**40)


def listener(path):
    here = os.getcwd()
    os.chdir(os.path.dirname(path))  # the names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as of_nobody:
            of_nobody.bind(os.path.basename(path))
    finally:
        os.chdir(here)


#: By name; each makes what its name says at a path where nothing is.
ATTACKS = {
    "pipe": pipe, "zeros": zeros, "nothing": nothing, "folder": folder, "huge": huge,
    "listener": listener,
}  # fmt: skip


def limited(code, *arguments):
    """Output of a process that may take neither long nor much memory."""
    return subprocess.run(
        [sys.executable, "-c", _LIMITED + code, *map(str, arguments)],
        cwd=Path(__file__).parents[1], timeout=SECONDS, check=True, text=True,
        stdout=subprocess.PIPE,
    ).stdout  # fmt: skip


def as_nobody(commands, place):
    """Run commands of a shell in a folder as another user; skip where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    # The user may not look into the folders around it, so it is given as the current one.
    subprocess.run(
        ["/bin/sh", "-euc", commands], cwd=place, user=NOBODY, group=NOBODY,
        extra_groups=[], umask=0, timeout=SECONDS, check=True,
    )  # fmt: skip
