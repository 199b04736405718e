"""Groups on workers that are processes: the same bits, many groups, lost workers."""

import os
import signal
import threading
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import lpe_dask
from lpe_dask import LPE
from processes import local_cluster

pytestmark = pytest.mark.cluster

N_ROWS, N_GROUPS, COLUMNS = 300_000, 3000, ["x", "y", "z"]


@pytest.fixture(scope="module")
def client():
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


def table(n_rows, seed):
    """Rows of many groups of unequal sizes, each elsewhere and in units of its own."""
    rng = np.random.default_rng(seed)
    site = (N_GROUPS * rng.random(n_rows) ** 2).astype(int)
    numbers = rng.standard_normal((n_rows, 3)).round(2) * (1 + site % 7)[:, None]
    return pd.DataFrame(numbers + site[:, None], columns=COLUMNS).assign(
        site=np.char.add("s", site.astype(str))
    )


NOMINAL, NEW = table(N_ROWS, 0), table(20_000, 1)
GIVEN = {"scale": "standard", "calibration": "loo", "alpha": 0.02, "random_state": 0}


def test_groups__same_bits_on_a_cluster_and_after_a_worker_is_lost(client, tmp_path):
    """As here, and as a model of the rows of a group alone."""
    here = LPE(by=["site"], **GIVEN).fit(NOMINAL)
    expected, own = here.score_frame(NEW), here.p_values_
    NOMINAL.to_parquet(tmp_path / "nominal.parquet", row_group_size=40_000)
    NEW.to_parquet(tmp_path / "new.parquet", row_group_size=5000)
    nominal, new = (
        dd.read_parquet(tmp_path / f"{name}.parquet", split_row_groups=True)
        for name in ("nominal", "new")
    )

    def lose_one():
        time.sleep(1)
        pid = client.run(os.getpid)
        os.kill(next(iter(pid.values())), signal.SIGKILL)

    killer = threading.Thread(target=lose_one)
    killer.start()
    there = LPE(by=["site"], **GIVEN).fit(nominal)
    killer.join()

    found = there.score_frame(new).compute()
    pd.testing.assert_frame_equal(found.set_axis(expected.index), expected)
    np.testing.assert_array_equal(there.p_values_.compute(), own)
    pd.testing.assert_frame_equal(
        there.groups_.astype({"site": object}), here.groups_.astype({"site": object})
    )
    assert len(here.groups_) > 2900
    sizes = here.groups_.set_index("site")["nominal_rows"]
    for site in [sizes.idxmax(), *sizes[sizes > 60].index[::400]]:
        alone = LPE(**GIVEN).fit(NOMINAL.loc[NOMINAL["site"] == site, COLUMNS])
        which = (NEW["site"] == site).to_numpy()
        p_values = alone.score_samples(NEW.loc[which, COLUMNS])
        np.testing.assert_array_equal(expected["p_value"][which], p_values)


def test_jobs__of_groups_are_the_same_on_a_cluster(client, tmp_path):
    """By files, with the counts of all groups in the summary."""
    NOMINAL.to_parquet(tmp_path / "nominal.parquet", row_group_size=50_000)
    NEW.to_parquet(tmp_path / "new.parquet", row_group_size=5000)
    given = GIVEN | {"by": ["site"]}

    data, out = tmp_path / "new.parquet", tmp_path / "out"
    summary = lpe_dask.score_files(data, out, nominal=tmp_path / "nominal.parquet", **given)

    expected = LPE(**given).fit(NOMINAL).score_frame(NEW)
    found = pd.read_parquet(tmp_path / "out")
    np.testing.assert_array_equal(found["p_value"], expected["p_value"])
    assert summary["rows"] == len(NEW)
    statuses = expected["p_value_status"].value_counts()
    assert summary["p_value_status"] == statuses.to_dict()
    assert summary["flagged"] == expected["is_anomaly"].sum()
