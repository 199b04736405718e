"""Where no scale was chosen: which column makes up nearly all of the distance."""

import ast
import logging
import re
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.model.scale_advice import typical_shares

ADVICE = (
    "amount makes up 99 % of the typical distance between nominal rows, so that the other "
    "columns hardly count: give scale='standard' (--scale standard)."
)


@pytest.fixture
def orders():
    """A table in which amounts are far larger than all else."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "items": rng.poisson(3, 400),
            "amount": rng.normal(500, 40, 400),
            "rate": rng.random(400),
        }
    )


def said(caplog):
    """Return the lines that are about a scale."""
    return [r.getMessage() for r in caplog.records if "scale=" in r.getMessage()]


@pytest.mark.parametrize("with_nominal", [False, True])
def test_score__says_once_which_column_makes_up_the_distance(with_nominal, orders, caplog):
    for table in (dd.from_pandas(orders, npartitions=3), orders.to_numpy()):
        lpe_dask.score(table, nominal=table if with_nominal else None, n_neighbors=5)

    assert said(caplog) == [ADVICE, ADVICE.replace("amount", "column 1")]


def test_score__says_it_also_where_every_row_has_a_gap(orders, caplog):
    for place, name in enumerate(orders):
        orders.loc[orders.index % 3 == place, name] = np.nan

    lpe_dask.score(orders, n_neighbors=5, missing="measure")

    assert said(caplog) == [ADVICE.replace("99", said(caplog)[0].split()[3])]


def test_score__finds_more_with_what_it_says(orders, caplog):
    orders.loc[7, "items"] = 15

    assert lpe_dask.score(orders, n_neighbors=5)[7] > 0.01
    (advice,) = said(caplog)
    (record,) = caplog.records
    assert (record.levelno, record.name.split(".")[0]) == (logging.WARNING, "lpe_dask")
    given = ast.literal_eval(re.search(r"give scale=('\w+')", advice)[1])
    assert lpe_dask.score(orders, n_neighbors=5, scale=given)[7] <= 0.01
    assert said(caplog) == [advice]


def same_scale(orders):
    return orders.assign(amount=orders["amount"] / 40)


def rare_flags(orders):
    return orders[["rate"]].assign(
        gift=orders.index % 50 == 0, returned=orders.index % 40 == 1
    )


def mostly_zero(orders):
    return orders[["rate"]].assign(
        discount=np.where(orders.index % 10 == 0, orders["rate"], 0)
    )


def categories(orders):
    kind = np.where(orders.index % 30, "a", "b")
    return pd.DataFrame({"shop": (orders.index % 50).astype(str), "kind": kind})


QUIET = {
    "no scale, by choice": (None, {"scale": None}),
    "minmax": (None, {"scale": "minmax"}),
    "weights": (None, {"metric_params": {"w": [1.0, 0.1, 1.0]}}),
    "variances": (None, {"metric": "seuclidean"}),
    "covariance": (None, {"metric": "mahalanobis"}),
    "radius": (None, {"graph": "radius", "radius": 9.0, "n_neighbors": None}),
    "no column outweighs all": (same_scale, {}),
    "a single column": (lambda orders: orders[["amount"]], {}),
    "others are constant": (lambda orders: orders.assign(items=1, rate=2.0), {}),
    "others are rarely set": (rare_flags, {}),
    "another is mostly 0": (mostly_zero, {}),
    "categories have no scale": (categories, {"categorical": "auto"}),
    "equal rows": (lambda orders: orders.iloc[[0] * 50], {}),
    "beyond float64": (lambda orders: orders.assign(amount=orders["rate"] * 1e300), {}),
}


@pytest.mark.parametrize("case", QUIET)
def test_score__is_silent(case, orders, caplog):
    change, arguments = QUIET[case]
    table = orders if change is None else change(orders)

    lpe_dask.score(table, **({"n_neighbors": 5} | arguments))

    assert said(caplog) == []


def test_lpe__is_silent(orders, caplog):
    model = lpe_dask.LPE(5).fit(orders)
    model.score_samples(orders)
    model.fit_predict(orders)
    model.check_calibration()

    assert said(caplog) == []


def test_advice__reads_nothing_again(orders):
    read = []

    def part(number):
        read.append(number)
        return orders.iloc[number * 100 : (number + 1) * 100]

    def readings(**arguments):
        read.clear()
        table = dd.from_map(part, range(4), meta=orders.iloc[:0])
        lpe_dask.score(table, n_neighbors=5, **arguments).compute(scheduler="sync")
        return sorted(read)

    assert readings() == readings(scale=None)


def test_advice__counts_a_category_that_differs_as_1(orders, caplog):
    rng = np.random.default_rng(1)
    orders["region"] = rng.choice([f"region {i}" for i in range(50)], 400)
    del orders["items"], orders["rate"]

    lpe_dask.score(orders.assign(amount=orders["amount"] / 40), categorical="auto")
    assert said(caplog) == []
    lpe_dask.score(orders, categorical="auto")
    assert said(caplog) == [ADVICE]


@pytest.mark.parametrize("factor", [9, 11])
def test_typical_shares__are_medians_of_pairs(factor):
    rows = np.tile([[0.0, 0.0], [1.0, 1.0]], (500, 1)) * np.sqrt([factor, 1])

    shares = typical_shares(rows)

    np.testing.assert_allclose(shares, np.array([factor, 1]) / (factor + 1))


def test_typical_shares__leave_out_pairs_that_overflow():
    rows = np.tile([[0.0, 0.0], [3.0, 1.0]], (500, 1))
    rows[::20, 0] = 1e200

    np.testing.assert_allclose(typical_shares(rows), [0.9, 0.1])


def test_score_files__says_it_for_runs_of_jobs_too(orders, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    orders.to_parquet("orders.parquet")
    Path("job.toml").write_text(
        "[model]\nn_neighbors = 5\n[score]\ndata = 'orders.parquet'\noutput = 'by-job'\n"
    )

    lpe_dask.score_files("orders.parquet", "scored", n_neighbors=5, check_calibration=True)
    assert said(caplog) == [ADVICE]
    lpe_dask.run("job.toml")
    assert said(caplog) == [ADVICE] * 2
    lpe_dask.score_files("orders.parquet", "none", n_neighbors=5, scale=None)
    lpe_dask.LPE(5).fit("orders.parquet").save("model")
    lpe_dask.score_files("orders.parquet", "by-model", model="model")
    assert said(caplog) == [ADVICE] * 2
