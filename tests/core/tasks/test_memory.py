"""The memory that a plan may count on, where something limits this process."""

import resource
import subprocess
import sys

import pytest

from lpe_dask.tasks import memory, memory_of_machine


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Make control groups; gives a function that sets limits and those of this process."""
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_LIMITS", tmp_path)

    def make(own, limits):
        (tmp_path / "cgroup").write_text(own)
        for path, limit in limits.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{limit}\n")

    return make


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": 2**20}, 2**20),
        ("0::/a/b\n", {"memory.max": "max", "a/b/memory.max": 2**20}, 2**20),
        ("0::/a/b\n", {"a/memory.max": 2**19, "a/b/memory.max": 2**20}, 2**19),
        ("0::/a/b\n", {"c/memory.max": 2**20}, None),
        ("0::/a\n", {"a/memory.max": "max"}, None),
        ("3:cpu:/c\n4:memory:/a/b\n", {"memory/a/memory.limit_in_bytes": 2**20}, 2**20),
        ("3:cpu:/c\n4:memory:/a/b\n", {"memory/c/memory.limit_in_bytes": 2**20}, None),
        # In a container that sees the groups of its machine, but only its own limits.
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": 2**20}, 2**20),
    ],
)
def test_memory_of_machine__is_that_of_the_groups_around(groups, own, limits, expected):
    groups("0::/\n", {})
    machine = memory_of_machine()
    groups(own, limits)

    assert memory_of_machine() == (expected or machine)
    assert machine > 2**20


def test_memory_of_machine__without_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "missing")
    monkeypatch.setattr(memory, "_LIMITS", tmp_path / "missing")

    assert memory_of_machine() > 2**20


def test_memory_of_machine__is_limited_by_the_shell():
    def limit():
        resource.setrlimit(resource.RLIMIT_RSS, (2**30, resource.RLIM_INFINITY))

    program = "from lpe_dask.tasks import memory_of_machine; print(memory_of_machine())"
    child = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=limit, capture_output=True, text=True
    )

    assert int(child.stdout) == 2**30, child.stderr
