"""What a fit would take on many workers: a model of its schedule, and how right it is.

    PYTHONPATH=tests python -m benchmarks.simulation --folder FOLDER  # half an hour
    PYTHONPATH=tests python -m benchmarks.simulation --folder FOLDER --only cells
    PYTHONPATH=tests python -m benchmarks.simulation --folder FOLDER --only cells \
        --rows 1e8 --neighbors 1585

Fits on 1, 2 and 4 workers of one thread say what the scheduler takes for a task, for each
that it names, and for each result that is fetched. Others, which those do not know, are
held against the model. Then it says what up to a billion rows take on up to 1,024 workers.
Seconds of a row are measured here, by the kernels of the package.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import pandas as pd
from scipy.optimize import nnls

from benchmarks import machine
from benchmarks.data import clusters
from benchmarks.observed_fits import Observed, observe
from benchmarks.planned_fits import PlannedFit, Shape, plan_fit
from benchmarks.report import markdown
from benchmarks.schedule import (
    Machine,
    Outcome,
    Rates,
    SchedulerCost,
    simulate,
    works,
)
from lpe_dask.search import MemoryEstimate, ProblemSize, SampledRows, choose_space
from lpe_dask.search.blocks.packing import _split
from lpe_dask.search.blocks.spool_blocks import SpoolFolder
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.plan import Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.tables import float_rows, nominal_survey
from lpe_dask.tables.row_survey import RowSurveyor
from lpe_dask.tasks import Workers

_MIB = 2**20
_BLOCK, _STORED = "lpe-dask.block-rows", ("lpe-dask.statistics-in-memory", 0)

#: Rows of the table that rates are measured on, and of the parts of it that are timed.
RATED_ROWS, PART_ROWS = 2**20, 2**17

#: Tiles of queries that are searched for, to say what a query takes.
RATED_TILES = 64


def in_memory(
    n: int, d: int, n_workers: int, n_partitions: int, block_rows: int | None = None
) -> Shape:
    """Return a shape whose blocks are in memory."""
    settings = () if block_rows is None else ((_BLOCK, block_rows),)
    return Shape(n, d, n_workers, 4096 * _MIB, n_partitions, settings)


def least_memory(
    n: int, d: int, n_workers: int, n_partitions: int, block_rows: int
) -> Shape:
    """Return a shape with blocks and statistics in a spool, and the least memory."""
    size = ProblemSize(
        n, d, Statistic(20, None), partition_rows=-(-n // n_partitions), reads_frame=True,
        block_rows=block_rows,
    )  # fmt: skip
    limits = range(Workers.MIN_BYTES, 4096 * _MIB, _MIB)
    fits = (
        limit for limit in limits
        if MemoryEstimate.of(size, Workers(n_workers, 1, limit)).fits(limit)
    )  # fmt: skip
    settings = ((_BLOCK, block_rows), _STORED)
    return Shape(n, d, n_workers, next(fits), n_partitions, settings)


#: What the scheduler's costs are fitted to, and what they are held against.
FITTED = (
    in_memory(200_000, 8, 2, 20, 1024), in_memory(100_000, 8, 1, 20, 4096),
    in_memory(100_000, 4, 2, 100, 2048), in_memory(60_000, 8, 4, 60, 1024),
    in_memory(50_000, 4, 4, 300, 4096), in_memory(200_000, 8, 1, 100, 8192),
    in_memory(200_000, 8, 4, 8), in_memory(100_000, 16, 2, 40, 2048),
    in_memory(80_000, 4, 4, 200, 1024), in_memory(150_000, 8, 4, 50, 2048),
    in_memory(120_000, 8, 1, 60, 4096), in_memory(250_000, 4, 2, 30),
    in_memory(90_000, 16, 4, 90, 2048), in_memory(160_000, 12, 2, 25, 8192),
    in_memory(70_000, 8, 4, 140, 1024), least_memory(300_000, 16, 2, 30, 8192),
    least_memory(300_000, 16, 4, 150, 16_384), least_memory(300_000, 16, 1, 60, 16_384),
    least_memory(400_000, 16, 2, 100, 8192), least_memory(300_000, 16, 4, 24, 4096),
    least_memory(250_000, 16, 1, 40, 16_384), least_memory(350_000, 8, 2, 70, 8192),
    least_memory(280_000, 16, 4, 48, 8192),
)  # fmt: skip
HELD_OUT = (
    in_memory(140_000, 4, 1, 70, 4096), in_memory(220_000, 12, 2, 44),
    in_memory(110_000, 8, 4, 110, 2048), in_memory(180_000, 16, 2, 36, 4096),
    in_memory(65_000, 12, 4, 130, 1024), least_memory(270_000, 8, 1, 54, 8192),
    least_memory(320_000, 12, 2, 64, 16_384), least_memory(260_000, 8, 4, 52, 4096),
)  # fmt: skip

#: The cells of the page: columns, rows, workers.
CELLS = tuple(product((16, 8), (10**8, 10**9, 10**7), (16, 64, 256, 1024)))

#: Rows of a partition of theirs.
PARTITION_ROWS = 500_000


def measure_rates(shape: Shape) -> Rates:
    """Return what a row of a shape takes of one thread of this processor."""
    n, d = shape.n_rows, shape.n_features
    rows = clusters(min(n, RATED_ROWS), d)
    part = rows[:PART_ROWS]
    size = ProblemSize(n, d, Statistic(shape.n_neighbors, None))
    plan = MemoryEstimate.of(size, shape.workers).plan
    space = choose_space(rows[:16_384], Preparation(), plan, "pruned")
    points = space.basis.points(rows[:16_384])
    entered = [(space, learn_regions(points, n_regions)) for n_regions in (8, 72)]
    of_split = [_seconds(partial(_split, part, 0, given, None)) for given in entered]
    box = max(0.0, (of_split[1] - of_split[0]) / 64 / len(part))
    cost = SampledRows.of(rows, space, size).cost(n, n_tiles=RATED_TILES)
    held = space.pack(part, np.arange(len(part)))
    n_bytes = held.block.__sizeof__()
    surveyor = RowSurveyor(nominal_survey.n_sampled(100), (), False, False, None)
    with TemporaryDirectory() as name:
        path, bare = f"{name}/rows.parquet", f"{name}/bare.parquet"
        names = [f"x{k}" for k in range(d)]
        pd.DataFrame(part, columns=names).to_parquet(path)
        pd.DataFrame(part[:1], columns=names).to_parquet(bare)
        folder = SpoolFolder(name)
        handle = folder.write_block(held)
        return Rates(
            read=_seconds(lambda: float_rows(pd.read_parquet(path))) / len(part),
            survey=_seconds(lambda: surveyor.of(part)) / len(part),
            copy=_seconds(part.copy) / len(part),
            prepare=max(0.0, of_split[0] / len(part) - 8 * box),
            box=box,
            pack=cost.pack_seconds,
            query=cost.seconds,
            write=_seconds(lambda: folder.write_block(held)) / n_bytes,
            load=_seconds(handle.load) / n_bytes,
            small=1e-3,
            block_bytes=n_bytes / len(part),
            file_bytes=Path(path).stat().st_size / len(part),
            footer_bytes=Path(bare).stat().st_size,
        )


def _seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the processor seconds of the fastest of some repeats."""
    found = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def _terms(fit: PlannedFit, outcome: Outcome, seen: Observed) -> list[float]:
    """Return what the scheduler's seconds are a sum of; see `SchedulerCost`."""
    fetched, n_phases = outcome.transfers, len(fit.phases)
    return [fit.n_tasks, fit.n_named, fetched, n_phases, seen.wall_seconds]


