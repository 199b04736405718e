"""How long a run takes at most, by the sizes of its tables alone."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lpe_dask import LPE
from lpe_dask.batch import Run, score_files, score_job
from lpe_dask.forecast.sizes import Workload
from lpe_dask.model import checked_parameters
from lpe_dask.tasks import Workers

FIT = checked_parameters({"n_neighbors": 5})


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n_rows in (("nominal", 60), ("new", 20)):
        rows = pd.DataFrame(rng.standard_normal((n_rows, 2)), columns=["x", "y"])
        rows.to_parquet(f"{name}.parquet")


def test_seconds__grow_with_pairs_and_fall_with_threads():
    small, large = (Workload.of_fit(FIT, [n], [], 8) for n in (10**4, 10**5))

    assert 20 < large.seconds(1) / small.seconds(1) <= 100
    assert large.seconds(4) == large.seconds(1) / 4
    assert large.seconds(1) < Workload.of_fit(FIT, [10**5], [10**5], 8).seconds(1)


def test_seconds__of_an_approximate_search_are_not_forecast():
    approximate = FIT | {"algorithm": "nn_descent"}

    assert Workload.of_fit(approximate, [50], [], 8).seconds(1) == math.inf


def test_fit_into__is_that_of_the_plan():
    sizes = Workload.of_fit(FIT, [10**6] * 4, [], 50)
    workers = Workers(1, 1, 64 * 2**30)

    assert sizes.fit_into(workers)
    assert not sizes.fit_into(replace(workers, memory_limit=2**29))


def test_of_run__counts_the_rows_of_all_tables(tables):
    own = score_job("nominal.parquet", "own")
    both = score_job("new.parquet", "both", nominal="nominal.parquet")
    LPE().fit("nominal.parquet").save("model")
    by_model = score_job("new.parquet", "by-model", model="model")

    sizes = [Workload.of_run(Run.prepare(job, "refuse")) for job in (own, both, by_model)]

    assert [each.shape.n_reference for each in sizes] == [60, 60, 60]
    assert [each.n_queries for each in sizes] == [60, 80, 20]


def test_of_explanations__has_those_of_the_rows_asked_for(tables):
    score_files("new.parquet", "out", nominal="nominal.parquet")

    sizes = Workload.of_explanations("out", 7)

    assert (sizes.shape.n_reference, sizes.n_queries, sizes.n_read) == (60, 7, 20)
