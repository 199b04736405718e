"""Rows, and a model of them, for plots that open no window."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lpe_dask import LPE

mpl.use("Agg")


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def nominal():
    rows = np.random.default_rng(0).standard_normal((60, 2))
    return pd.DataFrame(rows, columns=["speed [m/s]", "load [kN]"])


@pytest.fixture(scope="module")
def model(nominal):
    return LPE(n_neighbors=3, alpha=0.1, algorithm="brute").fit(nominal)
