"""What whole worker processes take, beside what a plan says that they take at most.

The kernel counts: the largest resident size of each process since it was told to forget.
"""

import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import lpe_dask
from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.batch import ClusterSection
from lpe_dask.cli.cluster import WorkerChoice, kept_memory
from lpe_dask.search import plan as planning
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.search.plan import ProblemSize, SearchPlan, Statistic
from lpe_dask.tasks.worker_pool import Workers, active_client, peak_process_bytes
from making import as_array, as_frame, forget_peak

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="this kernel forgets no peak"
)

N_FEATURES, N_NEIGHBORS, N_PARTITIONS = 2, 5, 20

#: Of the tests and of the package.
FOLDERS = Path(__file__).parents[1:3]


@pytest.fixture(params=mostly_slow(["frame", "array", "files"], ["files"]))
def table(request, tmp_path):
    """Return a function from rows and a seed to a table of one kind."""

    def make(n_rows, seed):
        if request.param == "array":
            return as_array(n_rows, N_FEATURES, N_PARTITIONS, seed)
        frame = as_frame(n_rows, N_FEATURES, N_PARTITIONS, seed)
        if request.param == "frame":
            return frame
        frame.to_parquet(tmp_path / str(seed))
        return str(tmp_path / str(seed))

    return make


@pytest.fixture(scope="module")
def compiled():
    """Kernels are in numba's cache: to compile them takes more than they do."""
    for make in (as_array, as_frame):
        LPE(N_NEIGHBORS, algorithm="pruned").fit(make(10**4, N_FEATURES, 4, 0))


@pytest.fixture(params=mostly_slow(["kept", "given back"], ["kept"]))
def client(request, compiled):
    """Workers that have run nothing yet, and keep free memory as those of commands do."""
    kept = kept_memory() if request.param == "kept" else {}
    with (
        dask.config.set(kept),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit="6GiB",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def peak(client):
    return max(client.run(peak_process_bytes).values())


def check_bound(client, model, tables, n_rows, n_features, **shape):
    """Fit to one table and score another; demand that no step takes more than planned.

    From the first row that a fit reads to the last p-value, of nominal and new rows.
    """
    nominal, new = tables
    plan = MemoryEstimate.of(
        ProblemSize(
            n_rows, n_features, Statistic(N_NEIGHBORS, None),
            partition_rows=n_rows // N_PARTITIONS, **shape,
        ),
        Workers.active(),
    )  # fmt: skip
    client.run(forget_peak)
    model.fit(nominal)
    peaks = {"fit": peak(client)}
    for step, scores in {
        "p_values_": lambda: model.p_values_,
        "score": lambda: model.score_samples(new),
    }.items():
        client.run(forget_peak)
        assert scores().sum().compute() == pytest.approx(n_rows / 2, rel=0.1)
        peaks[step] = peak(client)

    shown = {step: f"{n_bytes >> 20}" for step, n_bytes in peaks.items()}
    print(f"{n_rows} x {n_features}: planned {plan.worker >> 20} MiB, took {shown}")
    assert max(peaks.values()) <= plan.worker <= Workers.active().memory_limit, peaks
    return plan


@pytest.mark.cluster
def test_process_bytes__bound_a_worker_of_a_command_before_it_has_data(tmp_path):
    """With what the tasks of a small run import; no kernel is loaded for it."""
    as_frame(100, N_FEATURES, 2, 0).to_parquet(tmp_path / "table")
    # Dask imports sparse where it is installed, and that numba.
    without = {"distributed.worker.preload": ["import sys; sys.modules['sparse'] = None"]}
    with (
        dask.config.set(without),
        WorkerChoice(ClusterSection(workers=2), debug=True).open(),
    ):
        lpe_dask.score_files(tmp_path / "table", output=tmp_path / "out", report=False)
        peak_bytes = peak(active_client())

    assert peak_bytes <= Workers.PROCESS_BYTES <= 220 * 2**20


@pytest.mark.cluster
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n_rows", mostly_slow([10**5, 10**6, 2 * 10**7], [10**5]))
def test_worker_bytes__bound_whole_workers(client, table, n_rows):
    nominal, new = table(n_rows, 0), table(n_rows, 1)
    model = LPE(N_NEIGHBORS, algorithm="pruned")
    reads_frame = not isinstance(nominal, da.Array)
    check_bound(client, model, (nominal, new), n_rows, N_FEATURES, reads_frame=reads_frame)


@pytest.mark.slow
@pytest.mark.cluster
def test_worker_bytes__bound_whole_workers_that_read_a_spool(client, tmp_path):
    """The same rows, on disk because workers are said to have less memory."""
    n_rows = 10**6
    tables = [as_array(n_rows, N_FEATURES, N_PARTITIONS, seed) for seed in (0, 1)]
    model = LPE(N_NEIGHBORS, algorithm="pruned")
    with dask.config.set({"lpe-dask.memory-limit": "760MiB", "lpe-dask.spool": tmp_path}):
        plan = check_bound(client, model, tables, n_rows, N_FEATURES, reads_frame=False)

    assert plan.plan.is_spooled


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("n_rows", "n_features", "block_rows"),
    [(60_000, 32, 200_000), (60_000, 256, 200_000), (160_000, 128, 80_000)],
)
def test_worker_bytes__bound_whole_workers_that_build_indexes(
    client, n_rows, n_features, block_rows, monkeypatch
):
    monkeypatch.setattr(planning, "MAX_INDEXED_ROWS", block_rows)
    turn = np.random.default_rng(0).standard_normal((6, n_features))
    tables = [  # rows of 6 directions, as near neighbors are to lead to each other
        np.sin(as_array(n_rows, 6, N_PARTITIONS, seed) @ turn) for seed in (0, 1)
    ]
    model = LPE(N_NEIGHBORS, algorithm="nn_descent", calibration_size=1000)
    shape = {"reads_frame": False, "is_indexed": True}
    check_bound(client, model, tables, n_rows, n_features, **shape)


