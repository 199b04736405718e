"""Lazy results and models hold, whatever users do with them and whatever is lost.

At 300,000 rows, on one cluster of two processes, every kind of input and every use occurs,
and a worker is lost at each moment. On a few hundred rows every entry and every loss
occurs, and every switch between a small and a large path at its other extreme. With slow
tests, every two of (kind, entry, use) meet, also with every switch, and every kind meets
every loss. `make lifetimes` runs the full product, and a soak.
"""

import gc
import itertools
import os
import random

import dask
import numpy as np
import psutil
import pytest
from distributed import Client

from choosing import dealt, mostly_slow, pairs
from lifetimes import (
    ENTRIES,
    KINDS,
    LOSSES,
    ONE_AT_A_TIME,
    USES,
    Tables,
    check_loss,
    check_use,
    is_lazy,
    killed_meanwhile,
    staged,
    unneeded,
    uses_of,
)
from lpe_dask.model.persistence import loading
from lpe_dask.search import algorithm_selection
from lpe_dask.search import plan as planning
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.tables import table as inputs
from lpe_dask.tasks import frozen_graph
from lpe_dask.tasks import transfer as literals
from processes import cluster_of_its_own
from waiting import eventually

pytestmark = pytest.mark.cluster

LAZY = [kind for kind in KINDS if is_lazy(kind)]
EAGER = [kind for kind in KINDS if not is_lazy(kind)]
MAIN_ENTRIES = ["score", "score_samples", "predict", "p_values_", "fit_predict", "loaded"]
FEW = [*dealt(LAZY, MAIN_ENTRIES, USES), *((kind, "score", "value") for kind in EAGER)]
PAIRS = [
    *FEW, *pairs(LAZY, ENTRIES, USES), *((*two, "value") for two in pairs(EAGER, ENTRIES)),
]  # fmt: skip
ALL = [
    (kind, entry, use)
    for kind, entry in itertools.product(KINDS, ENTRIES)
    for use in uses_of(kind)
]
OTHERS = [one for one in ALL if one not in PAIRS]

#: Rows here, rows on storage, and rows that only workers have.
FEW_KINDS, ALL_KINDS = ["numpy", "read_parquet", "persisted"], list(KINDS)
PHASES = ("setup", "call", "teardown")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return Tables.of(300_000, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def stage():
    with staged() as stage:
        yield stage


@pytest.fixture(autouse=True)
def each_key_names_one_task(caplog):
    """Let no test pass in which a scheduler met two tasks under one key."""
    yield
    said = [r.getMessage() for phase in PHASES for r in caplog.get_records(phase)]
    assert [message for message in said if "execute_task" in message] == []


@pytest.mark.parametrize(("kind", "entry", "use"), mostly_slow(PAIRS, FEW))
def test_use__at_real_size(tables, stage, kind, entry, use):
    check_use(tables, kind, entry, use, stage.client)


LARGE_FEW_LOSSES = [
    ("lost after fit", FEW_KINDS),
    *((loss, ["read_parquet"]) for loss in ONE_AT_A_TIME),
]


@pytest.mark.parametrize(
    ("loss", "kinds"),
    mostly_slow(
        [*LARGE_FEW_LOSSES, *((loss, ALL_KINDS) for loss in LOSSES)], LARGE_FEW_LOSSES
    ),
)
def test_loss__at_real_size(tables, stage, loss, kinds):
    check_loss(tables, loss, stage, kinds)


# Small tables must not hide large ones: each switch at its other extreme


def _everything_is_large(monkeypatch):
    monkeypatch.setattr(literals, "LITERAL_BYTES", 0)
    monkeypatch.setattr(frozen_graph, "HEAVY_BYTES", 0)


def _nothing_is_shared(monkeypatch):
    """Each process has a storage of its own; values are sent in pieces of 1 KiB."""
    monkeypatch.setattr(literals, "LITERAL_BYTES", 2**10)
    return {"lpe-dask.spool": "memory://lifetimes"}


def _is_spooled(monkeypatch):
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)


def _many_blocks(monkeypatch):
    monkeypatch.setattr(planning, "MIN_TASK_ROWS", 64)
    return {"lpe-dask.block-rows": 64}


def _many_chunks(monkeypatch):
    monkeypatch.setattr(inputs, "MIN_CHUNK_BYTES", 512)
    monkeypatch.setattr(inputs, "MAX_CHUNK_BYTES", 512)


def _chosen_by_a_trial(monkeypatch):
    monkeypatch.setattr(algorithm_selection, "choice_without_trial", lambda *_: None)


def _pruned_always(monkeypatch):
    monkeypatch.setattr(
        algorithm_selection, "choice_without_trial", lambda *_: ("pruned", "a test")
    )
    return {"lpe-dask.block-rows": 128}


def _hashes_are_left_to_tasks(monkeypatch):
    monkeypatch.setattr(loading, "MAX_HASHED_BYTES", -1)


#: What a switch is called, the table it is tried with, and how it is set.
SWITCHES = {
    "everything is large": ("small", _everything_is_large),
    "spooled": ("small", _is_spooled),
    "nothing is shared": ("small", _nothing_is_shared),
    "many blocks": ("small", _many_blocks),
    "many chunks": ("small", _many_chunks),
    "chosen by a trial": ("small", _chosen_by_a_trial),
    "pruned": ("small", _pruned_always),
    "sampled search": ("many neighbors", None),
    "one partition": ("one partition", None),
    "hashes": ("small", _hashes_are_left_to_tasks),
}

