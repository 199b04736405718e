"""The four public data sets: from a folder of .npz files, or from OpenML and scikit-learn.

banana.npz      X, y, realisation_train     the larger class, y = -1, is nominal
wine.npz        X, y                        class 0 is nominal
ionosphere.npz  X, y                        the larger class, "good", is nominal
usps.npz        X_train, y_train, X_test, y_test    digit 0 is nominal
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets
from numpy.typing import NDArray

from paper.fits import Parts

#: OpenML's number of USPS; the other sets are found by name.
USPS_ID = 41082


@dataclass(frozen=True)
class Labelled:
    """Rows with labels.

    Attributes
    ----------
    rows : ndarray of shape (n, n_features)
        float64, in the units of the source.
    is_nominal : ndarray of shape (n,)
    realisation : ndarray of row numbers, optional
        Rows that belong together: one of the published realisations of a benchmark.
    """

    rows: NDArray[np.float64]
    is_nominal: NDArray[np.bool_]
    realisation: NDArray[np.integer] | None = None

    def draw(self, sizes: tuple[int, int, int], rng: np.random.Generator) -> Parts:
        """Return at most ``sizes`` training rows, nominal test rows and anomalies."""
        n_training, n_test, n_anomalies = sizes
        nominal = rng.permutation(np.flatnonzero(self.is_nominal))
        anomalies = rng.permutation(np.flatnonzero(~self.is_nominal))[:n_anomalies]
        training, test = nominal[:n_training], nominal[n_training : n_training + n_test]
        return self.rows[training], self.rows[test], self.rows[anomalies]


def load_banana(folder: Path | None) -> Labelled:
    """Return all rows of Banana; the larger class, y = -1, is nominal.

    Parameters
    ----------
    folder : Path, optional
        Contains banana.npz. None: OpenML, which marks no realisation.
    """
    if folder is None:
        rows, labels = _from_openml(name="banana", version=1)
        return Labelled(rows, labels == _most_frequent(labels))
    rows, labels, marked = _from_file(folder, "banana", "X", "y", "realisation_train")
    return Labelled(rows, labels == -1, marked)


def load_wine(folder: Path | None) -> Labelled:
    """Return the rows of Wine; class 0 is nominal. None: the copy of scikit-learn."""
    if folder is None:
        rows, labels = sklearn.datasets.load_wine(return_X_y=True)
    else:
        rows, labels = _from_file(folder, "wine", "X", "y")
    return Labelled(rows, labels == 0)


def load_ionosphere(folder: Path | None) -> Labelled:
    """Return the rows of Ionosphere; its larger class is nominal. None: OpenML."""
    if folder is None:
        rows, labels = _from_openml(name="ionosphere", version=1)
    else:
        rows, labels = _from_file(folder, "ionosphere", "X", "y")
    return Labelled(rows, labels == _most_frequent(labels))


def load_usps(folder: Path | None) -> Labelled:
    """Return the digits of both parts of USPS; digit 0 is nominal. None: OpenML."""
    if folder is None:
        rows, labels = _from_openml(data_id=USPS_ID)
        # OpenML numbers the classes from 1, in the order of the digits.
        return Labelled(rows, labels.astype(np.int64) == 1)
    parts = _from_file(folder, "usps", "X_train", "X_test", "y_train", "y_test")
    return Labelled(np.concatenate(parts[:2]), np.concatenate(parts[2:]) == 0)


def _most_frequent(labels: NDArray[Any]) -> Any:
    return pd.Series(labels).mode()[0]


def _from_file(folder: Path, name: str, *keys: str) -> list[NDArray[Any]]:
    """Return arrays of a file; those of rows, whose names begin with X, as float64."""
    with np.load(folder / f"{name}.npz") as file:
        arrays = {key: file[key] for key in keys}
    return [a.astype(np.float64) if key[0] == "X" else a for key, a in arrays.items()]


def _from_openml(**which: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    found = sklearn.datasets.fetch_openml(**which, as_frame=False, parser="auto")
    return np.asarray(found.data, dtype=np.float64), np.asarray(found.target)
