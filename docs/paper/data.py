"""The four public data sets: from a folder of .npz files, or from OpenML and scikit-learn.

banana.npz      X, y, realisation_train     the larger class, y = -1, is nominal
wine.npz        X, y                        class 0 is nominal
ionosphere.npz  X, y                        the larger class, "good", is nominal
usps.npz        X_train, y_train, X_test, y_test    digit 0 is nominal
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import sklearn.datasets
from numpy.typing import NDArray

from lpe_dask.paper.fits import Parts

#: OpenML's number of USPS; the other sets are found by name.
USPS_ID = 41082


class DataMissing(Exception):
    """A data set is not available: no such file, an unreadable one, or no network."""


@dataclass(frozen=True)
class Labelled:
    """Rows with labels.

    Attributes
    ----------
    rows : ndarray of shape (n, n_features)
        float64, in the units of the source.
    is_nominal : ndarray of shape (n,)
    source : str
        Where the rows are from, for the page.
    realisation : ndarray of row numbers, optional
        Rows that belong together: one of the published realisations of a benchmark.
    """

    rows: NDArray[np.float64]
    is_nominal: NDArray[np.bool_]
    source: str
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

    Raises
    ------
    DataMissing
    """
    if folder is None:
        rows, labels = _from_openml(name="banana", version=1)
        source = "Banana: OpenML, all rows; it marks no realisation"
        return Labelled(rows, labels == _most_frequent(labels), source)
    rows, labels, marked = _from_file(folder, "banana", "X", "y", "realisation_train")
    return Labelled(rows, labels == -1, "Banana: banana.npz, all rows", marked)


def load_wine(folder: Path | None) -> Labelled:
    """Return the rows of Wine; class 0 is nominal. None: the copy of scikit-learn."""
    if folder is None:
        rows, labels = sklearn.datasets.load_wine(return_X_y=True)
        return Labelled(rows, labels == 0, "Wine: scikit-learn")
    rows, labels = _from_file(folder, "wine", "X", "y")
    return Labelled(rows, labels == 0, "Wine: wine.npz")


def load_ionosphere(folder: Path | None) -> Labelled:
    """Return the rows of Ionosphere; its larger class is nominal. None: OpenML."""
    if folder is None:
        rows, labels = _from_openml(name="ionosphere", version=1)
        source = "Ionosphere: OpenML"
    else:
        rows, labels = _from_file(folder, "ionosphere", "X", "y")
        source = "Ionosphere: ionosphere.npz"
    return Labelled(rows, labels == _most_frequent(labels), source)


def load_usps(folder: Path | None) -> Labelled:
    """Return the digits of both parts of USPS; digit 0 is nominal. None: OpenML."""
    if folder is None:
        rows, labels = _from_openml(data_id=USPS_ID)
        # OpenML numbers the classes from 1, in the order of the digits.
        return Labelled(rows, labels.astype(np.int64) == 1, "USPS: OpenML, both parts")
    parts = _from_file(folder, "usps", "X_train", "X_test", "y_train", "y_test")
    rows, digits = np.concatenate(parts[:2]), np.concatenate(parts[2:])
    return Labelled(rows, digits == 0, "USPS: usps.npz, both parts")


def _most_frequent(labels: NDArray[Any]) -> Any:
    return pd.Series(labels).mode()[0]


def _from_file(folder: Path, name: str, *keys: str) -> list[NDArray[Any]]:
    """Return arrays of a file; those of rows, whose names begin with X, as float64."""
    path = folder / f"{name}.npz"
    try:
        # If NumPy opens a file itself, it does not close it when it cannot read it.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {key: file[key] for key in keys}
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise DataMissing(
            f"{path} cannot be read ({error}); it must contain {', '.join(keys)}"
        ) from error
    return [a.astype(np.float64) if key[0] == "X" else a for key, a in arrays.items()]


def _from_openml(**which: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # about retries
            found = sklearn.datasets.fetch_openml(**which, as_frame=False, parser="auto")
    except (OSError, ValueError) as error:  # no network, no such data set, a broken cache
        name = which.get("name", which.get("data_id"))
        raise DataMissing(
            f"OpenML did not give its data set {name} ({error}); with --data FOLDER the "
            f"data are read from files"
        ) from error
    return np.asarray(found.data, dtype=np.float64), np.asarray(found.target)
