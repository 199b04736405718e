"""How often a fit reads its input: once to survey all rows, and once to pack them.

A third reading is needed for what depends on how many rows there are: quantiles, medians,
and what "conformal" learns from a part, if that is not known:
docs/guide/cluster.md.
"""

from collections import Counter
from contextlib import contextmanager
from uuid import uuid4

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

import lpe_dask
from lpe_dask import LPE
from lpe_dask.model import fit_model, fitting
from lpe_dask.search import MemoryEstimate
from lpe_dask.tables.parquet_files import RowGroups

N_PARTS, N_ROWS = 3, 60
NUMBERS = ["x", "y"]
TEXT, DAY = ["text"], ["day"]

#: Arguments, columns beside numbers, and how often each partition is read.
FITS = {
    "plain": ({}, [], 2),
    "minmax": ({"scale": "minmax"}, [], 2),
    "standard": ({"scale": "standard"}, [], 2),
    "quantile": ({"scale": "quantile"}, [], 3),
    "minmax+quantile": ({"scale": "minmax+quantile"}, [], 3),
    "radius": ({"graph": "radius", "scale": "minmax"}, [], 2),
    "weights": ({"metric_params": {"w": [1, 2]}}, [], 2),
    "seuclidean": ({"metric": "seuclidean"}, [], 2),
    "seuclidean by quantiles": ({"metric": "seuclidean", "scale": "quantile"}, [], 3),
    "mahalanobis": ({"metric": "mahalanobis"}, [], 2),
    "mahalanobis, scaled": ({"metric": "mahalanobis", "scale": "standard"}, [], 2),
    "mahalanobis by both": ({"metric": "mahalanobis", "scale": "minmax+quantile"}, [], 3),
    "categories": ({"categorical": TEXT}, TEXT, 2),
    "categories, found": ({"categorical": "auto", "scale": "standard"}, TEXT, 2),
    "drop": ({"missing": "drop", "scale": "standard"}, [], 2),
    "measure": ({"missing": "measure"}, [], 3),
    "measure, scaled": ({"missing": "measure", "scale": "standard"}, [], 3),
    "measure by quantiles": ({"missing": "measure", "scale": "quantile"}, [], 3),
    "some": ({"calibration": "loo", "calibration_size": 30}, [], 2),
    "split": ({"calibration": "split", "scale": "minmax"}, [], 2),
    "conformal": ({"calibration": "conformal"}, [], 2),
    "conformal, scaled": ({"calibration": "conformal", "scale": "standard"}, [], 3),
    "conformal by quantiles": ({"calibration": "conformal", "scale": "quantile"}, [], 3),
    "conformal, measure": (
        {"calibration": "conformal", "missing": "measure", "scale": "standard"}, [], 3,
    ),
    "all": (
        {
            "calibration": "conformal", "missing": "drop", "scale": "standard",
            "categorical": TEXT,
        }, TEXT, 3,
    ),
    "groups": ({"by": DAY}, DAY, 2),
    "groups, categories": ({"by": DAY, "categorical": TEXT}, [*TEXT, *DAY], 2),
    "groups, one scale": (
        {"by": DAY, "own": ["calibration"], "scale": "standard"}, DAY, 2,
    ),
    "groups, scaled": ({"by": DAY, "scale": "standard"}, DAY, 2),
    "groups, conformal": ({"by": DAY, "calibration": "conformal"}, DAY, 2),
    "geodesic": ({"metric": "geodesic"}, [], 2),
    "union": ({"metric": "geodesic", "metric_params": {"graph": "union"}}, [], 2),
}  # fmt: skip


class CountedTable:
    """A table that counts how often each partition is read."""

    def __init__(self, *, has_gaps=False):
        self.has_gaps = has_gaps
        self.name = uuid4().hex  # Dask takes tables that look alike for one
        self.n_read = Counter()

    def part(self, number):
        """Return a partition."""
        self.n_read[number] += 1
        rng = np.random.default_rng(number)
        frame = pd.DataFrame(rng.standard_normal((N_ROWS, 2)), columns=NUMBERS)
        if self.has_gaps:
            frame.loc[number, "x"] = np.nan
        text = pd.array(rng.choice(list("ab"), N_ROWS), dtype="string")
        return frame.assign(text=text, day=rng.integers(0, 2, N_ROWS))

    def frame(self, columns):
        """Return it as a dask DataFrame."""
        meta = self.part(0)[:0]
        self.n_read.clear()
        return dd.from_map(self.part, range(N_PARTS), meta=meta)[columns]

    def array(self):
        """Return its numbers as a dask array, of known chunks."""

        def numbers(number):
            return self.part(number)[NUMBERS].to_numpy()

        parts = [delayed(numbers)(number) for number in range(N_PARTS)]
        shape = (N_ROWS, len(NUMBERS))
        return da.concatenate([da.from_delayed(of, shape, float) for of in parts])


@contextmanager
def counted_files():
    """Count which columns of parts of files are read."""
    n_read, read = Counter(), RowGroups.read

    def noting(part, columns):
        n_read[tuple(columns)] += 1
        return read(part, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowGroups, "read", noting)
        yield n_read


