"""The rows that are measured: made by formula, or public tables.

Everything here is the same at every call. A larger n draws more rows of the same law: its
clusters are those of a smaller n.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import shapes

_Number = TypeVar("_Number", bound=np.generic)

N_CLUSTERS = 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from.

    Attributes
    ----------
    label : str
    rows : callable
        ``rows(n_rows, n_features)`` of that shape. FileNotFoundError where a table is
        missing.
    """

    label: str
    rows: Callable[[int, int], NDArray[np.generic]]


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


def http(n_rows: int, n_features: int) -> NDArray[np.generic]:
    """Return rows of http: three columns of KDD Cup 1999, most of them repeats."""
    return _some(_adbench("16_http"), n_rows)


def cover(n_rows: int, n_features: int) -> NDArray[np.generic]:
    """Return rows of cover: the ten measured columns of Covertype."""
    return _some(_adbench("10_cover"), n_rows)


def _single(name: str, n_rows: int) -> NDArray[np.float32]:
    return _some(_adbench(name), n_rows).astype(np.float32)


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


def _adbench(name: str) -> NDArray[np.generic]:
    with np.load(table_path(f"adbench/{name}.npz")) as file:
        rows: NDArray[np.generic] = file["X"]
    return rows


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
    "http": Source("http", http),
    "cover": Source("cover", cover),
    "http-single": Source("http", lambda n, d: _single("16_http", n)),
    "cover-single": Source("cover", lambda n, d: _single("10_cover", n)),
    "shuttle-single": Source("shuttle", lambda n, d: _single("32_shuttle", n)),
    "cover-standard": Source(
        "cover, standardised", lambda n, d: shapes.standardised(cover(n, d))
    ),
    "shuttle-standard": Source(
        "shuttle, standardised",
        lambda n, d: shapes.standardised(_some(_adbench("32_shuttle"), n)),
    ),
    "satellite": Source("satellite", lambda n, d: _single("30_satellite", n)),
    "pendigits": Source("pendigits", lambda n, d: _single("28_pendigits", n)),
    "mammography": Source("mammography", lambda n, d: _single("23_mammography", n)),
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
