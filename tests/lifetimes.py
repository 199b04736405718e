"""What users do with a cluster, as tables: kinds of input, entries, uses, and losses.

Only the public face is used. What is right comes from the same rows as one array, in
threads.
"""

import gc
import os
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

import lpe_dask
from lpe_dask import LPE
from processes import are_up, local_cluster

# Rows in all kinds


@dataclass
class Tables:
    """Nominal rows and new ones, and what is right about them by entry."""

    nominal: pd.DataFrame
    new: pd.DataFrame
    folder: Path
    npartitions: int = 4
    n_neighbors: int = 5
    right: dict = field(default_factory=dict)
    fitted: dict = field(default_factory=dict)

    @classmethod
    def of(cls, n_rows, folder, n_new=2000, **options):
        rng = np.random.default_rng(0)
        # Whole numbers, so that equal distances are the usual case.
        draws = rng.integers(0, 4000, (n_rows, 2)), rng.integers(-500, 4500, (n_new, 2))
        frames = [pd.DataFrame(rows / 8, columns=["x", "y"]) for rows in draws]
        tables = cls(*frames, folder, **options)
        for name in ("nominal", "new"):
            frame = dd.from_pandas(getattr(tables, name), npartitions=tables.npartitions)
            frame.to_parquet(folder / name)
        with dask.config.set(scheduler="threads"):
            model = tables.model().fit(tables.nominal.to_numpy())
            for entry, (rows, function) in ENTRIES.items():
                X = getattr(tables, rows).to_numpy()
                tables.right[entry] = np.asarray(function(model, X, tables))
        return tables

    def model(self):
        return LPE(self.n_neighbors)

    def fitted_on(self, kind):
        """Return the model that all uses of a kind share."""
        if kind not in self.fitted:
            self.fitted[kind] = self.model().fit(KINDS[kind](self, "nominal"))
        return self.fitted[kind]


