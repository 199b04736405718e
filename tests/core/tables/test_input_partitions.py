"""Partitions that are not what Dask says: the cases of docs/guide/input_partitions.md."""

import re
from decimal import Decimal
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

from choosing import dealt, mostly_full
from lpe_dask import LPE, score

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "input_partitions.md"

ROWS = pd.DataFrame(
    np.random.default_rng(0).integers(0, 9, (60, 3)).astype(float), columns=list("abc")
)
ARRAY = ROWS.to_numpy()


def decimals(part):
    values = [Decimal(int(x)) for x in part["c"]]
    return part.assign(c=pd.array(values, pd.ArrowDtype(pa.decimal128(9, 2))))


def as_type(dtype):
    return lambda part: part.astype(dtype)


def of_c(convert):
    """Make a function that converts the last column of a partition."""
    return lambda part: part.assign(c=convert(part["c"]))


def emptied(part):
    return pd.DataFrame()


WHOLE = pd.ArrowDtype(pa.int64())
SAME = None

#: Line of the page -> what becomes of a partition, and what is said (None: measured).
PARTITIONS = {
    "a partition with columns in another order": (SAME, [lambda p: p[["c", "a", "b"]]]),
    "a partition with further columns": (SAME, [lambda p: p.assign(d="x")]),
    "a partition without columns and rows": (SAME, [emptied]),
    "a partition of numbers of another width, or nullable ones": (
        SAME,
        [as_type(t) for t in ("float32", "int8", "Int64", "Float32")],
    ),
    "a partition of whole numbers of Arrow": (SAME, [of_c(lambda c: c.astype(WHOLE))]),
    "a partition of decimals, in a column that is measured as numbers": (SAME, [decimals]),
    "a partition of objects that are numbers": (SAME, [lambda p: p.astype(object)]),
    "a partition that lacks a column": (
        "partition 1 lacks the column 'c'",
        [lambda p: p[["a", "b"]]],
    ),
    "a partition with two columns of one name": (
        "partition 1 has 2 columns 'c'",
        [lambda p: p[["a", "b", "c", "c"]]],
    ),
    "a partition with other names": (
        "partition 1 lacks the column '[ac]'",
        [lambda p: p.set_axis(range(3), axis=1)],
    ),
    "a partition with dates": (
        "in partition 1.* 'c'.*datetime64",
        [of_c(lambda c: pd.Timestamp("2026-11-01"))],
    ),
    "a partition with durations, in whatever unit": (
        "in partition 1.* 'c'.*timedelta64",
        [of_c(lambda c, u=u: c.astype(f"m8[{u}]")) for u in ("s", "ns")],
    ),
    "a partition with complex numbers": ("in partition 1.*'c'", [of_c(lambda c: c + 1j)]),
    "a partition with text": ("'c'", [of_c(lambda c: c.astype("string"))]),
    "a partition with bytes": ("'c'", [of_c(lambda c: [b"1"] * len(c))]),
    "a partition with sparse columns that are measured as numbers": (
        "in partition 1.*'c'.*Sparse",
        [of_c(lambda c: c.astype(pd.SparseDtype(float, 0)))],
    ),
    "an array or a Series where a DataFrame should be": (
        "partition 1 is of type (ndarray|Series)",
        [lambda p: p.to_numpy(), lambda p: p["c"]],
    ),
}
BLOCKS = {
    "a block of numbers of another width": (
        SAME,
        [as_type(t) for t in ("f4", "i1", "i8")],
    ),
    "a block of objects that are numbers": (SAME, [lambda b: b.astype(object)]),
    "a block with more or fewer columns, or rows": (
        r"block 1 has the shape \(\d+, \d\), but the Dask array says \(30, 3\)",
        [lambda b: b[:, [0, 1, 2, 2]], lambda b: b[:, :2], lambda b: b[:20]],
    ),
    "a block of one or three dimensions": (
        r"block 1 has the shape",
        [lambda b: b[:, 0], lambda b: b[None]],
    ),
    "a block of complex numbers": (
        "in block 1",
        [lambda b: b + 1j, lambda b: (b + 1j).astype(object)],
    ),
    "a block of dates or durations": (
        "in block 1",
        [lambda b: b.astype("M8[s]"), lambda b: b.astype("m8[ms]")],
    ),
    "a block of text": ("in block 1", [lambda b: b.astype(str).astype(object)]),
    "a DataFrame or sparse matrix where an array should be": (
        "block 1 is of type (DataFrame|csr_matrix)",
        [pd.DataFrame, scipy.sparse.csr_matrix],
    ),
}


def listed():
    """Return the lines of the page: what is given, and what happens."""
    lines = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return dict(lines[2:])


def cases(table, uses):
    """Return each change with each use; `make test` has each of either."""
    changes = [
        (line, change, said) for line, (said, some) in table.items() for change in some
    ]
    core = [(*change, use) for change, use in dealt(changes, uses)]
    return mostly_full(
        [*core, *((*change, use) for change in changes for use in uses)], core
    )


