"""Put a forecast together: what a run searches for, its tasks, its bytes and its seconds.

PlannedModel, samples --trials--> pairs, seconds a query --all of them--> Forecast
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lpe_dask.forecast.forecast import OWN_SEARCH, ROW_SEARCH, WRITE, Forecast
from lpe_dask.forecast.planned_model import PlannedModel
from lpe_dask.forecast.sample import EMPTY_SAMPLE, Sample
from lpe_dask.kernels import search_work
from lpe_dask.search import Approximation, Cost, MemoryEstimate
from lpe_dask.tasks import Workers

#: Seconds to write a number, and to send out a task and take its result: for the scheduler
#: of this process, and for one of `distributed` (measured).
WRITE_SECONDS, TASK_SECONDS, CLUSTER_TASK_SECONDS = 1e-7, 1e-3, 1e-2

#: Seconds of an approximate search: to compile pynndescent; to index a row, and each of its
#: columns; and for a query in each block, and each of its columns. (Measured on Zen 5.)
COMPILED, INDEXED, LED = 25.0, (50e-6, 120e-9), (150e-6, 1e-6)

#: Bytes of a spool that all threads together read in a second: those of a plain disk.
SPOOL_BYTES_A_SECOND = 500e6


@dataclass(frozen=True, slots=True)
class Forecaster:
    """All that a forecast is made of.

    Attributes
    ----------
    workers : Workers
    model : PlannedModel
    scored : Sample
        Of the rows to score; none for a fit alone.
    n_columns : int
        To write, apart from the results.
    is_frame : bool
        Whether the rows to score are those of a frame, and not of an array.
    is_carried : bool
        Whether the tasks that write results read them again, to carry columns over.
    scores_nominal_rows : bool
        Whether they are the nominal rows.
    is_checked : bool
        Whether the calibration is checked, by another fit.
    """

    workers: Workers
    model: PlannedModel
    scored: Sample = EMPTY_SAMPLE
    n_columns: int = 0
    is_frame: bool = False
    is_carried: bool = False
    scores_nominal_rows: bool = False
    is_checked: bool = False

    def forecast(self) -> Forecast:
        """Return the forecast; tries the searches on the samples."""
        model, scored = self.model, self.scored
        n_own, n_rows = self._n_searched()
        self._expect(n_own, n_rows)
        own_cost, row_cost = self._own_cost(), self._row_cost(n_rows)
        tasks = self._tasks()
        walks = 0 if model.shape.graph_params is None else model.n_measured + n_rows
        seconds = n_own * own_cost.seconds, n_rows * row_cost.seconds
        prepare = self._prepare_seconds(own_cost.pack_seconds)
        return Forecast(
            n_rows=scored.n_rows,
            n_nominal=model.n_nominal,
            n_features=model.shape.n_read_features - model.has_groups,
            algorithm=model.sampled.space.algorithm,
            is_exact=model.is_exact_count and scored.is_exact,
            tasks=tasks,
            own_pairs=round(n_own * own_cost.pairs),
            row_pairs=round(n_rows * row_cost.pairs),
            walks=walks,
            needs=self._largest_needs(),
            n_threads=self.workers.n_threads,
            memory_limit=self.workers.memory_limit,
            steps=self._steps(tasks, prepare, *seconds, walks),
        )

    def _n_searched(self) -> tuple[int, int]:
        """Return how many nominal rows are searched for, and how many rows to score."""
        model = self.model
        n_own, n_rows = model.n_measured, self.scored.n_rows
        if self.scores_nominal_rows:  # those that the fit does not measure
            n_rows = model.n_nominal - model.n_measured
        if n_own > 0 and model.shape.graph_params is not None:
            # A neighbor graph has edges from all rows, and is walked along from some.
            n_own = model.plans[0].shape.n_reference
        return n_own, n_rows

    def _expect(self, n_own: int, n_rows: int) -> None:
        """Have searches tried with compiled kernels if a run will not do without."""
        n_compared = self.model.n_compared
        n_pairs = n_own * n_compared(self.model.plans[0].shape.n_reference)
        n_pairs += n_rows * n_compared(self.model.shape.n_reference)
        work = search_work(n_pairs, self.model.shape.n_features)
        replace(self.model.sampled.search, work=work).expect()

    def _own_cost(self) -> Cost:
        """Return the cost of a search for a nominal row."""
        model, n_reference = self.model, self.model.plans[0].shape.n_reference
        n_compared = model.n_compared(n_reference)
        if model.n_measured == 0:
            return Cost(0.0, 0.0)
        queries, batch_size = None, float(model.n_measured)
        if model.is_held_out:
            queries = model.sampled.reference
            batch_size = self._n_at_once(model.nominal, model.n_measured)
        return model.sampled.cost(n_compared, queries, batch_size / n_reference)

    def _row_cost(self, n_rows: int) -> Cost:
        """Return the cost of a search for a row to score, if there are any."""
        if n_rows == 0 or len(self.scored.rows) == 0:
            return Cost(0.0, 0.0)
        sampled, n_reference = self.model.sampled, self.model.shape.n_reference
        queries = sampled.space.preparation.apply(self.scored.rows)
        density = self._n_at_once(self.scored, n_rows) / n_reference
        n_compared = self.model.n_compared(n_reference)
        exactly = sampled.cost(n_compared, queries, density)
        recheck, plan = self.model.recheck, self.model.plan
        if recheck is None:
            return exactly
        # Some rows are measured exactly all the same, to decide or to certify.
        share = min(1.0, recheck + Approximation.AUDITED_ROWS / n_rows)
        query, column = LED
        along_graph = plan.n_blocks * (query + column * plan.shape.n_features)
        return Cost(share * exactly.pairs, along_graph + share * exactly.seconds)

    def _n_at_once(self, sample: Sample, n_queries: int) -> float:
        """Return about how many new rows are searched for at a time."""
        n_tasks = len(sample.sizes) * self._n_shares()
        return min(self.model.plan.pass_rows, n_queries / n_tasks)

    def _n_shares(self) -> int:
        """Return how many tasks share a partition of new rows."""
        # Without rows to score nominal ones may be measured like new ones.
        sizes = self.scored.sizes or self.model.nominal.sizes
        # Partitions of a frame are counted by no one before they are scored.
        is_known = self.scores_nominal_rows or not (self.scored.sizes and self.is_frame)
        largest = max(sizes) if is_known else None
        return self.model.plan.query_shares(len(sizes), self.workers.n_threads, largest)

    def _tasks(self) -> dict[str, int]:
        """Return the tasks that make blocks and that compare rows, as plans cut them."""
        model, plan = self.model, self.model.plans[0]
        tasks = {"load": model.n_files}
        if model.n_files == 0:
            tasks = {"pack": sum(plan.n_blocks for plan in model.plans)}
            if model.shape.is_indexed:
                tasks["index"] = model.plan.n_blocks
        if model.is_held_out:
            tasks["self-join"] = len(model.nominal.sizes) * self._n_shares()
        elif model.n_measured > 0:
            has_graph = plan.shape.graph_params is not None  # of edges from all rows
            shares = (
                plan.block_shares if has_graph else plan.nominal_shares(model.n_measured)
            )
            tasks["self-join"] = plan.n_blocks * shares
        if not self.scores_nominal_rows or model.n_measured < model.n_nominal:
            tasks["join"] = len(self.scored.sizes) * self._n_shares()
        return {kind: n for kind, n in tasks.items() if n > 0}

    def _largest_needs(self) -> MemoryEstimate:
        """Return the estimate of the largest search, with the partitions to score."""
        found = []
        for plan in self.model.plans:
            shape = replace(
                plan.shape,
                partition_rows=max((plan.shape.partition_rows, *self.scored.sizes)),
                reads_frame=plan.shape.reads_frame or self.is_frame,
            )
            found.append(MemoryEstimate(replace(plan, shape=shape)))
        return max(found, key=lambda of_plan: of_plan.worker)

    # Seconds

    def _steps(
        self,
        tasks: Mapping[str, int],
        prepare_seconds: float,
        own_seconds: float,
        row_seconds: float,
        n_walks: int,
    ) -> dict[str, float]:
        n_own, n_rows = tasks.get("self-join", 0), tasks.get("join", 0)
        task_seconds = CLUSTER_TASK_SECONDS if self.workers.is_cluster else TASK_SECONDS
        n_tasks = sum(tasks.values()) + sum(self._partitions_read())
        own_search = self._shared(own_seconds, n_own)
        again = prepare_seconds + own_search
        return {
            "start": self.workers.start_seconds,
            "read": self._read_seconds(),
            "prepare": prepare_seconds,
            "index": self._index_seconds(),
            OWN_SEARCH: own_search,
            **({"check calibration": again} if self.is_checked else {}),
            ROW_SEARCH: self._shared(row_seconds, n_rows),
            "walk": self._walk_seconds(n_walks),
            "read the spool": self._spool_seconds(n_own + n_rows),
            WRITE: self._write_seconds(),
            "hand out tasks": task_seconds * n_tasks,
        }

    def _partitions_read(self) -> tuple[int, int]:
        """Return how many partitions are read: nominal ones, and those to score."""
        n_times = int(not self.scores_nominal_rows) + int(self.is_carried)
        n_nominal = self.model.n_readings * len(self.model.nominal.sizes)
        return n_nominal, n_times * len(self.scored.sizes)

    def _shared(self, seconds: float, n_tasks: int) -> float:
        """Return the seconds of work that threads share, the last of which ends last."""
        if n_tasks == 0:
            return 0.0
        return seconds / n_tasks * -(-n_tasks // self.workers.n_threads)

    def _read_seconds(self) -> float:
        samples = self.model.nominal, self.scored
        seconds = 0.0
        for sample, n_read in zip(samples, self._partitions_read(), strict=True):
            if n_read > 0:
                of_one = sample.n_rows * sample.read_seconds / len(sample.sizes)
                seconds += self._shared(n_read * of_one, n_read)
        return seconds

    def _prepare_seconds(self, pack_seconds: float) -> float:
        """Return the seconds to learn from the nominal rows, and to make blocks of them.

        Those of a saved model are made as they are read, which the sample has timed.
        """
        model = self.model
        if model.n_files > 0:
            return 0.0
        seconds = self._shared(model.learn_seconds, len(model.nominal.sizes))
        for plan in model.plans:
            seconds += self._shared(pack_seconds * plan.shape.n_reference, plan.n_blocks)
        return seconds

    def _index_seconds(self) -> float:
        """Return the seconds to build indexes, where the model has none yet."""
        shape, plan = self.model.shape, self.model.plan
        if not shape.is_indexed or self.model.n_files > 0:
            return 0.0
        row, column = INDEXED
        seconds = (row + column * shape.n_features) * shape.n_reference
        return COMPILED + self._shared(seconds, plan.n_blocks)

    def _walk_seconds(self, n_walks: int) -> float:
        params = self.model.shape.graph_params
        if params is None:
            return 0.0
        return n_walks * self.model.sampled.walk_seconds(params) / self.workers.n_threads

    def _spool_seconds(self, n_tasks: int) -> float:
        """Return the seconds to read all blocks from a spool, once in each pass."""
        plan = self.model.plan
        if not plan.is_spooled:
            return 0.0
        n_passes = n_tasks * max(1, plan.task_rows // plan.pass_rows)
        return n_passes * MemoryEstimate(plan).reference / SPOOL_BYTES_A_SECOND

    def _write_seconds(self) -> float:
        n_written = self.scored.n_rows * (self.n_columns + 3)  # and results
        return self._shared(WRITE_SECONDS * n_written, len(self.scored.sizes))