_FREE = SchedulerCost(0, 0, 0, 0, 0)


def fitted_cost(
    cases: Sequence[tuple[PlannedFit, Outcome, Observed]],
) -> SchedulerCost:
    """Return the costs by which the model is off the least, in proportion."""
    terms = np.array([_terms(*case) for case in cases])
    seconds = np.array([seen.scheduler_seconds for *_, seen in cases])
    found, _ = nnls(terms / seconds[:, None], np.ones(len(seconds)))
    return SchedulerCost(*found.tolist())


def compared(
    shapes: Sequence[Shape], folder: Path, repeats: int, rates: dict[int, Rates]
) -> list[tuple[PlannedFit, Outcome, Observed]]:
    """Return for each shape its plan, the model without a scheduler, and what it took.

    What was observed before is in the folder, and is not observed again.
    """
    found, path = [], folder / "observed.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for shape in shapes:
        click.echo(repr(shape), err=True)
        fit = plan_fit(shape)
        if shape.n_features not in rates:
            rates[shape.n_features] = measure_rates(replace(shape, n_rows=10**6))
        outcome = simulate(fit, works(fit, rates[shape.n_features]), _FREE)
        if repr(shape) not in known:
            known[repr(shape)] = asdict(observe(shape, folder / "tables", repeats))
            path.write_text(json.dumps(known, indent=1) + "\n")
        seen = Observed(**known[repr(shape)])
        found.append((fit, outcome, seen))
    return found


def check_table(
    cases: Sequence[tuple[PlannedFit, Outcome, Observed]], cost: SchedulerCost
) -> str:
    """Return how right the model is, a line each fit."""
    lines = []
    costs = np.array(list(asdict(cost).values()))
    for fit, outcome, seen in cases:
        shape, expected = fit.shape, float(costs @ _terms(fit, outcome, seen))
        place = "spool" if fit.plan.is_spooled else "memory"
        moved = outcome.moved_bytes
        lines.append([
            f"{shape.n_rows:,} x {shape.n_features}", str(shape.n_workers), place,
            f"{fit.n_tasks:,} / {seen.tasks:,.0f}", f"{fit.n_named:,}",
            f"{outcome.transfers + outcome.gathered:,} / {seen.transfers:,.0f}",
            f"{expected:.2f} / {seen.scheduler_seconds:.2f}",
            f"{expected / seen.scheduler_seconds:.2f}",
            f"{moved / _MIB:.1f} / {seen.moved_bytes / _MIB:.1f}",
            f"{moved / seen.moved_bytes:.2f}",
            f"{outcome.busy:.1f} / {seen.worker_seconds:.1f}",
        ])  # fmt: skip
    head = [
        "rows", "workers", "blocks in", "tasks", "named", "fetched", "scheduler, s",
        "ratio", "moved, MiB", "ratio", "workers, s",
    ]  # fmt: skip
    return markdown(head, lines)


