"""A fit without workers: all that this process does for it, and all graphs that it sends.

    LPE.fit --its own code--> graph of a compute --> Phase: tasks, and what each one names
                              results like those that workers send <--

Nothing of the plan is restated: workers and results are made up, all else is the package.
So tasks are counted, and the memory of the client is measured, for any number of rows.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from pkgutil import walk_packages
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import collections_to_expr
from dask.delayed import Delayed
from distributed.protocol import serialize, to_serialize
from numpy.typing import NDArray

import lpe_dask.model
import lpe_dask.search
import lpe_dask.tables
import lpe_dask.tasks
from benchmarks.data import clusters
from lpe_dask import LPE
from lpe_dask.model.measured_vectors import MeasuredFile
from lpe_dask.model.sorted_vectors import PAGE, Run
from lpe_dask.search import reference
from lpe_dask.search.algorithm_selection import choose_space
from lpe_dask.search.blocks.merged_pieces import run_edges
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.blocks.spool_blocks import SpooledBlock, SpooledPieces
from lpe_dask.search.locality import Boxes, by_box, learn_regions
from lpe_dask.search.plan import SearchPlan, share_of
from lpe_dask.storage import SpooledNumbers, VectorPart, vectors
from lpe_dask.tables import nominal_survey
from lpe_dask.tables.row_survey import RowSurveyor
from lpe_dask.tasks import Workers, call_scope, computing, dask_internals, shared_storage
from lpe_dask.tasks.dask_internals import dependencies_of, task_specs
from lpe_dask.tasks.spool_cleaner import cleaner_of_process
from lpe_dask.tasks.transfer import identity

#: Rows of the sample that says how many rows each region has.
SIZING_ROWS = 100_000

#: Where files would be: as long a name as that of a spool.
_FOLDER = f"/tmp/lpe-spool-{32 * '0'}/blocks-{32 * '0'}"


@dataclass(frozen=True, slots=True)
class Shape:
    """A fit: rows of `data.clusters` in partitions of a frame, each against all others.

    Attributes
    ----------
    n_rows, n_features, n_workers : int
        Workers have one thread.
    memory_limit : int
        Bytes of each.
    n_partitions : int
    settings : tuple of tuple of str and object
        Configuration keys of the package, and their values.
    n_neighbors : int
        K.
    """

    n_rows: int
    n_features: int
    n_workers: int
    memory_limit: int
    n_partitions: int
    settings: tuple[tuple[str, Any], ...] = ()
    n_neighbors: int = 20

    @property
    def workers(self) -> Workers:
        """The workers."""
        return Workers(self.n_workers, 1, self.memory_limit, is_cluster=True)


@dataclass(frozen=True, slots=True)
class Phase:
    """What one compute has workers do.

    Attributes
    ----------
    tasks : dict
        Key -> the keys that it names; in the order of the graph, without tasks whose
        results are there from an earlier phase.
    asked : frozenset
        The keys whose results are wanted.
    stays : bool
        Whether these stay with the workers.
    n_bytes : int
        Of the graph that is sent.
    """

    tasks: dict[Any, list[Any]]
    asked: frozenset[Any]
    stays: bool
    n_bytes: int

    @property
    def n_named(self) -> int:
        """How often a task names another one."""
        return sum(map(len, self.tasks.values()))


@dataclass(slots=True)
class PlannedFit:
    """What a fit has workers do, and what it takes of the client.

    Attributes
    ----------
    shape : Shape
    phases : list of Phase
    plan : SearchPlan
        Of the search.
    space : Space
    boxes : tuple of ndarray
        Of the regions that blocks are made of; None for one block.
    region_rows : ndarray of shape (n_regions,)
    client_bytes : int
        Most bytes of arrays and objects that this process had for it at a time.
    """

    shape: Shape
    phases: list[Phase] = field(default_factory=list)
    plan: SearchPlan | None = None
    space: Space | None = None
    boxes: Boxes | None = None
    region_rows: NDArray[np.int64] | None = None
    client_bytes: int = 0

    def note_client_bytes(self) -> None:
        """Take the bytes that were most since the last time, if they are."""
        self.client_bytes = max(self.client_bytes, tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    @property
    def n_tasks(self) -> int:
        """All tasks."""
        return sum(len(phase.tasks) for phase in self.phases)

    @property
    def n_named(self) -> int:
        """How often a task names another one."""
        return sum(phase.n_named for phase in self.phases)

    @property
    def graph_bytes(self) -> int:
        """Bytes of the largest graph."""
        return max(phase.n_bytes for phase in self.phases)


class _Client:
    """Stands for the client of a cluster."""


@dataclass(frozen=True, slots=True)
class _Future:
    """Stands for a result that stays with a worker."""

    client: _Client
    key: Any
    status: str = "finished"


class _Numbers(SpooledNumbers):
    """Stands for a file of statistics."""

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        return np.zeros(vectors.FILE_NUMBERS)[start:stop]


def plan_fit(shape: Shape) -> PlannedFit:
    """Return what a fit has workers do, by running all of it but the tasks.

    Raises
    ------
    MemoryError
        If the package does not find that workers can hold it.
    """
    fit = PlannedFit(shape)
    names = [f"x{k}" for k in range(shape.n_features)]
    meta = pd.DataFrame(np.empty((0, shape.n_features), np.float32), columns=names)
    planner = _Planner(fit)
    for package in (lpe_dask.model, lpe_dask.search, lpe_dask.tables, lpe_dask.tasks):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)  # what was imported later would keep the answers
    with dask.config.set(dict(shape.settings)), planner.answering():
        model = LPE(n_neighbors=shape.n_neighbors, calibration="loo", algorithm="pruned")
        tracemalloc.start()
        try:
            model.fit(dd.from_map(_never, range(shape.n_partitions), meta=meta))
            fit.note_client_bytes()
        finally:
            # Python 3.11 ends if another thread takes memory at that moment.
            with cleaner_of_process()._removing:
                tracemalloc.stop()
        fit.plan = model._fitted.reference._plan(wait=True)
    return fit


def _never(i: int) -> pd.DataFrame:
    raise AssertionError("no task is run")


class _Planner:
    """Answers computes with what workers would send, and keeps their graphs."""

    def __init__(self, fit: PlannedFit) -> None:
        self._fit, self._client, shape = fit, _Client(), fit.shape
        self._rows = clusters(max(SIZING_ROWS, 16 * shape.n_partitions), shape.n_features)
        self._kept: set[Any] = set()
        self._specs: dict[Any, Any] = {}
        self._n_of: dict[str, int] = {}
        self._is_counted, self._n_pieces = False, 0
        self._runs: dict[int, int] = {}  # by the first piece

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let everything in the package that computes ask here."""
        own = {"compute": (computing.compute, self._compute),
               "persist": (call_scope.persist, self._persist)}  # fmt: skip
        known = (
            (Workers, "active", lambda *, wait=False: self._fit.shape.workers),
            (dask_internals, "computing_client", lambda: self._client),
            (shared_storage, "is_storage_shared", lambda client: True),
            (reference, "choose_space", self._choose_space),
            (reference, "learn_regions", self._learn_regions),
        )
        modules = [of for name, of in sys.modules.items() if name.startswith("lpe_dask")]
        with ExitStack() as stack:
            for module, (name, (real, ours)) in product(modules, own.items()):
                if vars(module).get(name) is real:
                    stack.enter_context(patch.object(module, name, ours))
            for place, name, value in known:
                stack.enter_context(patch.object(place, name, value))
            yield

    def _compute(
        self, *collections: Any, rows: Any = None, take: Callable[[Any], Any] = identity
    ) -> tuple[Any, ...]:
        self._record(collections, stays=False)
        self._n_of = Counter(kind_of(of.key) for of in collections)
        return tuple(take(self._answer(of.key)) for of in collections)

    def _persist(self, tasks: list[Delayed]) -> list[Delayed]:
        self._record(tasks, stays=True)
        return [Delayed(of.key, {of.key: _Future(self._client, of.key)}) for of in tasks]

    def _record(self, collections: Sequence[Any], *, stays: bool) -> None:
        # As `Client.compute` does.
        expression = collections_to_expr(collections).optimize()
        n_bytes = sum(map(len, serialize(to_serialize(expression))[1]))
        self._fit.note_client_bytes()
        # What follows is the scheduler's.
        specs = self._specs = task_specs(expression.__dask_graph__())
        asked = [of.key for of in collections]
        to_run, open_keys = {}, list(asked)
        while open_keys:
            key = open_keys.pop()
            if key not in to_run and key not in self._kept:
                to_run[key] = list(dependencies_of(specs[key]))
                open_keys += to_run[key]
        tasks = {key: to_run[key] for key in specs if key in to_run}
        if stays:
            self._kept.update(asked)
        self._fit.phases.append(Phase(tasks, frozenset(asked), stays, n_bytes))
        tracemalloc.reset_peak()

    def _choose_space(self, *arguments: Any) -> Space:
        self._fit.space = choose_space(*arguments)
        return self._fit.space

    def _learn_regions(self, points: NDArray[np.float64], n_regions: int) -> Boxes:
        """Learn regions, and count the rows of the law in them."""
        fit, regions = self._fit, learn_regions(points, n_regions)
        points = fit.space.basis.points(self._rows)
        order, starts = by_box(points, regions)
        ends = np.round(starts * (fit.shape.n_rows / len(points))).astype(np.int64)
        fit.region_rows, boxes = np.diff(ends), []
        for i, (low, high) in enumerate(zip(*regions, strict=True)):
            own = points[order[starts[i] : starts[i + 1]]]
            if len(own) > 1:
                # Rows reach farther than those of the sample, as tails of normal laws do.
                more = math.sqrt(math.log(fit.region_rows[i]) / math.log(len(own)))
                middle = np.median(own, axis=0)
                low = np.maximum(low, middle + more * (own.min(axis=0) - middle))
                high = np.minimum(high, middle + more * (own.max(axis=0) - middle))
            boxes.append((low, high))
        lows, highs = map(np.array, zip(*boxes, strict=True))
        fit.boxes = lows, highs
        return regions

    # What tasks would give: of which kind, and the how manyth of them.

    def _answer(self, key: Any) -> Any:
        kind, i = kind_of(key), int(str(key).rsplit("-", 1)[1])
        return getattr(self, f"_{kind.replace('-', '_')}")(i, key)

    def _own_rows(self, i: int, kind: str) -> slice:
        return share_of(self._fit.shape.n_rows, i, self._n_of[kind])

    def _survey(self, i: int, key: Any) -> Any:
        some = self._rows[share_of(len(self._rows), i, self._n_of["survey"])]
        which = self._own_rows(i, "survey")
        n_sampled = nominal_survey.n_sampled(self._n_of["survey"])
        found = RowSurveyor(n_sampled, (), False, False, None).of(some)
        return replace(found, n_rows=which.stop - which.start)

    def _split(self, i: int, key: Any) -> SpooledPieces:
        self._n_pieces = self._n_of["split"]
        return SpooledPieces(f"{_FOLDER}/pieces-{uuid4().hex}")

    def _sizes(self, i: int, key: Any) -> NDArray[np.int64]:
        region_rows, n_pieces = self._fit.region_rows, self._n_pieces
        _, start, stop, *edges = self._specs[key].args
        if edges:  # before pieces are merged: the rows of each run in each piece
            of_run = np.add.reduceat(region_rows, edges[0][:-1]) // n_pieces
            return np.tile(of_run, (min(stop, n_pieces) - start, 1))
        is_first = not self._is_counted  # they are added up
        self._is_counted = True
        return is_first * region_rows

    def _merge_pieces(self, i: int, key: Any) -> SpooledPieces:
        return SpooledPieces(f"{_FOLDER}/merged-{uuid4().hex}")

    def _pack(self, i: int, key: Any) -> SpooledBlock:
        some, region = self._specs[key].args[1:3]
        if some != slice(None):  # of pieces of a run, which has the regions from its first
            run = self._runs.setdefault(some.start, len(self._runs))
            region += run_edges(len(self._fit.region_rows))[run]
        ends = (of[region] for of in self._fit.boxes)
        return SpooledBlock(f"{_FOLDER}/block-{uuid4().hex}", *ends)

    def _join(self, i: int, key: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        which = self._own_rows(i, "join")
        return np.arange(which.start, which.stop), np.zeros(which.stop - which.start)

    def _write_measured(self, i: int, key: Any) -> MeasuredFile:
        which = self._own_rows(i, "write-measured")
        return MeasuredFile(f"{_FOLDER}/measured-{uuid4().hex}", which.stop - which.start)

    def _combine(self, i: int, key: Any) -> str:
        return f"{_FOLDER}/combined-{uuid4().hex}"

    def _parts(self, i: int, key: Any) -> list[VectorPart]:
        which = self._own_rows(i, kind_of(key))
        n_rows, n = which.stop - which.start, vectors.FILE_NUMBERS
        sizes = [min(n, n_rows - start) for start in range(0, n_rows, n)]
        urls = (f"{_FOLDER}/numbers-{uuid4().hex}" for _ in sizes)
        return [
            VectorPart(_Numbers(url), size, 0.0)
            for url, size in zip(urls, sizes, strict=True)
        ]

    _place = _merge = _parts

    def _sort(self, i: int, key: Any) -> Run:
        which = self._own_rows(i, "sort")
        firsts = np.linspace(0, 1, -(-(which.stop - which.start) // PAGE))
        return Run(f"{_FOLDER}/run-{uuid4().hex}", which.stop - which.start, firsts)


def kind_of(key: Any) -> str:
    """Return what a task does: the words of its key."""
    return str(dask.utils.key_split(key)).removeprefix("lpe-")
