"""The rows that are measured: made by formula, or public tables.

Everything here is the same at every call. A larger n draws more rows of the same law: its
clusters and its sheet are those of a smaller n.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

N_CLUSTERS = 20
SHEET_DIMENSION = 5
SHEET_WAVES = 32


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


def sheet(n_rows: int, n_features: int) -> NDArray[np.float32]:
    """Return rows near a curved sheet of `SHEET_DIMENSION` dimensions.

    Normal coordinates on the sheet pass through random sine waves, which a random map mixes
    into all features; noise of 0.001 gives the sheet a thickness.
    """
    rng = np.random.default_rng(2)
    directions = 0.5 * rng.standard_normal((SHEET_DIMENSION, SHEET_WAVES))
    phases = rng.standard_normal(SHEET_WAVES)
    mixing = rng.standard_normal((SHEET_WAVES, n_features)) / np.sqrt(SHEET_WAVES)
    waves = np.sin(rng.standard_normal((n_rows, SHEET_DIMENSION)) @ directions + phases)
    noise = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    return (waves @ mixing).astype(np.float32) + np.float32(1e-3) * noise


def http(n_rows: int, n_features: int) -> NDArray[np.generic]:
    """Return rows of http: three columns of KDD Cup 1999, most of them repeats."""
    return _table("16_http", n_rows)


def cover(n_rows: int, n_features: int) -> NDArray[np.generic]:
    """Return rows of cover: the ten measured columns of Covertype."""
    return _table("10_cover", n_rows)


def _table(name: str, n_rows: int) -> NDArray[np.generic]:
    """Return a public table, or random rows of it if fewer are asked for."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "data"
    path = Path(os.environ.get("LPE_DASK_DATA", beside)) / "adbench" / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no table at {path} (set LPE_DASK_DATA to its folder)")
    with np.load(path) as file:
        rows = file["X"]
    if n_rows == len(rows):
        return rows
    return rows[np.random.default_rng(0).permutation(len(rows))[:n_rows]]


#: The name that a case gives -> where its rows come from.
SOURCES = {
    "gaussian": Source("one Gaussian", gaussian),
    "clusters": Source("20 clusters", clusters),
    "sheet": Source("5-d sheet", sheet),
    "http": Source("http", http),
    "cover": Source("cover", cover),
}