#: Switches that decide where values are; after a loss they matter most.
PLACES = ("everything is large", "spooled", "nothing is shared")


@pytest.fixture(scope="module")
def small_tables(tmp_path_factory):
    options = {
        "small": {},
        "many neighbors": {"n_neighbors": planning.MIN_SAMPLED_NEIGHBORS + 12},
        "one partition": {"npartitions": 1},
    }
    return {
        name: Tables.of(600, tmp_path_factory.mktemp("small"), n_new=200, **given)
        for name, given in options.items()
    }


@pytest.fixture
def switched(request, monkeypatch, small_tables):
    """Set the switch of a test, and give the tables to try it with."""
    table, switch = SWITCHES[request.param]
    settings = (switch and switch(monkeypatch)) or {}
    with dask.config.set(settings):
        yield small_tables[table]
    gc.collect()


def some_with(switch, i):
    """Return two or three cases with the i-th switch, others for each switch."""
    few = dealt([switch], LAZY, ENTRIES, USES)[i % 6 :: 6]
    eager = (
        [(switch, EAGER[i % len(EAGER)], "score_samples", "value")] if i % 3 == 1 else []
    )
    return [*few, *eager]


SMALL_FEW = [case for i, switch in enumerate(SWITCHES) for case in some_with(switch, i)]
SMALL_PAIRS = [
    *SMALL_FEW, *pairs(SWITCHES, LAZY, ENTRIES, USES),
    *((*three, "value") for three in pairs(SWITCHES, EAGER, ENTRIES)),
]  # fmt: skip
#: Without those in the middle of something: nothing takes long enough on small rows.
SMALL_LOSSES = [loss for loss in LOSSES if loss not in ONE_AT_A_TIME]
SMALL_FEW_LOSSES = dealt(PLACES, SMALL_LOSSES, [[kind] for kind in KINDS])
LOST = [*SMALL_FEW_LOSSES, *itertools.product(PLACES, SMALL_LOSSES, [ALL_KINDS])]


@pytest.mark.parametrize(
    ("switched", "kind", "entry", "use"),
    mostly_slow(SMALL_PAIRS, SMALL_FEW),
    indirect=["switched"],
)
def test_use__with_each_switch(switched, stage, kind, entry, use):
    switched.fitted.clear()  # models of another switch
    check_use(switched, kind, entry, use, stage.client)
    gc.collect()
    assert eventually(lambda: stage.client.run_on_scheduler(unneeded) == [])


@pytest.mark.parametrize(
    ("switched", "loss", "kinds"),
    mostly_slow(LOST, SMALL_FEW_LOSSES),
    indirect=["switched"],
)
def test_loss__wherever_values_are(switched, stage, loss, kinds):
    switched.fitted.clear()
    check_loss(switched, loss, stage, kinds)


# All of it


@pytest.mark.lifetimes
@pytest.mark.parametrize(("kind", "entry", "use"), OTHERS)
def test_use__all_combinations(tables, stage, kind, entry, use):
    check_use(tables, kind, entry, use, stage.client)


@pytest.mark.lifetimes
@pytest.mark.parametrize("loss", SMALL_LOSSES)
@pytest.mark.parametrize("switched", [*SWITCHES], indirect=True)
def test_loss__with_each_switch(switched, stage, loss):
    switched.fitted.clear()
    check_loss(switched, loss, stage)


#: Rounds of the soak, and from which on memory stays.
N_LOSSES, WARM_UP = 200, 50


@pytest.mark.lifetimes
@pytest.mark.timeout(3600)
def test_soak__two_hundred_losses(tables):
    """Score while a worker is killed, score again: the same bits, and memory stays."""
    rng, sizes, moments = random.Random(0), [], []
    new = KINDS["from_pandas"](tables, "new").repartition(npartitions=24)
    right = tables.right["score_samples"]
    with cluster_of_its_own() as address, Client(address) as client:
        client.wait_for_workers(2)
        model = tables.model().fit(tables.nominal)
        for n_losses in range(1, N_LOSSES + 1):
            while len(moments) < n_losses:  # until the moment was hit
                with killed_meanwhile(client, least_done=rng.randint(1, 6)) as seen:
                    actual = model.score_samples(new).compute()
                np.testing.assert_array_equal(actual.to_numpy(), right)
                moments += seen
                assert eventually(lambda: len(workers_of(client)) >= 2, seconds=60)
            np.testing.assert_array_equal(model.score_samples(new).compute(), right)
            gc.collect()
            workers = client.run(_resident_bytes).values()
            sizes.append((_resident_bytes(), max(workers)))

    # Some were done and some were left.
    assert all(done > 0 and left > 0 for done, left in moments)
    rounds = np.arange(N_LOSSES - WARM_UP)
    for name, of_rounds in zip(("client", "workers"), np.transpose(sizes), strict=True):
        growth = np.polyfit(rounds, of_rounds[WARM_UP:], 1)[0]
        print(f"{name}: {growth / 1000:+.1f} kB a round, of {of_rounds[-1] / 1e6:.0f} MB")
        assert growth < 50_000


def workers_of(client):
    return client.scheduler_info(n_workers=-1)["workers"]


def _resident_bytes():
    return psutil.Process(os.getpid()).memory_info().rss