def cell(
    shape: Shape, rates: Rates, cost: SchedulerCost, on: Machine
) -> tuple[PlannedFit, Outcome]:
    """Return the plan and the model of a cell; workers have the least memory that fits."""
    limit = 4
    while True:
        n_partitions = -(-shape.n_rows // PARTITION_ROWS)
        shape = replace(shape, memory_limit=limit * 2**30, n_partitions=n_partitions)
        try:
            fit = plan_fit(shape)
        except MemoryError:
            limit *= 2
            continue
        return fit, simulate(fit, works(fit, rates), cost, on)


def bottleneck(outcome: Outcome) -> str:
    """Return what most of the time goes to."""
    whole = outcome.n_workers * outcome.seconds
    shares = {
        "kernels": outcome.busy, "storage": outcome.storage, "network": outcome.network
    }  # fmt: skip
    shares["idle"] = whole - sum(shares.values())
    name = max(shares, key=shares.__getitem__)
    if name == "idle" and outcome.scheduler_share > 0.5:
        name = "scheduler"
    return f"{name} {shares[name] / whole:.0%}" if name in shares else name


def cell_line(fit: PlannedFit, outcome: Outcome) -> list[str]:
    """Return a line of the table of cells."""
    shape = fit.shape
    top = ", ".join(
        f"{kind} {seconds / sum(outcome.by_kind.values()):.0%}"
        for kind, seconds in outcome.by_kind.most_common(2)
    )
    return [
        f"{shape.n_rows:.0e} x {shape.n_features}".replace("e+0", "e"),
        f"{shape.n_workers:,}", f"{shape.memory_limit >> 30} GiB",
        "spool" if fit.plan.is_spooled else "memory", f"{fit.n_tasks:,}",
        f"{fit.n_named:,}", f"{fit.graph_bytes / _MIB:.1f}",
        f"{fit.client_bytes / _MIB:,.0f}", f"{outcome.requests:.1e}".replace("e+0", "e"),
        f"{outcome.read_bytes / 2**40:.2f}",
        f"{outcome.scheduler_share:.0%}", f"{outcome.efficiency:.0%}",
        f"{outcome.seconds / 3600:.3g}", f"{outcome.core_hours:,.3g}",
        bottleneck(outcome), top,
    ]  # fmt: skip


CELL_HEAD = [
    "rows", "workers", "memory", "blocks in", "tasks", "named", "graph, MiB", "client, MiB",
    "requests", "read, TiB", "scheduler", "efficiency", "hours", "core-hours", "bottleneck",
    "most of it",
]  # fmt: skip


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--repeats", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--only", type=click.Choice(["checks", "cells"]))
@click.option("--rows", type=float, default=1e9, help="Cells of up to so many.")
@click.option("--neighbors", default=20, show_default=True, help="K of the cells.")
def main(folder: Path, repeats: int, only: str | None, rows: float, neighbors: int) -> None:
    """Fit the model of a schedule to small fits, check it, and say what large ones take."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scheduler.json"
    described = machine.describe()
    load = f"load average {os.getloadavg()[1]:.1f}"
    click.echo(f"{described['processor']}, {described['cores']}; {load}\n")
    if only != "cells":
        rates: dict[int, Rates] = {}
        known = compared(FITTED, folder, repeats, rates)
        cost = fitted_cost(known)
        path.write_text(json.dumps(asdict(cost)) + "\n")
        click.echo(f"{cost}\n\nfitted to\n\n{check_table(known, cost)}")
        held_out = compared(HELD_OUT, folder, repeats, rates)
        click.echo(f"held against\n\n{check_table(held_out, cost)}")
    if only != "checks":
        cost = SchedulerCost(**json.loads(path.read_text()))
        click.echo(markdown(CELL_HEAD, []), nl=False)
        for d, n, n_workers in CELLS:
            if n > rows:
                continue
            shape = Shape(n, d, n_workers, 2**34, 1, n_neighbors=neighbors)
            if n_workers == CELLS[0][2]:
                of_rows = measure_rates(shape)
                click.echo(f"{n} x {d}: {of_rows}", err=True)
            found = cell(shape, of_rows, cost, Machine())
            click.echo(f"| {' | '.join(cell_line(*found))} |")


if __name__ == "__main__":
    main()
