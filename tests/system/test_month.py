"""A month of a job in fast motion: each day has the verdict, model and exit code it should.

tests/month.py says what goes wrong when.
"""

import pytest

import lpe_dask
from daily import day
from lpe_dask.model import ModelFolder
from month import OUTAGE, month, table, write_tables

pytestmark = pytest.mark.cluster


def test_run__for_a_month_in_which_much_goes_wrong(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(400)
    lines = table(month(cluster.scheduler_address)).set_index("day")

    # Killed and started again, a run ends as any other; of two at once one comes later.
    codes = lines["exit codes"].to_dict()
    assert {number: of for number, of in codes.items() if of != [0]} == {
        3: [0, 2, 0], 5: [-9, 0], 8: [0, 75], 12: [-9, 0], 20: [4], 21: [-9, 0]
    }  # fmt: skip
    # Day 3, done again at the end, has drifted from the model of day 22, and leaves it.
    again = lines.loc[3]
    assert again["verdict"] == "drift"
    assert again[["refit", "new model flags"]].isna().all()
    assert again["model"] == lines["model"][30]
    lines = lines.drop(index=3)
    # Rows drift twice. Half of the nominal rows are still of the old kind on day 21, so the
    # model of that day fits less well, and is replaced once more.
    drifted = lines.index[lines["verdict"] == "drift"].tolist()
    assert drifted == [12, 20, 21, 22]
    assert {*lines["verdict"]} == {"drift", "no drift"}
    outcomes = lines["refit"].dropna().to_dict()
    assert outcomes == {12: "swapped", 20: "rejected", 21: "swapped", 22: "swapped"}
    assert lines["new model flags"][20] > 0.4
    assert max(lines["new model flags"][[12, 21, 22]]) < 0.12
    # A model scores from the day after it was fitted, and with it a series begins.
    of_models = [[*of.index] for _, of in lines.groupby("model", sort=False)]
    assert of_models == [[1, 2, *range(4, 13)], [*range(13, 22)], [22], [*range(23, 31)]]
    numbers = lines["run of the series"].drop(index=[1, 2])  # of which the third was day 3
    assert numbers.tolist() == [*range(4, 13), *range(1, 10), 1, *range(1, 9)]
    # Without drift about as many rows are flagged as alpha promises.
    calm = lines["flagged"][lines["verdict"] == "no drift"]
    assert calm.between(0.02, 0.08).all()
    assert lines["flagged"][drifted].gt(0.1).all()
    # The days of the outage were filled in, and nothing is left to do.
    assert OUTAGE.stop - 1 in lines.index
    days = map(day, range(1, 31))
    assert [lpe_dask.run("job.toml", date=date) for date in days] == [None] * 30
    assert not [path for path in tmp_path.rglob("*") if "_fit-" in path.name]
    assert ModelFolder("model").load().run_date == f"{day(22)}"
