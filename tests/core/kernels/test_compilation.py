"""When kernels are compiled, and when small tables do without."""

import fcntl
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from compiling import environment_with_cache, said_by, taking
from forking import in_fork
from lpe_dask.kernels import (
    compilation,
    compile_kernels,
    compiler,
    numba_internals,
    products,
)
from lpe_dask.kernels.exact_sums import sum_of_products
from searching import in_blocks, search_nearest, search_within

ONE_AFTER_ANOTHER = """
import sys
import numpy as np
from lpe_dask.kernels import compilation
from lpe_dask.kernels.exact_sums import sum_of_products

for done in {levels!r}:
    compilation.compiler.done = done
    sum_of_products(np.ones(3), np.ones(3))
    print("add_products" in compilation.compiler.ready, "numba" in sys.modules)
"""


def test_run__compiles_as_late_as_it_pays(tmp_path):
    levels = [0.0, 2 * compilation.LOADED_WORK, 2 * compilation.COMPILED_WORK]
    program = ONE_AFTER_ANOTHER.format(levels=levels)

    first, lines = said_by(program, tmp_path)
    second, lines_of_second = said_by(program, tmp_path)

    assert first == ["False", "False", "False", "True", "True", "True"]
    assert lines == ["compiling exact sums, once per machine: about 2 s"]
    assert second == ["False", "False", "True", "True", "True", "True"]
    assert lines_of_second == []


@pytest.mark.parametrize(
    ("name", "ready"), [("add_products", ["add_products"]), ("fold_nearest", [])]
)
def test_run__compiles_at_once_what_more_is_expected_of(name, ready):
    """And nothing else: a large search says nothing of how large others are."""
    compiler.expect(name, 2 * compilation.COMPILED_WORK)

    sum_of_products(np.ones(3), np.ones(3))

    assert list(compilation.compiler.ready) == ready


def test_run__adds_up_the_work_of_a_process(monkeypatch, caplog):
    """A service that scores every minute compiles in the end."""
    monkeypatch.setattr(compilation, "LOADED_WORK", 3 * 600)
    monkeypatch.setattr(compilation, "COMPILED_WORK", 3 * 600)

    with caplog.at_level("DEBUG", compilation.__name__):
        is_compiled = []
        for _ in range(4):
            sum_of_products(np.ones(1), np.ones(1))
            is_compiled.append("add_products" in compilation.compiler.ready)

    assert is_compiled == [False, False, False, True]
    assert "add_products runs in NumPy" in caplog.text


@pytest.mark.full
def test_run__compiles_in_one_process_of_a_machine(tmp_path):
    command = [sys.executable, "-c", ONE_AFTER_ANOTHER.format(levels=[1e300])]
    both = [
        subprocess.Popen(
            command, env=environment_with_cache(tmp_path), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]

    lines = [line for process in both for line in process.communicate()[1].splitlines()]

    assert [process.returncode for process in both] == [0, 0]
    assert lines == ["compiling exact sums, once per machine: about 2 s"]


@pytest.fixture
def compiling_elsewhere(monkeypatch):
    """Hold the lock of exact sums, as if another process compiled them, for a moment."""
    monkeypatch.setattr(numba_internals, "is_on_disk", lambda *_: False)
    monkeypatch.setattr(compilation, "COMPILED_WORK", -1.0)
    monkeypatch.setattr(compilation, "LOADED_WORK", -1.0)
    folder = Path(products.add_products._cache.cache_path)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lpe_dask.compiling.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = threading.Timer(0.5, fcntl.flock, [file, fcntl.LOCK_UN])
        end.start()
        yield
        end.join()


@pytest.mark.usefixtures("compiling_elsewhere")
def test_run__says_that_it_waits_for_another_process(caplog):
    with caplog.at_level("INFO", compilation.__name__):
        assert sum_of_products(np.ones(3), np.ones(3)).any()

    assert "waiting for another process that compiles exact sums" in caplog.messages
    assert not compiler.is_compiling


@pytest.mark.usefixtures("compiling_elsewhere")
def test_fork__goes_on_while_a_thread_waits_for_another_process():
    waiting = threading.Event()

    def wait():
        with numba_internals.one_process_at_a_time(products.add_products, waiting.set):
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()

    assert in_fork(lambda: bool(sum_of_products(np.ones(3), np.ones(3)).any()))
    thread.join()


def test_fork__does_not_compile_what_its_parent_does(monkeypatch):
    monkeypatch.setattr(compilation.compiler, "is_compiling", True)

    assert not in_fork(lambda: compiler.is_compiling)


def test_run__says_how_often_it_compiles_where_nothing_is_kept(monkeypatch):
    said = []
    monkeypatch.setattr(compilation.compiler, "announce", said.append)
    monkeypatch.setattr(numba_internals, "is_kept", lambda _: False)

    with taking("compiled"):
        sum_of_products(np.ones(3), np.ones(3))

    assert said == ["compiling exact sums, by each process: about 2 s"]


SMALL = """
import sys
sys.modules["sparse"] = None  # Dask imports it where it is installed, and that numba
import numpy as np
import pandas as pd
from lpe_dask import LPE, score

rng = np.random.default_rng(0)
rows, queries = rng.standard_normal((300, 3)), rng.standard_normal((20, 3))
named = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(
    code=rng.choice(["x", "y"], 300), flag=rng.random(300) < 0.2
)
score(named, categorical=["code"])
for kind in (
    {}, {"scale": "quantile"}, {"scale": "standard", "aggregation": "mean"},
    {"metric": "mahalanobis"}, {"graph": "radius", "radius": 0.5},
    {"metric_params": {"w": [1.0, 2.0, 3.0]}}, {"calibration": "loo"},
):
    model = LPE(**kind).fit(rows)
    model.score_samples(queries), model.statistic(queries), model.predict(queries)
    model.p_values_
    if "graph" not in kind:
        model.explain(queries[:2])
        model.nearest_nominal(queries[:2])
LPE(categorical=["code"]).fit(named).explain(named[:2])
print(*[name for name in sys.modules if name in ("numba", "llvmlite", "pynndescent")])
"""


def test_small_tables__need_no_compiler(tmp_path):
    """It is not even imported, but for walks along a graph, and nothing is said."""
    imported, lines = said_by(SMALL, tmp_path)

    assert imported == []
    assert not list(tmp_path.rglob("*.nb?"))
    assert [line for line in lines if "compil" in line] == []


def test_compile_kernels__has_all_ready_but_those_of_approximate_searches():
    """That nothing is left to compile, in any process, is in tests/full."""
    compile_kernels()

    of_approximate = {"join_lists", "search_beams"}
    assert set(compilation.compiler.ready) == set(compilation.KERNELS) - of_approximate


def test_compile_kernels__fails_where_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(numba_internals, "is_on_disk", lambda *_: False)

    with pytest.raises(OSError, match=r"could not be kept on disk.*lpe-dask\.cache-folder"):
        compile_kernels()


def test_compile_kernels__refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="'brute'; it must be 'auto' or 'nn_descent'"):
        compile_kernels("brute")


def test_definition__takes_little_memory_of_a_large_block():
    """Blocks may be as large as workers hold; what is measured at a time is not."""
    rows = np.random.default_rng(0).standard_normal((60_000, 8))
    reference = in_blocks("brute", rows, cell_rows=4096)

    with taking("defined"):
        for search in (
            lambda: search_nearest(reference, rows[:40], 5),
            lambda: search_nearest(reference, rows[:40], 5, with_numbers=True),
            lambda: search_within(reference, rows[:40], 1.0),
        ):
            tracemalloc.start()
            search()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 * 2**20
