"""A value of each type that Arrow has in Parquet files."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TIME = datetime.datetime(2026, 2, 3, 4, 5, 6, 789000)
DAY, CLOCK, SPAN = TIME.date(), TIME.time(), datetime.timedelta(seconds=3)

#: Values by which a type differs from those that pandas or NumPy would make of it.
VALUES = [
    (pa.bool_(), True),
    (pa.int8(), -3),
    (pa.int64(), 2**60 + 1),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), np.float16(1.5)),
    (pa.float32(), 0.5),
    (pa.float64(), float("nan")),
    (pa.decimal128(38, 2), Decimal("123456789012345678901234567890.25")),
    (pa.decimal256(60, 2), Decimal("1.25")),
    (pa.string(), "text"),
    (pa.large_string(), "text"),
    (pa.binary(), b"\xff\x00"),
    (pa.large_binary(), b"\xff"),
    (pa.binary(3), b"abc"),
    (pa.date32(), DAY),
    (pa.date64(), DAY),
    (pa.time32("ms"), CLOCK),
    (pa.time64("us"), CLOCK),
    (pa.time64("ns"), CLOCK),
    (pa.timestamp("ms"), TIME),
    (pa.timestamp("us", "Europe/Zurich"), TIME),
    (pa.timestamp("ns", "+05:30"), TIME),
    (pa.duration("s"), SPAN),
    (pa.duration("ns"), SPAN),
    (pa.list_(pa.int64()), [2**60 + 1, None]),
    (pa.large_list(pa.string()), ["a"]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.time64("us")))]), {"a": 2**60 + 1}),
    (pa.map_(pa.string(), pa.int64()), [("key", 2**60 + 1)]),
    (pa.dictionary(pa.int8(), pa.string()), "kind"),
    (pa.dictionary(pa.int32(), pa.string(), ordered=True), "kind"),
    (pa.dictionary(pa.int32(), pa.int64()), 2**60 + 1),
    (pa.null(), None),
]


def newer_values():
    """Types that the oldest pyarrow cannot write to Parquet, or not read with a null."""
    named = [("string_view", "text"), ("binary_view", b"\xff"), ("json_", "{}")]
    newer = [(getattr(pa, name)(), value) for name, value in named if hasattr(pa, name)]
    for arrow_type, value in [*newer, (pa.list_(pa.int32(), 2), [1, 2])]:
        file = pa.BufferOutputStream()
        try:
            pq.write_table(column(arrow_type, [None, value]), file)
            pq.read_table(pa.BufferReader(file.getvalue()))
        except (pa.ArrowException, TypeError):
            continue
        yield arrow_type, value


def column(arrow_type, values):
    storage = getattr(arrow_type, "storage_type", arrow_type)
    array = pa.array(values, storage)
    if storage is not arrow_type:
        array = pa.ExtensionArray.from_storage(arrow_type, array)
    return pa.table({"c": array})
