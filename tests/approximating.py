"""Models that miss some neighbors of small tables, and the exact ones beside them."""

import functools

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from indexes import right_lists
from lpe_dask import LPE
from lpe_dask.kernels import Index, beam_search, block_index, nn_descent
from lpe_dask.kernels.block_index import joined_lists
from lpe_dask.search import plan

#: Most rows of a block, so that small tables have several.
BLOCK_ROWS = 1280

#: Rows that one is listed with, that it leads to, and of a beam beyond K: a search is to
#: miss some rows of a block.
LISTED, DEGREE, BEAM_ROWS = 8, 12, 76


def small_searches(monkeypatch):
    """Search small tables, along right lists; what is returned replaces these.

    For pynndescent takes half a minute to begin with.
    """

    def joined(of_rows):
        return joined_lists(of_rows[:, :LISTED], DEGREE)

    def replace(function):
        monkeypatch.setattr(nn_descent, "neighbor_lists", function)

    monkeypatch.setattr(plan, "MAX_INDEXED_ROWS", BLOCK_ROWS)
    monkeypatch.setattr(beam_search, "BEAM_ROWS", BEAM_ROWS)
    monkeypatch.setattr(block_index, "joined_lists", joined)
    monkeypatch.setattr(Index, "DEGREE", DEGREE)
    replace(right_lists)
    return replace


def _rows(n_rows, seed, n_features=12):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((6, n_features))
    rng = np.random.default_rng(seed)
    noise = 0.1 * rng.standard_normal((n_rows, n_features))
    return np.sin(rng.standard_normal((n_rows, 6)) @ turn) + noise


NOMINAL, NEW = _rows(5000, 1), np.concatenate([_rows(3300, 2), 3 * _rows(60, 3)])
GIVEN = {"n_neighbors": 8, "calibration_size": 400, "random_state": 0}


def models(**arguments):
    """Return an approximate model, and the exact one that it is compared with."""
    model = LPE(**GIVEN | arguments, algorithm="nn_descent").fit(NOMINAL)
    return model, exact_model(**arguments)


@functools.cache
def exact_model(**arguments):
    """Return the model of an exact search."""
    return LPE(**GIVEN | arguments, algorithm="brute").fit(NOMINAL)


@functools.cache
def good_model():
    """Return an approximate model along right lists, and its p-values of new rows."""
    model = LPE(**GIVEN, algorithm="nn_descent").fit(NOMINAL)
    return model, model.score_samples(NEW)


def check_exact_up_to(level, found, right):
    """Compare p-values with those of an exact search."""
    assert (found <= right).all()
    np.testing.assert_array_equal(found <= level, right <= level)
    np.testing.assert_array_equal(found[right <= level], right[right <= level])


def kinds():
    """Return the new rows in each kind of input but arrays of NumPy."""
    frame = pd.DataFrame(NEW, columns=[f"x{k}" for k in range(NEW.shape[1])])
    return {
        "pandas": frame,
        "dask array": da.from_array(NEW, chunks=(700, -1)),
        "dask array, other chunks": da.from_array(NEW, chunks=((1, 1000, 2359), -1)),
        "dask array of unknown chunks": dd.from_pandas(frame, npartitions=3).values,
        "dask frame": dd.from_pandas(frame, npartitions=4),
    }


def as_files(folder):
    """Write the nominal rows and the new ones, and return the paths."""
    paths = [folder / "nominal.parquet", folder / "new.parquet"]
    for path, rows in zip(paths, (NOMINAL, NEW), strict=True):
        pd.DataFrame(rows).rename(columns=str).to_parquet(path)
    return paths