READ = """
import sys, dask
from lpe_dask.tables.table_files import read_frame
from lpe_dask.tables.table import Table
from lpe_dask.tasks.worker_pool import peak_process_bytes
from making import forget_peak

def read(path):
    return Table.of(read_frame(path)).rows.to_delayed()[0, 0].compute()

with dask.config.set(scheduler="sync"):
    read(sys.argv[1])  # what is imported and opened only once
    forget_peak()
    before = peak_process_bytes()
    rows = read(sys.argv[2])
    print(peak_process_bytes() - before)
"""


@pytest.mark.parametrize(
    ("kind", "n_rows", "n_columns"),
    mostly_slow(
        [
            (kind, *shape)
            for kind in ("float64", "missing", "int64")
            for shape in [(2**16, 10), (2**20, 10), (2**16, 100)]
        ],
        [("missing", 2**16, 100)],
    ),
)
def test_partition_bytes__bound_what_reading_a_partition_takes(
    tmp_path, kind, n_rows, n_columns
):
    """In a process of its own. Numbers fit into a dictionary of each column, or do not."""
    rows = np.random.default_rng(0).random((n_rows, n_columns)) * 1000
    if kind == "missing":
        rows[::7] = np.nan
    names = [f"x{i}" for i in range(n_columns)]
    frame = pd.DataFrame(rows, columns=names).astype("int64" if kind == "int64" else float)
    frame[:100].to_parquet(tmp_path / "few.parquet")
    frame.to_parquet(tmp_path / "many.parquet")
    shape = ProblemSize(
        1, n_columns, Statistic(1, None), partition_rows=n_rows, reads_frame=True
    )
    bound_bytes = MemoryEstimate(SearchPlan(shape, 64, 64, 64, 1)).partition

    paths = filter(None, [*map(str, FOLDERS), os.environ.get("PYTHONPATH")])

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, "few.parquet", "many.parquet"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    taken = int(done.stdout)
    copies, bound = taken / rows.nbytes, bound_bytes / rows.nbytes
    print(f"{kind}, {n_rows} x {n_columns}: {copies:.2f} copies, planned {bound:.2f}")
    assert rows.nbytes <= taken <= bound_bytes
