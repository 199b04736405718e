"""The same bits however rows are cut, where their blocks are, and whoever computes."""

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from choosing import mostly_full
from lpe_dask import LPE
from lpe_dask.search.memory import MemoryEstimate
from problems import ESTIMATORS, computed, lattice

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")

NAMES = ["a", "b", "c"]
NOMINAL = pd.DataFrame(lattice(150, 0), columns=NAMES)
NEW = pd.DataFrame(lattice(40, 1, -3, 13), columns=NAMES, index=np.arange(40) * 3)
NEW.iloc[7, 1] = np.nan

OWN = ["p_values_", "statistic_"]
METHODS = ["score_samples", "statistic", "predict", "explain", "nearest_nominal"]


def unfitted(name):
    return LPE(**{"random_state": 0, "alpha": 0.1} | ESTIMATORS[name])


def results(model, rows):
    """Return all that a model says of rows, and of its own if it has them."""
    said = [getattr(model, method)(rows) for method in METHODS]
    said += [getattr(model, name) for name in OWN if hasattr(model, name)]
    return list(map(computed, said))


def assert_same(found, right):
    for values, expected in zip(found, right, strict=False):
        pd.testing.assert_frame_equal(
            pd.DataFrame(values), pd.DataFrame(expected), check_exact=True
        )


@pytest.fixture(scope="module")
def expected():
    """What this process finds in rows that are in one piece."""

    def found(name):
        if name not in known:
            with dask.config.set(scheduler="sync"):
                model = unfitted(name).fit(NOMINAL)
                known[name] = results(model, NEW)
        return known[name]

    known = {}
    return found


#: Rows of a chunk, and of a block, and the scheduler.
PLACES = {
    "chunks": (17, 32, "sync"),
    "threads": (64, 64, "threads"),
    "spool": (150, 64, "threads"),
    "cluster": (40, 64, None),
}
SOME = [
    ("weights", "chunks"), ("union", "threads"), ("mean", "spool"), ("geodesic", "spool"),
    ("conformal part", "spool"), ("many pruned", "chunks"), ("geodesic split", "chunks"),
    ("density radius", "threads"), ("quantile", "threads"), ("mean", "cluster"),
]  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("name", "place"), mostly_full(itertools.product(ESTIMATORS, PLACES), SOME)
)
def test_results__have_the_same_bits(name, place, expected, request, tmp_path, monkeypatch):
    """Also those of a model that is saved there, and loaded."""
    right, (n_rows, block_rows, scheduler) = expected(name), PLACES[place]
    config = {"lpe-dask.block-rows": block_rows, "lpe-dask.spool": str(tmp_path / "spool")}
    if place == "spool":
        monkeypatch.setattr(
            MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled
        )
    if place == "cluster":
        request.getfixturevalue("client")
    if scheduler is not None:
        config["scheduler"] = scheduler

    with dask.config.set(config):
        model = unfitted(name).fit(dd.from_pandas(NOMINAL, chunksize=n_rows))
        rows = dd.from_pandas(NEW, chunksize=n_rows - 10)
        assert_same(results(model, rows), right)
        model.save(tmp_path / "model")
        density = model.anomaly_log_density
        loaded = lpe_dask.load(tmp_path / "model", anomaly_log_density=density)
        assert_same(results(loaded, rows), right)
