"""The rows of a fitted model in a graph that stays as it is."""

from itertools import product

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Alias, Task, TaskRef, convert_legacy_graph
from distributed import Client, LocalCluster

import lpe_dask
from choosing import mostly_dealt, mostly_full, mostly_slow
from lifetimes import unneeded
from lpe_dask import LPE
from lpe_dask.model import fitted_of
from lpe_dask.tables import Table
from lpe_dask.tasks import freeze, new_tasks, reread_once, transfer
from lpe_dask.tasks.dask_internals import without_aliases
from lpe_dask.tasks.transfer import LITERAL_BYTES
from waiting import eventually

ROWS = np.random.default_rng(0).integers(0, 200, (3000, 3)) * 0.1
FRAME = pd.DataFrame(ROWS, columns=list("abc"))
QUERIES = FRAME.iloc[::100]


def part_of(number):
    return FRAME[number::4]


def from_array():
    return da.from_array(ROWS, chunks=(700, -1))


def from_delayed():
    parts = [dask.delayed(part_of)(i) for i in range(4)]
    return dd.from_delayed(parts, meta=FRAME[:0])


def read_parquet(folder):
    FRAME.to_parquet(folder / "rows.parquet", row_group_size=800)
    return dd.read_parquet(folder / "rows.parquet", split_row_groups=1)


AS_KIND = {
    "numpy": lambda _: ROWS,
    "pandas": lambda _: FRAME,
    "array": lambda _: from_array(),
    "array in column chunks": lambda _: da.from_array(ROWS, chunks=(700, 2)),
    "rechunked": lambda _: from_array().rechunk((900, 1)) + 1,
    "filtered array": lambda _: from_array()[from_array()[:, 0] > 1],
    "from_pandas": lambda _: dd.from_pandas(FRAME, npartitions=4),
    "from_delayed": lambda _: from_delayed(),
    "from_map": lambda _: dd.from_map(part_of, range(4), meta=FRAME[:0]),
    "read_parquet": read_parquet,
    "to_dask_array": lambda _: dd.from_pandas(FRAME, npartitions=4).to_dask_array(),
}
KINDS = list(AS_KIND)
LAZY = KINDS[2:]


def keys_and_dependencies(graph):
    tasks = convert_legacy_graph(dict(graph))
    return {key: set(task.dependencies) for key, task in tasks.items()}


@pytest.mark.parametrize("kind", LAZY)
def test_freeze__leaves_nothing_to_optimize(tmp_path, kind):
    frozen = freeze(Table.of(AS_KIND[kind](tmp_path)).rows, "lpe-read", is_foreign=True)

    (optimized,) = dask.optimize(frozen)
    (within,) = dask.optimize(frozen + 1)

    expected = keys_and_dependencies(frozen.dask)
    assert keys_and_dependencies(optimized.dask) == expected
    # Blocks may be fused into what is built on them: then nothing else is under their keys.
    found = keys_and_dependencies(within.dask)
    both = expected.keys() & found.keys()
    assert {key: found[key] for key in both} == {key: expected[key] for key in both}
    np.testing.assert_array_equal(
        frozen.compute(), Table.of(AS_KIND[kind](tmp_path)).rows.compute()
    )


@pytest.mark.parametrize("kind", LAZY)
def test_reread_once__shares_no_task_and_waits(tmp_path, kind):
    rows = Table.of(AS_KIND[kind](tmp_path)).rows
    (task,) = new_tasks("first", [(int,)], [])

    first, second, waiting = reread_once(rows), reread_once(rows), reread_once(rows, task)

    keys = [set(dict(collection.dask)) for collection in (rows, first, second)]
    assert not keys[0] & keys[1]
    assert not keys[1] & keys[2]
    assert first.chunks == rows.chunks or np.isnan(first.chunks[0]).all()
    tasks = convert_legacy_graph(dict(waiting.dask))
    runs = {key for key, spec in tasks.items() if isinstance(spec, Task)}
    assert [k for k in runs if not runs & set(tasks[k].dependencies)] == [task.key]
    for collection in (first, waiting):
        np.testing.assert_array_equal(collection.compute(), rows.compute())


def test_without_aliases__leaves_those_of_tasks_that_others_need_too():
    one, alias = Task("one", int, 1), Alias("alias", "one")
    both = Task("both", max, TaskRef("one"), TaskRef("alias"))

    found = without_aliases({"one": one, "alias": alias, "both": both})

    assert found == {"one": one, "alias": alias, "both": both}
    assert dask.get(found, ["both", "alias"]) == (1, 1)


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_without_aliases__goes_along_chains_of_them(order):
    aliases = {"a": Alias("a", "b"), "b": Alias("b", "one")}
    specs = {"one": Task("one", int, 1), **{key: aliases[key] for key in order}}

    assert without_aliases(specs) == {"a": Task("a", int, 1)}


