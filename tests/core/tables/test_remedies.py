"""What an error about columns that are no numbers says to do is accepted."""

import ast
import datetime
import re

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from choosing import mostly_dealt

DAYS = pd.date_range("2026-01-01", periods=4).repeat(5)
DATES, TIMES = [day.date() for day in DAYS], [datetime.time(day.day) for day in DAYS]
WORDS = ["a", "b"] * 10


def of_arrow(values, type_):
    return pd.array(pa.array(values, type_), dtype=pd.ArrowDtype(type_))


def dictionary_of(values):
    array = pa.array(values).dictionary_encode()
    return pd.array(array, dtype=pd.ArrowDtype(array.type))


#: Columns that can only be left out.
OTHERS = {
    "datetime64": DAYS,
    "with a time zone": DAYS.tz_localize("Europe/Berlin"),
    "period": DAYS.to_period("D"),
    "timedelta64": DAYS - DAYS[0],
    "interval": pd.IntervalIndex.from_breaks(range(21)),
    "date": pd.Series(DATES, dtype=object),
    "datetime": pd.Series([day.to_pydatetime() for day in DAYS], dtype=object),
    "time": pd.Series(TIMES, dtype=object),
    "timedelta": pd.Series([datetime.timedelta(i) for i in range(20)], dtype=object),
    "bytes": pd.Series([b"a", b"b"] * 10, dtype=object),
    "categories of datetime64": pd.Categorical(DAYS),
    "categories of date": pd.Categorical(DATES),
    "date32": of_arrow(DATES, pa.date32()),
    "timestamp": of_arrow(list(DAYS), pa.timestamp("us")),
    "duration": of_arrow(list(DAYS - DAYS[0]), pa.duration("us")),
    "time64": of_arrow(TIMES, pa.time64("us")),
    "dictionary of date32": dictionary_of(DATES),
}
#: Those that can be measured as equal or different.
CATEGORIES = {
    "text": pd.Series(WORDS, dtype="str"),
    "objects of text": pd.Series(WORDS, dtype=object),
    "string": pd.Series(WORDS, dtype="string"),
    "Arrow's string": of_arrow(WORDS, pa.string()),
    "dates as text": [str(day) for day in DATES],
    "categories of text": pd.Categorical(WORDS),
    "categories of whole numbers": pd.Categorical([1, 2] * 10),
}


def frame_of(odd):
    return pd.DataFrame({"x": np.arange(20.0) ** 2, "odd": odd, "word": WORDS})


def refused(table, **options):
    """The message, and the sets of arguments that it says to give."""
    with pytest.raises(TypeError, match=r"rows must be dense numbers.*'odd'") as caught:
        np.asarray(lpe_dask.score(table, n_neighbors=3, **options))
    said = []
    for part in str(caught.value).split("; or measure"):
        found = dict(re.findall(r"(columns|categorical)=(\[.*?\])", part))
        said.append({name: ast.literal_eval(of) for name, of in found.items()})
        for name, of in said[-1].items():
            assert f"--{name} {','.join(of)}" in part
    return said


def check_accepted(table, said):
    for given in said:
        p_values = np.asarray(lpe_dask.score(table, n_neighbors=3, **given))
        assert not np.isnan(p_values).any()


@pytest.mark.parametrize("kind", OTHERS | CATEGORIES)
def test_check_numeric__says_what_can_be_done_about_columns(kind):
    """Leave them out; or measure text and categories as equal or different."""
    table = frame_of((OTHERS | CATEGORIES)[kind])
    both = {"categorical": ["odd", "word"]}
    if kind in OTHERS:
        both = {"columns": ["x", "word"], "categorical": ["word"]}

    said = refused(table)
    again = refused(table, categorical=["word"])

    assert said == [{"columns": ["x"]}, both]
    check_accepted(table, said)
    assert again == [{"columns": ["x", "word"]}, *[both] * (kind in CATEGORIES)]
    check_accepted(table, [{"categorical": ["word"]} | given for given in again])


TABLES = (
    ["categories of text", "date", "time", "bytes", "datetime64", "dates as text"],
    ["parquet", "csv", "arrow", "dask"],
)


@pytest.mark.skipif(
    pd.Series(WORDS).dtype == object, reason="before pandas 3, text in files was objects"
)
@pytest.mark.parametrize(("kind", "source"), mostly_dealt(*TABLES))
def test_check_numeric__says_the_same_of_other_tables(kind, source, tmp_path):
    frame = frame_of((OTHERS | CATEGORIES)[kind])
    is_text = kind in CATEGORIES
    if source == "parquet":
        table = str(tmp_path / "t.parquet")
        pq.write_table(pa.Table.from_pandas(frame), table)
    elif source == "csv":
        table, is_text = str(tmp_path / "t.csv"), True
        frame.to_csv(table, index=False)
    elif source == "arrow":
        table = pa.Table.from_pandas(frame)
    else:
        table = dd.from_pandas(frame, npartitions=2)
        is_text |= table.dtypes["odd"] == "string"  # to which Dask converts objects

    said = refused(table)

    assert said[1]["categorical"] == (["odd", "word"] if is_text else ["word"])
    check_accepted(table, said)


@pytest.mark.parametrize(("value", "is_said"), [("a", True), (DATES[0], False)])
def test_rows_of_objects__that_are_no_text_are_no_categories(value, is_said):
    rows = np.array([[float(i), value] for i in range(20)], dtype=object)

    with pytest.raises(TypeError, match=r"not: 1 \(.*of an array X\[:, \[0\]\]") as caught:
        lpe_dask.score(rows, n_neighbors=3)

    lpe_dask.score(rows[:, [0]].astype(float), n_neighbors=3)
    assert ("categorical" in str(caught.value)) == is_said
    if is_said:
        lpe_dask.score(rows, n_neighbors=3, categorical=[1])