@pytest.mark.parametrize("fit", FITS)
def test_fit__reads_each_partition_so_often(fit):
    arguments, others, n_readings = FITS[fit]
    table = CountedTable(has_gaps="missing" in arguments)
    given = {"calibration": "loo", "random_state": 0} | arguments
    if given.get("graph") != "radius":
        given["n_neighbors"] = 3

    with dask.config.set(scheduler="sync"):
        frame = table.frame([*NUMBERS, *others])
        model = LPE(**given).fit(frame)
        assert table.n_read == dict.fromkeys(range(N_PARTS), n_readings)
        expected = LPE(**given).fit(frame.compute())

    np.testing.assert_array_equal(model.calibration_, expected.calibration_)


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"scale": "standard"}, {"metric": "mahalanobis"}, {"calibration": "split"},
        *(
            {"calibration": "conformal", "scale": scale, "metric": metric}
            for scale in ("minmax", "standard")
            for metric in ("euclidean", "mahalanobis")
        ),
    ],
)  # fmt: skip
def test_fit__reads_what_has_a_known_number_of_rows_twice(arguments, tmp_path):
    """Also with "conformal": arrays know it, and footers of files say it."""
    table, given = CountedTable(), {"n_neighbors": 3, "random_state": 0} | arguments
    for number in range(N_PARTS):
        table.part(number)[NUMBERS].to_parquet(tmp_path / f"{number}.parquet")
    table.n_read.clear()

    with dask.config.set(scheduler="sync"):
        found = LPE(**given).fit(table.array())
        assert table.n_read == dict.fromkeys(range(N_PARTS), 2)
        expected = LPE(**given).fit(table.frame(NUMBERS))
        with counted_files() as n_read:
            of_files = LPE(**given).fit(str(tmp_path))

    assert n_read == {tuple(NUMBERS): 2 * N_PARTS}
    for model in (found, of_files):
        np.testing.assert_array_equal(model.calibration_, expected.calibration_)
        np.testing.assert_array_equal(model.p_values_, expected.p_values_.compute())


def test_fit__of_files_that_were_appended_to(tmp_path):
    """They have other rows than their footers said when they were opened."""
    table = CountedTable()
    frame = table.part(0)[NUMBERS]
    given = {"calibration": "conformal", "scale": "minmax", "random_state": 0}
    known = pd.concat([frame, frame + 1, frame], ignore_index=True)

    with dask.config.set(scheduler="sync"):
        parts = dd.from_pandas(known, npartitions=1)
        for sizes in ([N_ROWS], [5 * N_ROWS]):
            model = fit_model(LPE(3, **given).get_params(), parts, sizes=sizes)
            expected = LPE(3, **given).fit(known)
            np.testing.assert_array_equal(model.calibration.values, expected.calibration_)


@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_fit__reads_once_more_what_workers_cannot_hold(calibration, monkeypatch):
    table = CountedTable()
    given = {"n_neighbors": 3, "calibration": calibration, "random_state": 0}
    with dask.config.set(scheduler="sync"):
        expected = LPE(**given).fit(table.frame(NUMBERS)).calibration_
        monkeypatch.setattr(fitting, "can_hold", lambda shape, n_bytes: False)

        found = LPE(**given).fit(table.frame(NUMBERS)).calibration_

    assert table.n_read == dict.fromkeys(range(N_PARTS), 3)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("algorithm", ["brute", "pruned"])
@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_fit__holds_rows_in_the_spool(calibration, algorithm, monkeypatch, tmp_path):
    table = CountedTable()
    given = {"calibration": calibration, "algorithm": algorithm, "random_state": 0}
    config = {"lpe-dask.spool": str(tmp_path), "lpe-dask.block-rows": 64}
    with dask.config.set(config, scheduler="sync"):
        expected = LPE(3, **given).fit(table.frame(NUMBERS)).calibration_
        monkeypatch.setattr(
            MemoryEstimate, "fits", lambda needs, *_: bool(needs.plan.is_spooled)
        )
        model = LPE(3, **given).fit(table.frame(NUMBERS))

    assert any(tmp_path.rglob("block-*"))
    assert not any(tmp_path.rglob("rows-*"))
    assert table.n_read == dict.fromkeys(range(N_PARTS), 2)
    np.testing.assert_array_equal(model.calibration_, expected)


def test_fit__of_objects_that_are_numbers_reads_once_more():
    """That columns of objects have no text is seen only when all rows have been read."""
    table = CountedTable()
    frame = table.frame(NUMBERS).astype({"x": object})
    with dask.config.set(scheduler="sync"):
        LPE(3, categorical="auto").fit(frame)

    assert table.n_read == dict.fromkeys(range(N_PARTS), 3)


def test_fit__of_numbers_beyond_floats_reads_twice_more():
    """For their least one, and again by that."""
    table, large = CountedTable(), 1_700_000_000_000_000_000

    def with_large(part):
        return part.assign(x=large + 3 * np.arange(len(part)))

    frame = table.frame(NUMBERS).map_partitions(with_large)
    with dask.config.set(scheduler="sync"):
        LPE(3).fit(frame)

    assert max(table.n_read.values()) == 4


@pytest.mark.parametrize(
    ("arguments", "n_readings"),
    [
        ({}, 3),
        ({"scale": "standard"}, 3),
        ({"calibration": "conformal", "scale": "standard"}, 4),
    ],
)
def test_run__reads_measured_columns_so_often(arguments, n_readings, tmp_path):
    """Those of the same table: for the fit, and for the reasons of anomalous rows.

    With "conformal" also to score the rows that are no calibration rows. What is carried
    over is read to be written.
    """
    table, data = CountedTable(), tmp_path / "data"
    data.mkdir()
    for number in range(N_PARTS):
        table.part(number).to_parquet(data / f"{number}.parquet")
    given = {"columns": NUMBERS, "keep": TEXT, "n_neighbors": 3, **arguments}

    with dask.config.set(scheduler="sync"), counted_files() as n_read:
        lpe_dask.batch.score_files(str(data), str(tmp_path / "out"), **given)

    assert n_read[tuple(NUMBERS)] == n_readings * N_PARTS