def lying_frame(change):
    """Return a frame of two partitions, the second of which is not what the frame says."""

    def part(number):
        return ROWS[:30] if number == 0 else change(ROWS[30:])

    # Dask would make text of objects.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(part, [0, 1], meta=ROWS[:0])


def lying_array(change):
    parts = [ARRAY[:30], change(ARRAY[30:])]
    blocks = [da.from_delayed(dask.delayed(p), (30, 3), float) for p in parts]
    return da.concatenate(blocks)


MODEL = LPE(3).fit(ROWS)
USES = {
    "score": MODEL.score_samples,
    "fit": lambda X: LPE(3).fit(X).p_values_,
    "explain": lambda X: MODEL.explain(X, top=3)["share"],
}
NAMED_USES = USES | {"some columns": lambda X: score(X, columns=["c", "a"], n_neighbors=3)}
CATEGORICAL_USES = {
    "fit categories": lambda X: LPE(3, categorical=["c"]).fit(X).p_values_,
    "score categories": LPE(3, categorical=["c"]).fit(ROWS).score_samples,
}


def computed(values):
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


def check(use, lying, true, line, said):
    """Check that a use of a table does what the page says."""
    happens, function = listed()[line], (NAMED_USES | CATEGORICAL_USES)[use]
    if said is None:
        assert not happens.startswith("refused")
        np.testing.assert_array_equal(computed(function(lying)), computed(function(true)))
        return
    errors = [{"TypeError": TypeError, "ValueError": ValueError}[happens[9:-1]]]
    if use in CATEGORICAL_USES:
        errors.append(TypeError)  # whatever no category can be is one error: of the type
    with pytest.raises(tuple(errors), match=said):
        computed(function(lying))


def test_page__has_a_case_for_each_line():
    assert listed().keys() == PARTITIONS.keys() | BLOCKS.keys()


@pytest.mark.parametrize(
    ("line", "change", "said", "use"),
    cases(PARTITIONS, NAMED_USES) + cases(PARTITIONS, CATEGORICAL_USES),
)
def test_partition__is_checked(line, change, said, use):
    if "measured as numbers" in line and use in CATEGORICAL_USES:
        pytest.skip("they are categories here")
    true = ROWS[:30] if change is emptied else ROWS

    check(use, lying_frame(change), true, line, said)


@pytest.mark.parametrize(("line", "change", "said", "use"), cases(BLOCKS, USES))
def test_block__is_checked(line, change, said, use):
    check(use, lying_array(change), ARRAY, line, said)


def test_remedies__work():
    def wait(part):
        return part.assign(c=pd.to_timedelta(part["c"], unit="s"))

    ddf = dd.from_pandas(ROWS, npartitions=3).map_partitions(wait, meta=ROWS[:0])
    mended = ddf.map_partitions(
        lambda part: part.assign(c=part["c"].dt.total_seconds()), meta=ddf
    )

    with pytest.raises(TypeError, match=r"columns=\['a', 'b'\]"):
        score(ddf).compute()
    np.testing.assert_array_equal(score(mended).compute(), score(ROWS))
    two = score(ddf, columns=["a", "b"])
    np.testing.assert_array_equal(two.compute(), score(ROWS[["a", "b"]]))


@pytest.mark.parametrize("is_read_by_a_function", [False, True])
def test_checks__of_a_frame_are_no_tasks_of_their_own(is_read_by_a_function):
    def n_tasks(n_partitions):
        frame = dd.from_pandas(ROWS, npartitions=n_partitions)
        if is_read_by_a_function:
            frame = frame.map_partitions(lambda part: part)
        return len(MODEL.score_samples(frame).optimize().dask)

    assert n_tasks(7) - n_tasks(4) == 2 * 3  # one each, and another name for it


def test_checks__let_dask_read_fewer_columns(tmp_path):
    ROWS.assign(d="x").to_parquet(tmp_path / "a.parquet")
    frame = dd.read_parquet(tmp_path / "a.parquet")

    read = MODEL.score_samples(frame).simplify().expr

    columns = [part.columns for part in read.walk() if "Parquet" in type(part).__name__]
    assert columns == [["a", "b", "c"]]


@pytest.mark.cluster
def test_errors__of_workers_are_those_of_threads(client):
    changes = [
        (PARTITIONS, "a partition with durations, in whatever unit"),
        (PARTITIONS, "a partition that lacks a column"),
        (BLOCKS, "a block of complex numbers"),
        (BLOCKS, "a block with more or fewer columns, or rows"),
    ]
    for table, line in changes:
        said, (change, *_) = table[line]
        is_frame = table is PARTITIONS
        lying = lying_frame(change) if is_frame else lying_array(change)
        check("score", lying, None, line, said)
