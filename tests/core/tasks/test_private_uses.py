"""What dask, distributed, numba, pandas and pyarrow keep private is used in two files."""

import ast
import functools
import inspect
import re
from pathlib import Path

import pytest

import lpe_dask
from lpe_dask.kernels import numba_internals as kernel_uses
from lpe_dask.tasks import dask_internals

FOLDER = Path(lpe_dask.__file__).parent
LISTS = (dask_internals, kernel_uses)
FOREIGN = ("dask", "distributed", "numba", "llvmlite", "pandas", "pyarrow")

#: Private without an underscore: no documentation has them.
UNDOCUMENTED = {
    "convert_legacy_graph",
    "disable_gc_diagnosis",
    "make_array",
    "nprocesses_nthreads",
    "recent_message_log",
    "simplify",
    "thread_state",
    "tokenize_lock",
}

#: Documented, although they begin with an underscore: of named tuples, and of `os`.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}


def is_private(name):
    return name in UNDOCUMENTED or bool(re.match(r"_[^_]", name))


def names_used(tree):
    """Yield the names in a file by which something of another object may be reached."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                yield name
            case ast.ImportFrom(module=module) if module.split(".")[0] in FOREIGN:
                yield from (*module.split("."), *(alias.name for alias in node.names))
            case ast.Import():
                yield from (part for name in node.names for part in name.name.split("."))


def names_defined(tree):
    """Yield the names that a file gives to functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                yield name


@functools.cache
def package():
    """Return the files of the package but the two lists, parsed, by name."""
    lists = {Path(module.__file__) for module in LISTS}
    paths = [path for path in FOLDER.rglob("*.py") if path not in lists]
    return {str(path.relative_to(FOLDER)): ast.parse(path.read_text()) for path in paths}


@functools.cache
def own_names():
    return {name for tree in package().values() for name in names_defined(tree)}


def private_uses_in(trees):
    """Return the names in files that are private, and not of this package, by file."""
    known = own_names() | DOCUMENTED
    found = {
        file: {name for name in names_used(tree) if is_private(name)} - known
        for file, tree in trees.items()
    }
    return {file: names for file, names in found.items() if names}


def test_package__uses_nothing_private_but_in_the_two_lists():
    assert private_uses_in(package()) == {}


@pytest.mark.parametrize(
    "line",
    [
        "from dask._task_spec import Alias",
        "from dask.tokenize import tokenize_lock",
        "import dask.dataframe._backends",
        "meta = frame._meta",
        "frame.simplify()",
        "lock = getattr(client, '_refcount_lock', None)",
        "kernel = njit(_nrt=False)(function)",
        "pool.thread_state.proceed",
    ],
)
def test_private_uses_in__finds(line):
    assert private_uses_in({"new.py": ast.parse(line)})


@pytest.mark.parametrize("module", LISTS, ids=lambda module: module.__name__)
def test_lists__say_of_each_use_what_it_is_and_since_when_it_is_known_to_work(module):
    functions = inspect.getmembers(module, inspect.isfunction)
    own = [function for _, function in functions if function.__module__ == module.__name__]

    assert own
    for function in own:
        assert re.search(r"\n\nUses ", inspect.getdoc(function)), function
        assert "Known to work since " in inspect.getdoc(function), function
