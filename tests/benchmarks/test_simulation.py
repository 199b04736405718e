"""The model of a schedule: what it counts adds up, and its plans are those of real fits."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from benchmarks.data import clusters
from benchmarks.planned_fits import Shape, kind_of, plan_fit
from benchmarks.schedule import Machine, Rates, SchedulerCost, simulate, works
from benchmarks.simulation import least_memory
from lpe_dask import LPE
from lpe_dask.search.blocks import merged_pieces
from processes import local_cluster

MIB = 2**20
BLOCKS = "lpe-dask.block-rows"
MEMORY = Shape(20_000, 3, 2, 2048 * MIB, 6, ((BLOCKS, 2048),))
SPOOL = least_memory(60_000, 16, 4, 12, 2048)
RATES = Rates(
    1e-6, 1e-7, 1e-8, 1e-7, 1e-9, 2e-6, 1e-5, 1e-9, 1e-9, 1e-3, 48.0, 12.0, 2000.0
)
COST = SchedulerCost(1e-3, 1e-5, 1e-5, 1e-2, 1e-3)
CALM = Machine(spread=0.0, straggler_share=0.0)


@pytest.fixture(scope="module")
def planned():
    return {shape: plan_fit(shape) for shape in (MEMORY, SPOOL)}


@cache
def work_of(shape):
    return works(plan_fit(shape), RATES)


def simulated(fit, machine=CALM, cost=COST, n_workers=None, seed=0):
    """Return the model of a plan, also with other workers than it was made for."""
    n_workers = n_workers or fit.shape.n_workers
    some = replace(fit, shape=replace(fit.shape, n_workers=n_workers))
    return simulate(some, work_of(fit.shape), cost, machine, seed)


def test_plan_fit__has_the_tasks_of_a_fit():
    """Those that a scheduler counts."""
    with (
        dask.config.set(dict(MEMORY.settings)),
        local_cluster(memory_limit="2GiB") as cluster,
        Client(cluster) as client,
    ):
        frame = dd.from_pandas(
            pd.DataFrame(clusters(MEMORY.n_rows, 3), columns=["x0", "x1", "x2"]),
            npartitions=MEMORY.n_partitions,
        )
        model = LPE(n_neighbors=20, calibration="loo", algorithm="pruned").fit(frame)
        done = client.run_on_scheduler(
            lambda dask_scheduler: {
                name: prefix.state_counts["memory"]
                for name, prefix in dask_scheduler.task_prefixes.items()
            }
        )
        n_blocks = len(model._fitted.reference.blocks)
    fit = plan_fit(MEMORY)
    expected = Counter(kind_of(key) for phase in fit.phases for key in phase.tasks)

    assert n_blocks > 4
    for kind in ("survey", "chunk", "split", "sizes", "pack", "join"):
        assert done[f"lpe-{kind}"] == expected[kind], kind


def test_plan_fit__merges_pieces_and_packs_each_region_once(planned, monkeypatch):
    monkeypatch.setattr(merged_pieces, "MAX_PIECE_READS", 100)

    fit = plan_fit(SPOOL)

    counts = Counter(kind_of(key) for phase in fit.phases for key in phase.tasks)
    n_runs = len(merged_pieces.run_edges(len(fit.region_rows))) - 1
    work = works(fit, RATES)
    assert counts["merge-pieces"] >= n_runs > 1
    assert counts["pack"] == len(fit.region_rows)
    assert work["pack"].requests < works(planned[SPOOL], RATES)["pack"].requests
    assert work["merge-pieces"].read == work["merge-pieces"].written > 0


def test_plan_fit__runs_no_task_and_leaves_the_package_as_it_is(planned):
    assert planned[SPOOL].plan.is_spooled
    assert not planned[MEMORY].plan.is_spooled
    rows = clusters(500, 3)

    model = LPE(n_neighbors=20, calibration="loo").fit(rows)

    assert np.isfinite(model.calibration_).all()


def test_simulate__does_each_task_once_and_adds_up(planned):
    for fit in planned.values():
        out = simulated(fit)
        work = work_of(fit.shape)
        kinds = Counter(kind_of(key) for phase in fit.phases for key in phase.tasks)

        assert out.done == fit.n_tasks
        assert out.lost == 0
        for total, of in ((out.busy, "seconds"), (out.read_bytes, "read"),
                          (out.written_bytes, "written")):  # fmt: skip
            expected = sum(n * getattr(work[kind], of) for kind, n in kinds.items())
            assert total == pytest.approx(expected)
        assert sum(out.by_kind.values()) == pytest.approx(
            out.busy + out.storage + out.network
        )
        n_sent = fit.n_tasks * COST.task + fit.n_named * COST.named
        n_sent += out.transfers * COST.transfer + len(fit.phases) * COST.phase
        assert out.scheduler == pytest.approx(n_sent + COST.second * out.seconds)
        assert out.seconds >= out.busy / fit.shape.n_workers


def test_simulate__bytes_between_workers(planned):
    """One worker has all; of two, each fetches the blocks of the other."""
    fit = planned[MEMORY]
    alone = simulated(fit, n_workers=1)
    assert (alone.transfers, alone.transfer_bytes) == (0, 0)
    two = simulated(fit)
    blocks = RATES.block_bytes * MEMORY.n_rows
    assert two.transfer_bytes >= blocks
    assert two.gathered_bytes == alone.gathered_bytes
    assert two.gathered_bytes >= 16 * MEMORY.n_rows


def test_simulate__more_workers_take_no_longer_and_are_no_less_in_all(planned):
    fit = planned[SPOOL]
    seconds = [simulated(fit, n_workers=n).seconds for n in (1, 2, 4, 16)]
    assert seconds == sorted(seconds, reverse=True)
    in_all = [n * of for n, of in zip((1, 2, 4, 16), seconds, strict=True)]
    assert in_all == sorted(in_all)


def test_simulate__a_lost_worker_is_made_up_for(planned):
    for fit in planned.values():
        calm = simulated(fit)
        # Each about three times.
        losses = 3 * 3600 / calm.seconds
        faults = replace(CALM, losses=losses, restart=0.01 * calm.seconds)
        found = [simulated(fit, faults, seed=seed) for seed in range(5)]
        assert sum(of.lost for of in found) > 0
        assert max(of.done for of in found) > calm.done
        for often in found:
            assert often.done >= calm.done
            assert often.busy > calm.busy
            assert often.gathered == calm.gathered


def test_simulate__stragglers_and_a_slow_scheduler(planned):
    fit = planned[SPOOL]
    calm = simulated(fit)
    slow = simulated(fit, replace(CALM, straggler_share=0.2, straggler_factor=5.0))
    assert slow.seconds > calm.seconds
    assert slow.busy == pytest.approx(calm.busy)
    busy = simulated(fit, cost=replace(COST, task=1.0))
    assert busy.seconds >= fit.n_tasks
    assert 0.9 < busy.scheduler_share <= 1.01
    assert math.isclose(calm.efficiency, calm.busy / (4 * calm.seconds))
