"""A model of the schedule of a fit: planned tasks, on workers and a scheduler.

    PlannedFit --tasks, what they name--+
    Rates ------seconds of a row--------+--> events --> Outcome: seconds, bytes
    Machine ----workers, disks, faults--+

The scheduler does one thing after another, a worker one task at a time. A task begins once
the scheduler has sent it, and what it names is on its worker; a lost worker's results are
made again, if anything needs them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import dask
import numpy as np
from numpy.typing import NDArray

from benchmarks.data import clusters
from benchmarks.planned_fits import PlannedFit, kind_of
from lpe_dask import LPE
from lpe_dask.search.blocks.merged_pieces import run_edges
from lpe_dask.search.plan import SUMMED_PIECES
from lpe_dask.tables.nominal_survey import n_sampled

#: Rows among which radii are measured, and how many blocks are looked at.
RADIUS_ROWS, LOOKED_BLOCKS = 2**19, 24

#: Bytes that Python reads at least for each part of a file, and parts of one of pieces.
BUFFER_BYTES, PARTS = 4096, 4

#: Bytes at the end of a Parquet file that PyArrow reads to find the rest.
FOOTER_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Rates:
    """What a row takes of one thread, in seconds, with so many columns.

    Attributes
    ----------
    read, survey, copy : float
        Of a row of a Parquet file; to be looked at; to be copied to another chunk.
    prepare, box : float
        To be prepared and sorted by region, and for each region.
    pack : float
        To be put into a block.
    query : float
        To be searched for among all rows.
    write, load : float
        Of a byte to and from the spool, of the processor alone.
    small : float
        Of any task, beside.
    block_bytes, file_bytes : float
        Of a row in a block, and in Parquet.
    footer_bytes : float
        Of a Parquet file, beside its rows.
    """

    read: float
    survey: float
    copy: float
    prepare: float
    box: float
    pack: float
    query: float
    write: float
    load: float
    small: float
    block_bytes: float
    file_bytes: float
    footer_bytes: float


@dataclass(frozen=True, slots=True)
class SchedulerCost:
    """Seconds of the scheduler's processor.

    Attributes
    ----------
    task, named, transfer : float
        For a task, for each task that one names, and for each result that is fetched.
    phase : float
        For a compute.
    second : float
        For a second, whatever is done. (What heartbeats of one or four workers take could
        not be told from noise.)
    """

    task: float
    named: float
    transfer: float
    phase: float
    second: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What is assumed of a cluster: nothing here is measured.

    Attributes
    ----------
    network : float
        Bytes that a worker fetches in a second.
    disk, disks : float
        Bytes that a worker reads or writes in a second, and all of them together.
    request : float
        Seconds until a file answers.
    spread : float
        Deviation of the logarithm of what equal tasks take.
    straggler_share, straggler_factor : float
        Tasks that take so many times as long.
    losses : float
        Workers lost in an hour of one.
    restart : float
        Seconds until another one is there.
    """

    network: float = 1.25e9
    disk: float = 250e6
    disks: float = 10e9
    request: float = 1e-3
    spread: float = 0.1
    straggler_share: float = 0.01
    straggler_factor: float = 3.0
    losses: float = 0.0
    restart: float = 30.0


class Work(NamedTuple):
    """What a task of some kind takes, and gives.

    Attributes
    ----------
    seconds : float
        Of a processor.
    read, written : float
        Bytes from and to files.
    requests : float
        Files, or parts of files, one after another.
    given : float
        Bytes of the result.
    """

    seconds: float = 0.0
    read: float = 0.0
    written: float = 0.0
    requests: float = 0.0
    given: float = 200.0


@dataclass(slots=True)
class Outcome:
    """What a fit takes.

    Attributes
    ----------
    seconds : float
        From its begin to its end.
    busy : float
        Of all workers' processors.
    storage, network : float
        Seconds that all workers wait for files, and for results of others.
    scheduler : float
        Of the scheduler's processor.
    transfers, transfer_bytes : float
        Results that workers fetch from each other.
    gathered, gathered_bytes : float
        Results that the client fetches.
    read_bytes, written_bytes, requests : float
        From and to files.
    done, lost : int
        Tasks that were done, each time, and results that were lost with their worker.
    by_kind : Counter
        Seconds of workers by kind of task, with what they wait for.
    """

    n_workers: int
    seconds: float = 0.0
    busy: float = 0.0
    storage: float = 0.0
    network: float = 0.0
    scheduler: float = 0.0
    transfers: int = 0
    transfer_bytes: float = 0.0
    gathered: int = 0
    gathered_bytes: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    requests: float = 0.0
    done: int = 0
    lost: int = 0
    by_kind: Counter[str] | None = None

    @property
    def moved_bytes(self) -> float:
        """Bytes that workers send, and read and write in files."""
        sent = self.transfer_bytes + self.gathered_bytes
        return sent + self.read_bytes + self.written_bytes

    @property
    def core_hours(self) -> float:
        """Hours that workers are there for."""
        return self.n_workers * self.seconds / 3600

    @property
    def scheduler_share(self) -> float:
        """Part of the time that the scheduler is busy."""
        return self.scheduler / self.seconds

    @property
    def efficiency(self) -> float:
        """Part of their time in which workers compute."""
        return self.busy / (self.n_workers * self.seconds)