KINDS = {
    "numpy": lambda t, name: getattr(t, name).to_numpy(),
    "pandas": lambda t, name: getattr(t, name),
    "dask array": lambda t, name: da.from_array(
        getattr(t, name).to_numpy(), chunks=(-(-len(getattr(t, name)) // t.npartitions), 2)
    ),
    "unknown chunks": lambda t, name: dd.read_parquet(t.folder / name).to_dask_array(),
    "from_pandas": lambda t, name: dd.from_pandas(
        getattr(t, name), npartitions=t.npartitions
    ),
    "read_parquet": lambda t, name: dd.read_parquet(t.folder / name),
    "path": lambda t, name: str(t.folder / name),
    "persisted": lambda t, name: dd.read_parquet(t.folder / name).persist(),
}


def is_lazy(kind):
    return kind not in ("numpy", "pandas")


# What is asked: (which rows, function of a fitted model, rows and tables)


def _scored(model, X, tables):
    return lpe_dask.score(X, n_neighbors=tables.n_neighbors)


def _scored_with_nominal(model, X, tables):
    nominal = dd.read_parquet(tables.folder / "nominal")
    return lpe_dask.score(X, nominal=nominal, n_neighbors=tables.n_neighbors)


def _scored_with_categories(model, X, tables):
    """Of whole numbers, with all else that a fit may learn of a column and send along."""
    rows = dd.read_parquet(X) if isinstance(X, str) else X
    nominal = 8 * dd.read_parquet(tables.folder / "nominal")
    options = {"scale": "minmax+quantile", "aggregation": "mean", "categorical": ["y"]}
    return LPE(tables.n_neighbors, **options).fit(nominal).score_samples(8 * rows)


def _loaded(model, X, tables):
    folder = tempfile.mkdtemp(dir=tables.folder)
    model.save(f"{folder}/model")
    return lpe_dask.load(f"{folder}/model").score_samples(X)


def _loaded_own(model, X, tables):
    folder = tempfile.mkdtemp(dir=tables.folder)
    model.save(f"{folder}/model")
    return lpe_dask.load(f"{folder}/model").p_values_


def _discoveries(model, X, tables):
    return lpe_dask.false_discovery_control(model.score_samples(X), 0.2)


ENTRIES = {
    "score": ("nominal", _scored),
    "score nominal": ("new", _scored_with_nominal),
    "score categories": ("new", _scored_with_categories),
    "score_samples": ("new", lambda model, X, tables: model.score_samples(X)),
    "statistic": ("new", lambda model, X, tables: model.statistic(X)),
    "predict": ("new", lambda model, X, tables: model.predict(X)),
    "decision_function": ("new", lambda model, X, tables: model.decision_function(X)),
    "p_values_": ("nominal", lambda model, X, tables: model.p_values_),
    "statistic_": ("nominal", lambda model, X, tables: model.statistic_),
    "fit_predict": ("nominal", lambda model, X, tables: tables.model().fit_predict(X)),
    "loaded": ("new", _loaded),
    "loaded p_values_": ("nominal", _loaded_own),
    "false_discovery": ("new", _discoveries),
}

#: Entries that fit by themselves.
FITTING = ("score", "score nominal", "score categories", "fit_predict")


# What is done with a result of which, and of whose model, nothing else is kept


def _persisted(result, client):
    persisted = result.persist()
    del result
    gc.collect()
    return persisted.compute()


def _to_parquet(result, client):
    if isinstance(result, da.Array):
        result = result.to_dask_dataframe(columns="p")
    with tempfile.TemporaryDirectory() as folder:
        result.to_frame("p").to_parquet(folder, write_index=False)
        del result
        return pd.read_parquet(folder)["p"]


def _client_compute(result, client):
    future = client.compute(result)
    del result
    gc.collect()
    return future.result()


USES = {
    "compute": lambda result, client: result.compute(),
    "mean": lambda result, client: (result + 0).mean().compute(),
    "persist": _persisted,
    "to_parquet": _to_parquet,
    "client.compute": _client_compute,
    "two at once": lambda result, client: dask.compute(result, result + 0)[1],
}


def uses_of(kind):
    return USES if is_lazy(kind) else {"value": None}


def check_use(tables, kind, entry, use, client):
    """Do one thing that users do, and compare what comes out, bit for bit."""
    rows, function = ENTRIES[entry]
    model = None if entry in FITTING else tables.fitted_on(kind)
    result = function(model, KINDS[kind](tables, rows), tables)
    gc.collect()
    if use == "value" or not dask.is_dask_collection(result):
        actual = np.asarray(result)
    else:
        actual = np.asarray(USES[use](result, client))
    del result
    right = tables.right[entry]
    if actual.shape == ():  # the bits of a mean depend on how it is added up
        np.testing.assert_allclose(actual, right.mean(), rtol=1e-12)
    else:
        np.testing.assert_array_equal(actual, right)


# What is lost, between a fit and a scoring or during one of them


@dataclass
class Stage:
    """A cluster of two processes, its client, and a way to another cluster."""

    cluster: LocalCluster
    client: Client
    stack: ExitStack
    _other: Client | None = None

    def ready(self):
        """Return when there are two workers, all of them past their start.

        Those that were retired are replaced.
        """
        began = time.monotonic()
        while self.n_workers < 2 or not are_up(self.cluster):
            if self.n_workers < 2 and time.monotonic() - began > 10:  # nobody starts it
                self.add_worker()
                began = time.monotonic()
            time.sleep(0.02)

    @property
    def n_workers(self):
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def add_worker(self):
        self.cluster.scale(len(self.cluster.worker_spec) + 1)

    @property
    def other(self):
        """The client of another cluster."""
        if self._other is None:
            cluster = self.stack.enter_context(local_cluster(n_workers=1))
            self._other = self.stack.enter_context(Client(cluster, set_as_default=False))
        return self._other


@contextmanager
def staged():
    with ExitStack() as stack:
        cluster = stack.enter_context(local_cluster())
        client = stack.enter_context(Client(cluster))
        yield Stage(cluster, client, stack)


def kill(client, address):
    """End a worker process as the kernel would; return when the scheduler has noticed."""
    os.kill(client.run(os.getpid)[address], signal.SIGKILL)
    while address in client.scheduler_info(n_workers=-1)["workers"]:
        time.sleep(0.02)


def unneeded(dask_scheduler):
    """Return the keys that a scheduler keeps although nothing that clients want needs them.

    Those stay for ever, and `Client.restart` fails because of them.
    """
    wanted = [task for task in dask_scheduler.tasks.values() if task.who_wants]
    needed = set()
    while wanted:
        task = wanted.pop()
        if task.key not in needed:
            needed.add(task.key)
            wanted += task.dependencies
    return [str(key) for key in dask_scheduler.tasks if key not in needed]


def holder_of_most(client):
    """Return the worker that has the most results."""
    held = client.has_what()
    return max(held, key=lambda address: len(held[address]))


@contextmanager
def killed_meanwhile(client, least_done=1):
    """Kill the worker that holds most when some joins are done and some are not.

    Gives a list, which then says how many were done and how many were left.
    """
    seen, is_over = [], threading.Event()
    pids = client.run(os.getpid)

    def watch():
        while not is_over.wait(0.002):
            with suppress(Exception):  # the scheduler may be busy with the loss
                done, left, holder = client.run_on_scheduler(_joins)
                if done >= least_done and left > 0 and holder in pids:
                    os.kill(pids[holder], signal.SIGKILL)
                    seen.append((done, left))
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _joins(dask_scheduler):
    """Return how many joins are done and left, and the worker that holds most."""
    joins = [
        task.state
        for task in dask_scheduler.tasks.values()
        if task.prefix.name in ("lpe-join", "_join_frame", "fused", "lpe-joined")
        or "join" in str(task.key)
    ]
    held = dask_scheduler.workers
    holder = max(held, key=lambda address: len(held[address].has_what), default=None)
    left = sum(state in ("waiting", "queued", "processing") for state in joins)
    return joins.count("memory"), left, holder


def _lost_after_fit(tables, models, stage):
    kill(stage.client, holder_of_most(stage.client))


def _lost_during_fit(tables, models, stage):
    (kind,) = models
    for _ in range(5):  # until the moment was hit
        stage.ready()
        with killed_meanwhile(stage.client) as seen:
            models[kind] = tables.model().fit(KINDS[kind](tables, "nominal"))
        if seen:
            return
    raise AssertionError("no worker was lost in the middle of a fit")


def _lost_while_scoring(tables, models, stage):
    rows = pd.concat([tables.new] * 24, ignore_index=True)
    right = np.tile(tables.right["score_samples"], 24)
    ((_, model),) = models.items()
    for _ in range(5):
        stage.ready()
        many = dd.from_pandas(rows, npartitions=24)
        with killed_meanwhile(stage.client, least_done=3) as seen:
            actual = model.score_samples(many).compute()
        np.testing.assert_array_equal(actual.to_numpy(), right)
        if seen:
            return
    raise AssertionError("no worker was lost in the middle of a scoring")


def _retired(tables, models, stage):
    stage.client.retire_workers([holder_of_most(stage.client)])
    stage.add_worker()


def _added(tables, models, stage):
    n_workers = stage.n_workers
    stage.add_worker()
    while stage.n_workers == n_workers:
        time.sleep(0.02)
    for kind, model in models.items():
        _compare(tables, kind, model)
    stage.client.retire_workers([holder_of_most(stage.client)])


def _second_client(tables, models, stage):
    with Client(stage.cluster.scheduler_address):
        for kind, model in models.items():
            if kind != "persisted":  # those belong to the first client
                _compare(tables, kind, model)


def _other_cluster(tables, models, stage):
    with stage.other.as_current(), dask.config.set(scheduler=stage.other):
        for kind, model in models.items():
            _compare_elsewhere(tables, kind, model)


def _no_cluster(tables, models, stage):
    with dask.config.set(scheduler="threads"):
        for kind, model in models.items():
            _compare_elsewhere(tables, kind, model)


def _lost_with_results(tables, models, stage):
    """Results that were persisted, and of which nothing else is left here."""
    kept = [
        (result.persist(), entry)
        for kind, model in models.items()
        for result, entry in (
            (model.score_samples(KINDS["from_pandas"](tables, "new")), "score_samples"),
            (model.p_values_, "p_values_"),
        )
        if dask.is_dask_collection(result)
    ]
    wait([result for result, _ in kept])
    gc.collect()
    kill(stage.client, holder_of_most(stage.client))
    for result, entry in kept:
        np.testing.assert_array_equal(result.compute(), tables.right[entry])


def _restarted(tables, models, stage):
    stage.ready()
    stage.client.restart()


LOSSES = {
    "lost after fit": _lost_after_fit,
    "lost during fit": _lost_during_fit,
    "lost while scoring": _lost_while_scoring,
    "lost with results": _lost_with_results,
    "retired": _retired,
    "added": _added,
    "second client": _second_client,
    "other cluster": _other_cluster,
    "no cluster": _no_cluster,
    "restart": _restarted,
}

#: Losses in the middle of something, of one model.
ONE_AT_A_TIME = ("lost during fit", "lost while scoring")


def check_loss(tables, loss, stage, kinds=tuple(KINDS)):
    """Lose something, and score with models and with results built before."""
    groups = [[kind] for kind in kinds] if loss in ONE_AT_A_TIME else [kinds]
    for group in groups:
        _check_loss(tables, group, LOSSES[loss], stage)


def _check_loss(tables, kinds, happen, stage):
    stage.ready()
    models, before = {}, {}
    for kind in kinds:  # the same models live through all losses
        models[kind] = model = tables.fitted_on(kind)
        before[kind] = model.score_samples(KINDS[kind](tables, "new")), model.p_values_
    happen(tables, models, stage)
    is_gone = happen is _restarted
    if is_gone:
        tables.fitted.pop("persisted", None)
    for kind, model in models.items():
        if kind == "persisted" and is_gone:
            _compare_elsewhere(tables, kind, model)
        else:
            _compare_both(tables, *before[kind])
            _compare(tables, kind, model)


def _compare(tables, kind, model):
    _compare_both(tables, model.score_samples(KINDS[kind](tables, "new")), model.p_values_)


def _compare_both(tables, scored, own):
    scored, own = dask.compute(scored, own)
    np.testing.assert_array_equal(scored, tables.right["score_samples"])
    np.testing.assert_array_equal(own, tables.right["p_values_"])


def _compare_elsewhere(tables, kind, model):
    """Compare where rows that were persisted are not to be had.

    Blocks that were made of them may be, in a spool.
    """
    if kind != "persisted":
        _compare(tables, kind, model)
        return
    try:
        actual = model.score_samples(tables.new)
    except RuntimeError as error:
        if not ("save" in str(error) and "load" in str(error)):
            raise
    else:
        np.testing.assert_array_equal(np.asarray(actual), tables.right["score_samples"])
