import ast
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import lpe_dask
from lpe_dask.kernels import compiled as module
from lpe_dask.kernels import private_uses
from lpe_dask.kernels.compiled import compiled


def _twice(x):
    return 2 * x


def test_compiled__works_where_nothing_can_be_cached(monkeypatch, caplog):
    def without_locator(*args, cache=False, **kwargs):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(module, "njit", without_locator)
    monkeypatch.setattr(module, "_said", threading.Lock())
    with caplog.at_level(logging.INFO):
        kernel = compiled(_twice)

    assert kernel(2) == 4
    assert "they cannot be kept on disk (cannot cache function" in caplog.text


def _thrice(x):
    return 3 * x


def test_compiled__works_where_the_cache_cannot_be_locked(monkeypatch, caplog):
    def refuse(path):
        raise OSError("no locks available")

    monkeypatch.setattr(private_uses, "lock_file", refuse)
    monkeypatch.setattr(module, "_said", threading.Lock())
    kernel = compiled(_thrice)

    with caplog.at_level(logging.INFO):
        assert kernel(2) == 6

    assert "they cannot be kept on disk (no locks available)" in caplog.text
    assert kernel.stats.cache_misses
    assert not list(Path(kernel.stats.cache_path).glob("*_thrice*"))


def test_compiled__is_not_confused_by_a_change_in_another_file():
    """numba looks at the file of a function only, and not at those of what it calls."""

    kernel = compiled(_twice)

    index = Path(kernel._cache._cache_file._index_path)
    assert f"_twice-{module.KERNEL_STATE}." in index.name
    assert module.KERNEL_STATE.startswith(module._state_of_sources())


BEFORE = '''
"""One thing."""
LIMIT = 3

def kernel(x):
    """Return it."""
    return {"a", "b", "c"} if x < LIMIT else 2 * x
'''

AFTER = '''
"""Another thing, at length."""
# Why this is so.
LIMIT = 3


def kernel(x):  # a word more
    """Return this

    or that.
    """
    return {"a", "b", "c"} if x < LIMIT else 2 * x
'''


def _state(folder, source, hash_seed="0"):
    """Return the state of kernels that have one file, as a new process does."""
    (folder / "one.py").write_text(source)
    program = (
        "from lpe_dask.kernels import compiled\n"
        f"compiled.__file__ = {str(folder / 'compiled.py')!r}\n"
        "print(compiled._state_of_sources())"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_kernel_state__is_that_of_what_is_computed(tmp_path):
    """An edited comment or docstring compiles nothing anew."""
    state = _state(tmp_path, BEFORE)

    assert _state(tmp_path, AFTER, hash_seed="1") == state
    assert _state(tmp_path, BEFORE.replace("2 * x", "3 * x")) != state
    assert _state(tmp_path, BEFORE.replace("LIMIT = 3", "LIMIT = 4")) != state
    assert _state(tmp_path, BEFORE.replace("LIMIT else", "LIMIT or x > 5 else")) != state


def test_cache_folder__is_where_compiled_kernels_go(tmp_path):
    """A second process finds what the first has compiled."""
    program = (
        "import numpy as np\n"
        "from lpe_dask.kernels.nearest import reservoir_size\n"
        "reservoir_size(3)\n"
        "print(sum(reservoir_size.stats.cache_hits.values()))\n"
    )
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    hits = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip

    assert hits == ["0", "1"]
    assert list(tmp_path.rglob("*.nbi"))


def test_cache_folder__serves_processes_without_docstrings_and_assertions(tmp_path):
    """PYTHONOPTIMIZE changes the bytecode by which numba looks compiled forms up."""
    program = (
        "import sys\n"
        "import numpy as np\n"
        "from lpe_dask.kernels.nearest import reservoir_size\n"
        "reservoir_size(3)\n"
        "n_compiled = sum(reservoir_size.stats.cache_misses.values())\n"
        "print(sys.flags.optimize, n_compiled)\n"
    )
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    said = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment | {"PYTHONOPTIMIZE": level},
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for level in "012"
    ]  # fmt: skip

    assert said == [["0", "1"], ["1", "0"], ["2", "0"]]