VARIANTS = [
    {}, {"scale": "standard"}, {"scale": "minmax"}, {"metric": "mahalanobis"},
    {"calibration": "conformal", "random_state": 0}, {"missing": "drop"},
]  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize(
    "kind", mostly_slow(KINDS, ["rechunked", "read_parquet"], ["read_parquet"])
)
def test_fit__names_no_two_tasks_alike(client, tmp_path, caplog, kind):
    """A scheduler that meets other tasks under one key may wait for ever."""
    X = AS_KIND[kind](tmp_path)
    for variant in VARIANTS:
        model = LPE(3, algorithm="brute", **variant).fit(X)
        model.score_samples(dd.from_pandas(QUERIES, npartitions=2)).compute()

    assert [r for r in caplog.records if "execute_task" in r.getMessage()] == []


MODELS = ["euclidean", "geodesic"], [False, True]


@pytest.mark.cluster
@pytest.mark.parametrize(("metric", "is_loaded"), mostly_dealt(*MODELS))
def test_score_samples__names_no_two_tasks_alike(
    client, tmp_path, caplog, metric, is_loaded
):
    """One block makes chains of tasks, which are fused in arrays and nowhere else."""
    model = LPE(3, metric=metric).fit(ROWS[:600])
    if is_loaded:
        model.save(tmp_path / "model")
        model = lpe_dask.load(tmp_path / "model")
    rows = QUERIES.to_numpy()

    scored = [
        model.score_samples(rows),
        model.score_samples(da.from_array(rows, chunks=(40, -1))).compute(),
        model.score_samples(dd.from_pandas(QUERIES, npartitions=2)).compute(),
        model.score_samples(rows),
    ]

    assert [r for r in caplog.records if "execute_task" in r.getMessage()] == []
    for other in scored[1:]:
        np.testing.assert_array_equal(other, scored[0])
    assert eventually(lambda: client.run_on_scheduler(unneeded) == [])


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "n_parts"),
    mostly_slow(
        product(["array", "frame", "delayed", "dropped"], [2, 20]),
        [("array", 20), ("frame", 2), ("delayed", 20), ("dropped", 2)],
        [("frame", 2), ("dropped", 2)],
    ),
)
def test_score_samples__does_not_carry_the_rows_of_the_user(client, kind, n_parts):
    """Nor which of them were dropped."""
    rows = np.random.default_rng(0).standard_normal((300_000, 2))
    frame = pd.DataFrame(rows[: len(rows) // 2], columns=["a", "b"])
    queries = dd.from_pandas(frame[:10].copy(), npartitions=2)
    if kind in ("array", "dropped"):
        rows[5, 1] = np.nan if kind == "dropped" else 0
        X, queries = da.from_array(rows, chunks=(len(rows) // n_parts, 2)), queries.values
    elif kind == "frame":
        X = dd.from_pandas(frame, npartitions=n_parts)
    else:
        parts = [dask.delayed(frame[i::n_parts]) for i in range(n_parts)]
        X = dd.from_delayed(parts, meta=frame[:0])

    model = LPE(3, missing="drop", calibration_size=1000, random_state=0).fit(X)
    scored = model.score_samples(queries)

    assert len(cloudpickle.dumps(dict(scored.dask))) < LITERAL_BYTES // 4
    assert scored.compute().shape == (10,)


@pytest.mark.cluster
def test_p_values__give_each_task_the_values_of_its_rows(client):
    """Also where those of all rows are small enough to ride in a graph, once."""
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(20_000.0) % 613}), npartitions=20)

    p_values = LPE(3).fit(frame).p_values_

    assert len(cloudpickle.dumps(dict(p_values.__dask_graph__()))) < 10 * LITERAL_BYTES // 8


@pytest.mark.cluster
def test_score_samples__of_rows_on_a_cluster_that_is_gone(client):
    """Also where the blocks, which are kept on that cluster, went with it."""
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            memory_limit="16GiB",
        ) as other,
        Client(other),
    ):
        rows = da.from_array(ROWS, chunks=(700, -1)).persist()
        model = LPE(3).fit(rows)
        expected = model.score_samples(ROWS[:20])
        assert len(expected) == 20

    with pytest.raises(RuntimeError, match=r"save.*load"):
        model.score_samples(ROWS[:20])


@pytest.mark.cluster
def test_fit__keeps_blocks_of_rows_that_are_in_a_spool(client, tmp_path, monkeypatch):
    """They are made again only where the spool is not shared any more."""
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 10_000)
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        model = LPE(3, algorithm="brute").fit(ROWS)
        blocks = fitted_of(model).reference.blocks
        kept = blocks._made._persisted

        model.score_samples(from_array()).compute()

    assert kept
    assert blocks._made._persisted is kept


@pytest.mark.cluster
@pytest.mark.parametrize(
    "kind", mostly_full(["array", "from_pandas", "futures"], ["array", "futures"])
)
def test_fit__keeps_persisted_rows(client, tmp_path, kind):
    """Nobody else does, once the collection of the user is gone."""
    with dask.config.set(scheduler="threads"):
        expected = LPE(3).fit(ROWS).score_samples(ROWS[:20])
    if kind == "futures":
        futures = client.map(part_of, range(4))
        X = dd.from_delayed([dask.delayed(abs)(f) for f in futures], meta=FRAME[:0])
        del futures
    else:
        X = AS_KIND[kind](tmp_path).persist()
    model = LPE(3).fit(X)
    del X
    fitted_of(model).reference.blocks._made._persisted = []  # as if their workers were lost

    np.testing.assert_array_equal(model.score_samples(ROWS[:20]), expected)
