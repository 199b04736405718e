"""Tables that give other rows when they are read again."""

import itertools
from uuid import uuid4

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from choosing import dealt, mostly_dealt, mostly_full, pairs
from lpe_dask import LPE
from lpe_dask.tables.nominal_rows import NominalRows
from lpe_dask.tables.output_series import map_blocks, row_hashes, to_verified_series
from lpe_dask.tables.table import Table
from lpe_dask.tasks import reread_once

N_ROWS, N_PARTS = 100, 2
META = pd.DataFrame({"a": [1.0], "b": [1.0]})


class ChangingTable:
    """A table that changes after its partitions were read some times.

    Parameters
    ----------
    change : {"shrunk", "grown", "reordered", "other", "last column", "cut", "emptied"}
        The last two change the last partition only.
    """

    def __init__(self, change):
        self._change = change
        self.name = uuid4().hex  # Dask takes tables that look alike for one
        self.has_changed = False
        self.readings_left = None

    def _part(self, number):
        if self.readings_left is not None:
            self.has_changed |= self.readings_left <= 0
            self.readings_left -= 1
        change = self._change if self.has_changed else None
        n_rows = N_ROWS + {"shrunk": -40, "grown": 40}.get(change, 0)
        if number == N_PARTS - 1:
            n_rows = {"cut": N_ROWS // 2, "emptied": 0}.get(change, n_rows)
        rng = np.random.default_rng(number)
        rows = rng.standard_normal((n_rows, 2))
        if change == "reordered":
            rows = rows[::-1]
        if change == "other":
            rows[0, 0] += 1
        if change == "last column":
            rows[0, -1] += 1
        return pd.DataFrame(rows, columns=["a", "b"])

    def frame(self):
        """Return it as a dask DataFrame."""
        return dd.from_map(self._part, range(N_PARTS), meta=META)


@pytest.fixture(autouse=True)
def in_order():
    with dask.config.set(scheduler="sync"):  # readings are counted
        yield


CHANGES = {
    "shrunk": "60 rows instead of 100 in partition [01]",
    "grown": "140 rows instead of 100 in partition [01]",
    "reordered": "other rows in partition [01]",
    "other": "other rows in partition [01]",
}
#: Arguments of LPE, and how often fit reads the rows with them.
FITS = {
    "default": ({}, 2),
    "scale": ({"scale": "standard"}, 2),
    "mahalanobis": ({"metric": "mahalanobis"}, 2),
    "split": ({"calibration": "split", "random_state": 0}, 2),
    "conformal": ({"calibration": "conformal", "random_state": 0}, 2),
    "some": ({"calibration_size": 50, "random_state": 0}, 2),
    "geodesic": ({"metric": "geodesic"}, 2),
    "union": ({"metric": "geodesic", "metric_params": {"graph": "union"}}, 2),
}
KINDS = ["frame", "array"]
REMEDY = r".* persist a Dask input first .*, or write it to Parquet"


def as_kind(frame, kind):
    return frame if kind == "frame" else frame.to_dask_array()


@pytest.mark.parametrize(("fit", "kind"), mostly_dealt(FITS, KINDS))
def test_fit__reads_a_table_that_stays_so_often(fit, kind):
    arguments, n_readings = FITS[fit]
    table = ChangingTable("other")
    X = as_kind(table.frame(), kind)
    table.readings_left = n_readings * N_PARTS

    model = LPE(3, algorithm="brute", **arguments).fit(X)

    assert table.readings_left == 0
    assert not table.has_changed
    assert np.isfinite(model.calibration_).all()


CASES = CHANGES, FITS, KINDS


@pytest.mark.parametrize(
    ("change", "fit", "kind"), mostly_full(dealt(*CASES) + pairs(*CASES), dealt(*CASES))
)
def test_fit__of_a_table_that_changes(change, fit, kind):
    """Between any two readings, or within one."""
    arguments, n_readings = FITS[fit]
    for n_partitions in range(N_PARTS, n_readings * N_PARTS):
        table = ChangingTable(change)
        X = as_kind(table.frame(), kind)
        table.readings_left = n_partitions

        with pytest.raises(ValueError, match=CHANGES[change] + REMEDY):
            LPE(3, algorithm="brute", **arguments).fit(X)


TRY_LATER = [*CHANGES, "last column", "cut", "emptied"]
VALUES = TRY_LATER, FITS, ["p_values_", "statistic_"]


@pytest.mark.parametrize(
    ("change", "fit", "name"), mostly_full(dealt(*VALUES) + pairs(*VALUES), dealt(*VALUES))
)
def test_own_values__of_a_frame_that_changes_later(change, fit, name):
    arguments, _ = FITS[fit]
    table = ChangingTable(change)
    model = LPE(3, algorithm="brute", **arguments).fit(table.frame())
    values = getattr(model, name)
    assert len(values.compute()) == N_PARTS * N_ROWS

    table.has_changed = True

    with pytest.raises(ValueError, match="the nominal rows changed .*: the table" + REMEDY):
        values.compute()


@pytest.mark.parametrize("change", TRY_LATER)
def test_own_values__of_an_array_that_changes_later(change):
    """Only those that are measured when they are asked for read it again."""
    table = ChangingTable(change)
    X = table.frame().to_dask_array()
    all_known = LPE(3).fit(X).p_values_
    some_known = LPE(3, calibration_size=50, random_state=0).fit(X).p_values_

    table.has_changed = True

    assert np.isfinite(all_known.compute()).all()
    with pytest.raises(ValueError, match=r"has .* in partition" + REMEDY):
        some_known.compute()


def checked_sums(frame):
    """Return the sum of each row as results are whose rows were read by themselves."""
    rows = reread_once(Table.of(frame).rows)
    sums = map_blocks([rows], lambda part: part.sum(axis=1), name="sum", dtype=float)
    return to_verified_series(sums, "sum", frame, rows)


@pytest.mark.parametrize("change", mostly_full(TRY_LATER, ["shrunk", "other", "emptied"]))
def test_to_verified_series__of_a_frame_that_changes(change):
    """Between any two readings: an error, or values of rows that were read alike."""
    table = ChangingTable(change)
    before = [table.frame().partitions[i].compute() for i in range(N_PARTS)]
    table.has_changed = True
    after = [table.frame().partitions[i].compute() for i in range(N_PARTS)]
    states = itertools.product(*zip(before, after, strict=True))
    expected = [pd.concat(parts).sum(axis=1).tolist() for parts in states]
    errors = []
    for n_partitions in range(4 * N_PARTS):
        table = ChangingTable(change)
        sums = checked_sums(table.frame())
        table.readings_left = n_partitions
        try:
            found = sums.compute()
        except ValueError as error:
            errors.append(str(error))
        else:
            assert found.tolist() in expected

    assert errors
    assert all("gave other rows from row" in error for error in errors)
    assert not table.has_changed  # all readings were tried


def test_to_verified_series__has_the_index_of_the_frame():
    """Also where partitions are empty, or of one row."""
    table = pd.DataFrame({"a": np.arange(9.0), "b": 1.0}, index=range(50, 59))
    parts = [table[:0], table[:1], table[1:8], table[8:8], table[8:]]
    frame = dd.from_map(lambda part: part, parts, meta=table[:0])

    actual = checked_sums(frame).compute()

    pd.testing.assert_series_equal(actual, table.sum(axis=1).rename("sum"))
    assert checked_sums(frame.partitions[[0, 3]]).compute().empty


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_again__of_an_array_that_was_changed(missing):
    rows = np.random.default_rng(0).standard_normal((100, 2))
    rows[0, 0] = np.nan if missing == "drop" else 0
    nominal = NominalRows.of(Table.of(rows), missing)

    rows[-1, -1] += 1

    for again in (nominal.again, nominal.reread):
        with pytest.raises(ValueError, match=r"other rows in partition 0.*Do not change"):
            again().compute()


def test_row_hashes__differ_where_rows_do():
    rows = np.array(list(itertools.product([0.0, 0.5, 1, 2, np.nan, np.inf], repeat=3)))

    hashes = row_hashes(rows)

    assert len(np.unique(hashes)) == len(rows)
    np.testing.assert_array_equal(row_hashes(rows.astype(np.float32)), hashes)
    np.testing.assert_array_equal(row_hashes(np.asfortranarray(rows)), hashes)
    assert len(np.unique(row_hashes(np.arange(3e5)[:, None] / 8))) == 300_000
    assert row_hashes(rows[:0]).shape == (0,)
