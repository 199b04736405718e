"""Compiled code that processes share, and pynndescent itself."""

import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

from compiling import environment_with_cache, said_by
from indexes import curved_rows, right_lists
from lpe_dask.kernels import compilation, compile_kernels, nn_descent
from searching import HARD_POINTS

AFTER_COMPILATION = """
import numpy as np
from numba.core import event
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
from lpe_dask import LPE
from lpe_dask.kernels import compilation

compilation.compiler.done = 1e300
rng = np.random.default_rng(0)
rows, queries = rng.standard_normal((3000, 3)), rng.standard_normal((20, 3))
for kind in (
    {"algorithm": "pruned"}, {"n_neighbors": 60}, {"metric": "mahalanobis"},
    {"graph": "radius", "radius": 0.5}, {"metric": "geodesic"},
    {"metric": "geodesic", "metric_params": {"graph": "union", "n_neighbors": 5}},
):
    model = LPE(**kind).fit(rows)
    model.score_samples(queries)
    if "graph" not in kind:
        model.explain(queries[:2])
wide = rng.standard_normal((20_000, 60))
LPE(algorithm="brute", calibration="loo", n_neighbors=5).fit(wide)
print(len(compilation.compiler.ready), len(compiled.buffer))
"""


def test_compile_kernels__leaves_nothing_to_compile(tmp_path):
    program = "import lpe_dask; lpe_dask.compile_kernels()"
    _, lines = said_by(program, tmp_path)
    found, lines_later = said_by(AFTER_COMPILATION, tmp_path)

    n_kernels = sum(line.startswith("compiling ") for line in lines)
    assert found == [str(n_kernels), "0"]
    assert [line for line in lines_later if "compiling" in line] == []


def test_compile_kernels__of_approximate_searches_has_all_ready():
    compile_kernels("nn_descent")

    assert set(compilation.compiler.ready) == set(compilation.KERNELS)


SLOWLY = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from lpe_dask.kernels.graph_search import join_lists

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
    graph = np.full((3, 2), -1, np.int32)
    join_lists(np.array([[1], [2], [1]], name), graph)
    assert graph.tolist() == [[1, -1], [2, 0], [1, -1]]
print(sum(join_lists.stats.cache_hits.values()))
"""


def test_compiled__by_two_processes_at_once(tmp_path):
    """One for int32, one for int64: a third finds the compiled form of either."""
    environment = environment_with_cache(tmp_path)

    def start(*names):
        command = [sys.executable, "-c", SLOWLY, *names]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    both = start("int32"), start("int64")
    assert [process.communicate()[0] for process in both] == ["0\n", "0\n"]

    third = start("int32", "int64")
    assert third.communicate()[0] == "2\n"
    assert third.returncode == 0


# pynndescent is compiled for a minute in each process that uses it


def test_neighbor_lists__hold_most_of_the_nearest():
    rows = curved_rows(1)

    lists = nn_descent.neighbor_lists(rows, 0)

    right = right_lists(rows)
    found = [
        len(set(a) & set(b)) for a, b in zip(lists[:, :20], right[:, :20], strict=True)
    ]
    assert lists.dtype == np.int32
    assert np.mean(found) > 19


def test_neighbor_lists__are_the_same_bits_alone_and_beside_others():
    """Four builds at once, each with one thread: numba's own scheduler would abort."""
    alone = [nn_descent.neighbor_lists(curved_rows(seed), seed) for seed in range(4)]
    beside = [None] * 4
    n_threads = numba.get_num_threads()

    def build(seed):
        beside[seed] = nn_descent.neighbor_lists(curved_rows(seed), seed)

    threads = [threading.Thread(target=build, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    np.testing.assert_array_equal(beside, alone)
    assert not np.array_equal(
        nn_descent.neighbor_lists(curved_rows(0), 1),
        nn_descent.neighbor_lists(curved_rows(0), 0),
    )
    assert numba.get_num_threads() == n_threads


@pytest.mark.parametrize("name", HARD_POINTS)
def test_neighbor_lists__take_hard_data(name):
    lists = nn_descent.neighbor_lists(HARD_POINTS[name], 0)

    assert len(lists) == len(HARD_POINTS[name])


@pytest.mark.parametrize("n_rows", [31, 64, 100])
def test_neighbor_lists__are_there_for_few_rows(n_rows):
    lists = nn_descent.neighbor_lists(curved_rows(1, n_rows), 0)

    assert lists.shape == (n_rows, min(n_rows, nn_descent.LISTED_ROWS))


def test_import__leaves_the_threading_layer_as_it_was_set(monkeypatch):
    """pynndescent sets another one where "omp" was asked for."""
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "omp")
    nn_descent._library.cache_clear()
    for name in [name for name in sys.modules if name == "pynndescent"]:
        monkeypatch.delitem(sys.modules, name)

    nn_descent._library()

    assert numba.config.THREADING_LAYER == "omp"
