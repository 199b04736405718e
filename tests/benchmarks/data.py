"""The rows that are measured: made by formula, or public tables.

Everything here is the same at every call. A larger n draws more rows of the same law: its
clusters are those of a smaller n.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import shapes

_Number = TypeVar("_Number", bound=np.generic)

#: ``rows(n_rows, n_features)`` of that shape. FileNotFoundError where a table is missing.
Rows = Callable[[int, int], NDArray[np.generic]]

N_CLUSTERS = 20


class Source(NamedTuple):
    """What rows are called, and where they come from."""

    label: str
    rows: Rows


def gaussian(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return independent standard normal numbers."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n_rows, n_features), dtype=np.float32)


def clusters(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return rows of equally likely unit Gaussians whose centers are N(0, 9)."""
    rng = np.random.default_rng(1)
    centers = 3 * rng.standard_normal((N_CLUSTERS, n_features), dtype=np.float32)
    rows = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    rows += centers[rng.integers(N_CLUSTERS, size=n_rows)]
    return rows


def adbench(name: str) -> Rows:
    """Make a function that draws rows of a table of ADBench."""

    def rows(n_rows: int, n_features: int) -> NDArray[np.generic]:
        with np.load(table_path(f"adbench/{name}.npz")) as file:
            return _some(file["X"], n_rows)

    return rows


def single(name: str) -> Rows:
    """Make a function that gives these rows in float32."""
    return lambda n, d: adbench(name)(n, d).astype(np.float32)


def standard(name: str) -> Rows:
    """Make a function that gives these rows, standardised."""
    return lambda n, d: shapes.standardised(adbench(name)(n, d))


def usps(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return handwritten digits of 16 x 16 grey levels."""
    with np.load(table_path("usps.npz")) as file:
        rows = np.concatenate([file["X_train"], file["X_test"]])
    return _some(rows, n_rows).astype(np.float32)


def kdd99(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return the 38 numbers of KDD Cup 1999, standardised."""
    table = pd.read_parquet(table_path("kdd99.parquet"))
    rows = table.drop(columns=["label", "part"]).select_dtypes("number").to_numpy()
    return _some(shapes.standardised(rows), n_rows)


def table_path(name: str) -> Path:
    """Return the path of a public table, or of a folder of tables."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "data"
    path = Path(os.environ.get("LPE_DASK_DATA", beside)) / name
    if not path.exists():
        raise FileNotFoundError(f"no table at {path} (set LPE_DASK_DATA to its folder)")
    return path


def _some(rows: NDArray[_Number], n_rows: int) -> NDArray[_Number]:
    """Return the rows, or random ones of them if fewer are asked for."""
    if n_rows >= len(rows):
        return rows
    return rows[np.random.default_rng(0).permutation(len(rows))[:n_rows]]


#: The name that a case gives -> where its rows come from.
SOURCES = {
    "gaussian": Source("one Gaussian", gaussian),
    "clusters": Source("20 clusters", clusters),
    "http": Source("http", adbench("16_http")),
    "cover": Source("cover", adbench("10_cover")),
    "http-single": Source("http", single("16_http")),
    "cover-single": Source("cover", single("10_cover")),
    "shuttle-single": Source("shuttle", single("32_shuttle")),
    "cover-standard": Source("cover, standardised", standard("10_cover")),
    "shuttle-standard": Source("shuttle, standardised", standard("32_shuttle")),
    "satellite": Source("satellite", single("30_satellite")),
    "pendigits": Source("pendigits", single("28_pendigits")),
    "mammography": Source("mammography", single("23_mammography")),
    "usps": Source("usps", usps),
    "kdd99": Source("kdd99, standardised", kdd99),
    "flags": Source("flags", shapes.flags),
    "one-hot": Source("one-hot, standardised", shapes.one_hot),
    "whole-numbers": Source("whole numbers", shapes.whole_numbers),
    "log-normal": Source("log-normal", shapes.log_normal),
    "heavy-tailed": Source("heavy-tailed", shapes.heavy_tailed),
    "constant-columns": Source("constant columns", shapes.constant_columns),
    "in-time": Source("rows in time", shapes.in_time),
    "repeats": Source("30 % repeats", shapes.repeats),
    "half-equal": Source("half of the rows equal", shapes.half_equal),
    "mixed": Source("mixed, standardised", shapes.mixed),
}