def blocks_read(fit: PlannedFit) -> float:
    """Return about how many blocks a pass of a join reads: those within its radii.

    By rows of some blocks and the boxes of all; radii are those of so many rows of the law,
    measured among fewer and brought to all by the volume.
    """
    plan, shape = fit.plan, fit.shape
    if fit.boxes is None:
        return float(plan.n_blocks)
    n_known, n_neighbors = (
        min(shape.n_rows, RADIUS_ROWS), plan.shape.statistic.n_neighbors or 1
    )  # fmt: skip
    rows = clusters(n_known, shape.n_features).astype(np.float64)
    points, (lows, highs) = fit.space.basis.points(rows), fit.boxes
    # The basis turns rows, and makes all distances smaller by one factor.
    factor = np.linalg.norm(points[1] - points[0]) / np.linalg.norm(rows[1] - rows[0])
    radii = factor * _radii(n_known, shape.n_features, n_neighbors)
    radii *= (n_known / shape.n_rows) ** (1 / shape.n_features)
    rng = np.random.default_rng(0)
    of_region = -(-fit.region_rows // plan.largest_block_rows)
    n_read, n_passes = 0, 0
    for region in rng.permutation(np.flatnonzero(of_region))[:LOOKED_BLOCKS].tolist():
        own = np.flatnonzero(
            ((points >= lows[region]) & (points <= highs[region])).all(axis=1)
        )
        if len(own) == 0:
            continue
        # A share is a part of the block where rows are near, too.
        pass_rows = min(plan.pass_rows, plan.task_rows)
        n_shares = -(-fit.region_rows[region] // (of_region[region] * pass_rows))
        axis = int(points[own].var(axis=0).argmax())
        in_order = own[np.argsort(points[own, axis])]
        for part in np.array_split(in_order, min(n_shares, len(own)))[:4]:
            for i in np.flatnonzero(of_region).tolist():
                gaps = points[part] - np.clip(points[part], lows[i], highs[i])
                if (np.einsum("ij,ij->i", gaps, gaps) <= radii[part] ** 2).any():
                    n_read += int(of_region[i])
            n_passes += 1
    return n_read / max(1, n_passes)


@cache
def _radii(n_rows: int, n_features: int, n_neighbors: int) -> NDArray[np.float64]:
    """Return the distance of each row of the law to its K-th nearest other one."""
    model = LPE(n_neighbors=n_neighbors, calibration="loo", algorithm="pruned")
    with dask.config.set(scheduler="threads"):
        found = model.fit(clusters(n_rows, n_features)).statistic_
    return np.asarray(found)


def works(fit: PlannedFit, rates: Rates) -> dict[str, Work]:
    """Return what a task of each kind takes."""
    plan, shape = fit.plan, fit.shape
    n, d, spooled = shape.n_rows, shape.n_features, plan.is_spooled
    counts = Counter(kind_of(key) for phase in fit.phases for key in phase.tasks)
    n_regions = 1 if fit.boxes is None else len(fit.boxes[0])
    rows = {kind: n / count for kind, count in counts.items()}
    rows["read"] = n / shape.n_partitions
    n_pieces, n_blocks = counts["split"], counts["pack"]
    piece, block = 4 * d + 8, rates.block_bytes
    # How many passes, and how many rows of a task: those of the plan.
    n_passes = math.ceil(rows["join"] / plan.pass_rows)
    n_read = n_passes * blocks_read(fit) + 1 if spooled else 0.0
    block_of = n / n_blocks * block
    handles = n_blocks * (16 * d + 200)
    of_file = rows["read"] * rates.file_bytes + rates.footer_bytes
    of_sample = n_sampled(shape.n_partitions)
    done: dict[str, Work] = {
        "read": Work(rows["read"] * rates.read, of_file + min(of_file, FOOTER_BYTES), 0, 1,
                     4 * d * rows["read"]),
        "survey": Work(rows["read"] * rates.survey, given=500 + 4 * d * of_sample),
        "join": Work(rows["join"] * rates.query + n_read * block_of * rates.load,
                     n_read * block_of, 0, n_read, 16 * rows["join"]),
        "blocks": Work(given=handles), "pieces": Work(given=200 * n_pieces),
    }  # fmt: skip
    if n_pieces:
        kept = rows["split"] * piece
        done["chunk"] = Work(rows["chunk"] * rates.copy, given=4 * d * rows["chunk"])
        between = n * 4 * d / max(1, counts["rechunk-split"] + shape.n_partitions)
        done["rechunk-split"] = Work(given=between)
        seconds = rows["split"] * (rates.prepare + n_regions * rates.box)
        split, pack = Work(seconds, given=kept), Work(rows["pack"] * rates.pack,
                                                      given=block_of)  # fmt: skip
        if spooled:
            split = Work(seconds + kept * rates.write, 0, kept, 1)
            n_read_pieces = float(n_pieces)
            if counts["merge-pieces"]:
                n_runs = len(run_edges(n_regions)) - 1
                n_read_pieces = counts["merge-pieces"] / n_runs
                kept = rows["merge-pieces"] * piece
                seconds = rows["merge-pieces"] * rates.prepare
                done["merge-pieces"] = Work(
                    seconds + kept * (rates.load + rates.write), kept, kept,
                    PARTS * n_pieces * n_runs / counts["merge-pieces"] + 1,
                )  # fmt: skip
            pack = Work(
                pack.seconds + block_of * rates.write,
                rows["pack"] * piece + PARTS * BUFFER_BYTES * n_read_pieces, block_of,
                PARTS * n_read_pieces + 1, 200 + 16 * d,
            )  # fmt: skip
            done["sizes"] = Work(0, 0, 0, min(SUMMED_PIECES, n_pieces))
        done |= {"split": split, "pack": pack}
    else:
        done["pack"] = Work(rows["pack"] * rates.pack, given=block_of)
    if counts["write-measured"]:
        files = counts["write-measured"] / counts["combine"]
        done["write-measured"] = Work(0, 0, 16 * rows["write-measured"], 1)
        for kind, read, requests in (
            ("combine", 16, files), ("place", 16, 3 * counts["combine"]),
            ("sort", 8, rows["sort"] / 2**18), ("merge", 8, counts["sort"]),
        ):  # fmt: skip
            size = rows[kind]
            done[kind] = Work(
                size * 200e-9, read * size, read * size, requests + read * size / 2**21
            )
    return {
        kind: (of := done.get(kind, Work()))._replace(seconds=of.seconds + rates.small)
        for kind in counts
    }


def simulate(
    fit: PlannedFit,
    work: dict[str, Work],
    cost: SchedulerCost,
    machine: Machine = Machine(),
    seed: int = 0,
) -> Outcome:
    """Return what a fit takes on a machine."""
    return _Simulation(fit, work, cost, machine, seed).outcome()


class _Simulation:
    def __init__(
        self,
        fit: PlannedFit,
        work: dict[str, Work],
        cost: SchedulerCost,
        machine: Machine,
        seed: int,
    ) -> None:
        self._fit, self._work, self._cost, self._machine = fit, work, cost, machine
        self._n = fit.shape.n_workers
        self._rng = np.random.default_rng(seed)
        self._disk = min(machine.disk, machine.disks / self._n)
        self._names: dict[Any, list[Any]] = {}  # of all phases
        self._holders: dict[Any, set[int]] = {}  # results that are there, and where
        self._of_worker: list[set[Any]] = [set() for _ in range(self._n)]
        self._now = self._free = 0.0  # of workers, and of the scheduler
        self._out = Outcome(self._n, by_kind=Counter())
        rate = machine.losses * self._n / 3600
        self._rate = rate
        self._next_loss = self._rng.exponential(1 / rate) if rate else math.inf

    def outcome(self) -> Outcome:
        for phase in self._fit.phases:
            self._names |= phase.tasks
            self._scheduler(self._cost.phase)
            self._run(phase)
            if not phase.stays:  # what was asked for is with the client
                for key in phase.tasks:
                    if key in phase.asked:
                        self._out.gathered += 1
                        self._out.gathered_bytes += self._work[kind_of(key)].given
                        self._forget(key)
        self._out.seconds = max(self._now, self._free)
        self._out.scheduler += self._cost.second * self._out.seconds
        return self._out

    def _scheduler(self, seconds: float) -> float:
        """Return when the scheduler has done something more."""
        self._free = max(self._free, self._now) + seconds
        self._out.scheduler += seconds
        return self._free

    def _run(self, phase: Any) -> None:
        left: dict[Any, int] = {}
        users: dict[Any, list[Any]] = defaultdict(list)
        order = {key: i for i, key in enumerate(phase.tasks)}
        ready: list[tuple[int, Any]] = []

        def enter(key: Any) -> None:
            """Take a task in, with those before it whose results are not there."""
            stack = [key]
            while stack:
                key = stack.pop()
                if key in left:
                    continue
                missing = [of for of in self._names[key] if of not in self._holders]
                order.setdefault(key, len(order))
                left[key] = len(missing)
                for of in missing:
                    users[of].append(key)
                    stack.append(of)
                if not missing:
                    heapq.heappush(ready, (order[key], key))

        pending = {key for key in phase.tasks if key in phase.asked}
        for key in phase.tasks:
            if key in pending:
                enter(key)
        idle, events = set(range(self._n)), []
        running: dict[int, Any] = {}
        finished: set[Any] = set()
        named_by = Counter(of for names in phase.tasks.values() for of in names)
        while pending:
            while idle and ready:
                _, key = heapq.heappop(ready)
                if any(of not in self._holders for of in self._names[key]):
                    del left[key]  # lost meanwhile
                    enter(key)
                    continue
                worker = self._choose(key, idle)
                idle.discard(worker)
                running[worker] = key
                heapq.heappush(events, (self._start(key, worker), worker, key))
            if not events:
                raise AssertionError("tasks wait for nothing")
            when, worker, key = heapq.heappop(events)
            if self._next_loss < when:
                heapq.heappush(events, (when, worker, key))
                self._now = self._next_loss
                self._next_loss += self._rng.exponential(1 / self._rate)
                lost = int(self._rng.integers(self._n))
                self._lose(lost, running, idle, events, left, ready, order)
                continue
            self._now = when
            if key is None:  # a worker is there again
                idle.add(worker)
                continue
            if running.get(worker) != key:
                continue
            del running[worker]
            idle.add(worker)
            del left[key]
            self._hold(key, worker)
            self._out.done += 1
            pending.discard(key)
            for user in users.pop(key, ()):
                if user in left:
                    left[user] -= 1
                    if left[user] == 0:
                        heapq.heappush(ready, (order[user], user))
            if key in finished:
                continue
            finished.add(key)
            for of in self._names[key]:
                named_by[of] -= 1
                if named_by[of] == 0 and of in phase.tasks and of not in phase.asked:
                    self._forget(of)

    def _choose(self, key: Any, idle: set[int]) -> int:
        """Return the idle worker that has most of what a task names."""
        names = self._names[key]
        if names and len(names) <= 64:
            held: Counter[int] = Counter()
            for of in names:
                for worker in self._holders[of]:
                    if worker in idle:
                        held[worker] += self._work[kind_of(of)].given
            if held:
                return max(held, key=lambda of: (held[of], -of))
        return min(idle)

    def _start(self, key: Any, worker: int) -> float:
        """Return when a task is done that is sent to a worker now."""
        out, machine, work = self._out, self._machine, self._work[kind_of(key)]
        fetched = [of for of in self._names[key] if worker not in self._holders[of]]
        n_bytes = sum(self._work[kind_of(of)].given for of in fetched)
        for of in fetched:
            self._hold(of, worker)
        cost = self._cost
        sent = self._scheduler(
            cost.task + cost.named * len(self._names[key]) + cost.transfer * len(fetched)
        )
        factor = math.exp(machine.spread * self._rng.standard_normal())
        if self._rng.random() < machine.straggler_share:
            factor *= machine.straggler_factor
        network = n_bytes / machine.network
        storage = (work.read + work.written) / self._disk + work.requests * machine.request
        out.transfers += len(fetched)
        out.transfer_bytes += n_bytes
        out.read_bytes += work.read
        out.written_bytes += work.written
        out.requests += work.requests
        out.busy += work.seconds
        out.storage += storage
        out.network += network
        taken = factor * (work.seconds + storage) + network
        out.by_kind[kind_of(key)] += taken
        return sent + taken

    def _hold(self, key: Any, worker: int) -> None:
        self._holders.setdefault(key, set()).add(worker)
        self._of_worker[worker].add(key)

    def _forget(self, key: Any) -> None:
        for worker in self._holders.pop(key, ()):
            self._of_worker[worker].discard(key)

    def _lose(
        self,
        worker: int,
        running: dict[int, Any],
        idle: set[int],
        events: list[Any],
        left: dict[Any, int],
        ready: list[Any],
        order: dict[Any, int],
    ) -> None:
        """Lose a worker with its results, and begin another one in its place."""
        if worker not in idle and worker not in running:
            return  # it is not there yet
        for key in self._of_worker[worker]:
            self._holders[key].discard(worker)
            if not self._holders[key]:
                del self._holders[key]
                self._out.lost += 1
        self._of_worker[worker] = set()
        idle.discard(worker)
        key = running.pop(worker, None)
        if key is not None:
            heapq.heappush(ready, (order[key], key))
        heapq.heappush(events, (self._now + self._machine.restart, worker, None))