KERNELS = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
from lpe_dask.kernels import nearest
nearest.reservoir_size(3)
print(nearest.__file__)
"""


@pytest.fixture
def unwritable(tmp_path):
    """An environment with a copy of the package, in which numba can write to no folder.

    A file stands where the folder would be, as permissions do not hold for the superuser.
    """
    package = tmp_path / "package" / "lpe_dask"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(lpe_dask.__file__).parent, package, ignore=skipped)
    file = package / "kernels" / "__pycache__"
    file.touch()
    environment = {
        name: value for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "DASK_LPE_DASK__CACHE_FOLDER", "DASK_CONFIG")
    }  # fmt: skip
    return environment | {
        "PYTHONPATH": str(package.parent), "HOME": str(file), "XDG_CACHE_HOME": str(file)
    }  # fmt: skip


def _logged(environment):
    package = environment["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], cwd=package,
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(package)
    return done.stderr.splitlines()


def test_compiled__warns_once_where_nothing_can_be_cached(unwritable):
    (line,) = _logged(unwritable)

    assert line.startswith("WARNING each process compiles the kernels anew")
    assert "key lpe-dask.cache-folder" in line
    assert "variable DASK_LPE_DASK__CACHE_FOLDER" in line


@pytest.mark.parametrize("is_in_file", [False, True])
def test_compiled__does_not_warn_with_the_folder_that_it_asks_for(
    unwritable, tmp_path, is_in_file
):
    cache = tmp_path / "cache"
    if is_in_file:
        (tmp_path / "lpe.yaml").write_text(f"lpe-dask:\n  cache-folder: {cache}\n")
        environment = unwritable | {"DASK_CONFIG": str(tmp_path / "lpe.yaml")}
    else:
        environment = unwritable | {"DASK_LPE_DASK__CACHE_FOLDER": str(cache)}

    assert _logged(environment) == []
    assert list(cache.rglob("*.nbi"))


SLOWLY = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from lpe_dask.kernels.walks import join_directions

read, save = IndexDataCacheFile._load_index, IndexDataCacheFile.save

def read_slowly(file):
    found = read(file)
    time.sleep(0.5)
    return found

def save_slowly(file, key, data):
    IndexDataCacheFile._load_index = read_slowly
    save(file, key, data)
    IndexDataCacheFile._load_index = read

IndexDataCacheFile.save = save_slowly
for name in sys.argv[1:]:
    neighbors = np.array([[1], [2], [1]], np.int32)
    starts, targets, lengths = join_directions(neighbors, np.array([[1], [2], [2]], name))
    assert (list(targets), list(lengths)) == ([1, 0, 2, 1], [1, 1, 2, 2])
print(sum(join_directions.stats.cache_hits.values()))
"""


def test_compiled__by_two_processes_at_once(tmp_path):
    """One for float32, one for float64: a third finds the compiled form of either."""
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def start(*names):
        command = [sys.executable, "-c", SLOWLY, *names]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    both = start("float32"), start("float64")
    assert [process.communicate()[0] for process in both] == ["0\n", "0\n"]

    third = start("float32", "float64")
    assert third.communicate()[0] == "2\n"
    assert third.returncode == 0


def test_kernels__have_names_of_their_own():
    """Closures of one name, compiled in forks, would get one symbol (numba issue 10486)."""
    makers = {"compiled", "inlined", "borrowing"}

    def kernels(nodes):
        return [
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            and makers & {ast.unparse(decorator) for decorator in node.decorator_list}
        ]

    files = [ast.parse(p.read_text()) for p in Path(module.__file__).parent.glob("*.py")]

    assert sum(len(kernels(file.body)) for file in files) > 50
    for file in files:
        names = kernels(ast.walk(file))
        assert sorted(set(names)) == sorted(names) == sorted(kernels(file.body))
