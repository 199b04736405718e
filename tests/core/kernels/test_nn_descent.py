"""How pynndescent is called, and what its import leaves alone; see tests/full for more."""

import ast
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numba
import numpy as np
import pytest

import lpe_dask
from indexes import curved_rows, right_lists
from lpe_dask.kernels import nn_descent


@pytest.mark.parametrize("n_rows", [1, 2, 29, 30])
def test_neighbor_lists__are_there_for_few_rows(n_rows):
    lists = nn_descent.neighbor_lists(curved_rows(1, n_rows), 0)

    assert lists.shape == (n_rows, min(n_rows, nn_descent.LISTED_ROWS))


def arguments_of_pynndescent():
    """Return the names of the arguments of its NNDescent, which is not imported."""
    (folder,) = find_spec("pynndescent").submodule_search_locations
    for node in ast.walk(ast.parse(Path(folder, "pynndescent_.py").read_text())):
        if isinstance(node, ast.ClassDef) and node.name == "NNDescent":
            (init,) = [of for of in node.body if getattr(of, "name", "") == "__init__"]
            return {argument.arg for argument in init.args.args}
    return set()


@pytest.fixture
def prepared(monkeypatch):
    """Compile nothing before the first build."""
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: True)


def test_neighbor_lists__are_those_that_pynndescent_gives(monkeypatch, prepared):
    """With arguments that it has; its import alone would compile for half a minute."""
    calls = []

    def build(data, **options):
        calls.append(options)
        lists = right_lists(data).astype(np.int64)
        return SimpleNamespace(neighbor_graph=(lists, None))

    monkeypatch.setattr(nn_descent, "_library", lambda: SimpleNamespace(NNDescent=build))
    rows = curved_rows(1, 100)

    lists = nn_descent.neighbor_lists(rows, 7)

    assert calls == [
        {"n_neighbors": nn_descent.LISTED_ROWS, "random_state": 7, "n_jobs": 1}
    ]
    assert {"data", *calls[0]} <= arguments_of_pynndescent()
    assert lists.dtype == np.int32
    np.testing.assert_array_equal(lists, right_lists(rows.astype(np.float32)))


def test_build__that_fails_leaves_the_threads_as_they_were(monkeypatch, prepared):
    class Failing:
        def NNDescent(self, *args, **options):
            numba.set_num_threads(1)
            raise MemoryError("no memory")

    n_threads = numba.get_num_threads()
    monkeypatch.setattr(nn_descent, "_library", Failing)

    with pytest.raises(MemoryError, match="no memory"):
        nn_descent.neighbor_lists(curved_rows(1, 100), 0)

    assert numba.get_num_threads() == n_threads


def test_import__leaves_the_threading_layer_as_it_was_set(monkeypatch, tmp_path):
    """tests/full imports pynndescent, which sets another one where "omp" was asked for."""
    source = "import numba\nnumba.config.THREADING_LAYER = 'workqueue'\n"
    (tmp_path / "pynndescent.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "omp")

    with patch.dict(sys.modules):  # nobody is to find this one later
        sys.modules.pop("pynndescent", None)
        library = nn_descent._library.__wrapped__()

    assert library.__file__ == str(tmp_path / "pynndescent.py")
    assert numba.config.THREADING_LAYER == "omp"


def test_builds__are_one_at_a_time_where_threads_must_not_meet(monkeypatch):
    held = []
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: False)
    lock = nn_descent._building.lock
    monkeypatch.setattr(nn_descent, "_listed", lambda *args: held.append(lock._is_owned()))

    nn_descent.neighbor_lists(curved_rows(1, 100), 0)

    assert held == [True]


def test_nothing_else__imports_pynndescent():
    folder = Path(lpe_dask.__file__).parent
    importing = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(r"^\s*(import|from) pynndescent", path.read_text(), re.MULTILINE)
    ]

    assert importing == ["kernels/nn_descent.py"]
