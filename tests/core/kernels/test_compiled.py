import ast
import logging
import shutil
import threading
from pathlib import Path

import pytest

import lpe_dask
from compiling import said_by
from lpe_dask.kernels import compiled as module
from lpe_dask.kernels import numba_internals
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

    monkeypatch.setattr(numba_internals, "lock_file", refuse)
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

AFTER = (
    BEFORE.replace("One thing.", "Another thing, at length.")
    .replace("LIMIT = 3\n", "# Why this is so.\nLIMIT = 3\n\n")
    .replace("(x):", "(x):  # a word more")
    .replace("Return it.", "Return this\n\n    or that.\n    ")
)


STATE = """
from lpe_dask.kernels import compiled
compiled.__file__ = "{}/compiled.py"
print(compiled._state_of_sources())
"""


@pytest.fixture
def state_of(tmp_path, monkeypatch):
    """Give the state of kernels that have one file, as this process finds it."""
    monkeypatch.setattr(module, "__file__", str(tmp_path / "compiled.py"))

    def state(source):
        (tmp_path / "one.py").write_text(source)
        return module._state_of_sources()

    return state


def test_kernel_state__is_that_of_what_is_computed(state_of, tmp_path):
    """An edited comment or docstring compiles nothing anew."""
    state = state_of(BEFORE)

    assert state_of(AFTER) == state
    for seed in "01":  # of which a process has one at random
        assert said_by(STATE.format(tmp_path), None, PYTHONHASHSEED=seed) == ([state], [])
    assert state_of(BEFORE.replace("2 * x", "3 * x")) != state
    assert state_of(BEFORE.replace("LIMIT = 3", "LIMIT = 4")) != state
    assert state_of(BEFORE.replace("LIMIT else", "LIMIT or x > 5 else")) != state
    assert state_of("'a'.join('b')") != state_of("'c'.join('b')")


PARSED = """
import sys
from lpe_dask.kernels import compiled
sys.addaudithook(lambda event, _: print(event) if event == "compile" else None)
print(compiled.KERNEL_STATE.startswith(compiled._state_of_sources()))
"""


def test_kernel_state__needs_no_syntax_trees():
    """Python before 3.11.8 fails where two threads make them (CPython issue 106905)."""
    assert said_by(PARSED, None) == (["True"], [])


KERNELS = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
from lpe_dask.kernels import nearest
nearest.reservoir_size(3)
print(nearest.__file__, sum(nearest.reservoir_size.stats.cache_hits.values()))
"""


def test_cache_folder__is_where_compiled_kernels_go(tmp_path):
    """A second process finds what the first has compiled."""
    for n_hits in "01":
        printed, lines = said_by(KERNELS, None, DASK_LPE_DASK__CACHE_FOLDER=str(tmp_path))
        assert (printed[1], lines) == (n_hits, [])
    assert list(tmp_path.rglob("*.nbi"))


@pytest.fixture
def unwritable(tmp_path, monkeypatch):
    """An environment with a copy of the package, in which numba can write to no folder.

    A file stands where the folder would be, as permissions do not hold for the superuser.
    """
    package = tmp_path / "package" / "lpe_dask"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(lpe_dask.__file__).parent, package, ignore=skipped)
    file = package / "kernels" / "__pycache__"
    file.touch()
    (tmp_path / "lpe.yaml").touch()
    monkeypatch.chdir(package.parent)
    return {
        "PYTHONPATH": str(package.parent), "HOME": str(file), "XDG_CACHE_HOME": str(file),
        "DASK_CONFIG": str(tmp_path / "lpe.yaml"),
    }  # fmt: skip


def _logged(environment):
    """Output of a process whose kernels are those of the copy."""
    (file, _), lines = said_by(KERNELS, None, **environment)
    assert file.startswith(environment["PYTHONPATH"])
    return lines


def test_compiled__warns_once_where_nothing_can_be_cached(unwritable):
    (line,) = _logged(unwritable)

    assert line.startswith("WARNING each process compiles the kernels anew")
    assert "key lpe-dask.cache-folder" in line
    assert "variable DASK_LPE_DASK__CACHE_FOLDER" in line


@pytest.mark.full
@pytest.mark.parametrize("is_in_file", [False, True])
def test_compiled__does_not_warn_with_the_folder_that_it_asks_for(
    unwritable, tmp_path, is_in_file
):
    cache = tmp_path / "cache"
    if is_in_file:
        (tmp_path / "lpe.yaml").write_text(f"lpe-dask:\n  cache-folder: {cache}\n")
    else:
        unwritable["DASK_LPE_DASK__CACHE_FOLDER"] = str(cache)

    assert _logged(unwritable) == []
    assert list(cache.rglob("*.nbi"))


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
