"""The parts of an output: one file for each partition of the input.

    partition, statistic, p-value --one task each--> part-00000.parquet ...

Columns to carry over are read as Arrow by the task that writes them, without conversion.

The metadata of a part says what it is made from, and has the statistics of its rows, so
that a run can be resumed from the finished parts, without any other record of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.batch.output import PENDING, RESULT_COLUMNS, ROW_NUMBER, list_names
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.pvalues import Adjustment
from lpe_dask.storage import (
    Folder,
    Lock,
    check_footer,
    child_url,
    is_transient,
    retried,
    retried_until_visible,
)
from lpe_dask.tables import FileTable, RowStatus, TableError
from lpe_dask.tasks import LocalValue, new_array, new_tasks, to_task

#: The column that a run adds to the `RESULT_COLUMNS` where a false discovery rate decides.
Q_VALUE = "q_value"
#: A table of these without a row, with the statuses of rows.
_NO_RESULTS = pd.DataFrame(dict.fromkeys(RESULT_COLUMNS, np.empty(0))).astype(
    {"is_anomaly": "boolean"}
)
_NO_RESULTS[RowStatus.COLUMN] = pd.Series(dtype=RowStatus.TYPE)

#: How the statuses are written.
_STATUS_NAMES = pa.array(RowStatus.NAMES, pa.string())
_STATUS_TYPE = pa.dictionary(pa.int8(), pa.string())

#: Threads that read metadata of parts: they wait for the storage most of the time.
_READER_THREADS = 16

#: Missing and unseen values where rows are nominal ones none of which was dropped.
_NO_VALUES = (np.empty(0, np.int64), np.empty(0, np.int64), None, None)

#: Name of the last column of an undecided part, which decided ones do not have: the numbers
#: of groups, where rows are divided into groups.
_GROUPS = "lpe_group"

#: Key of the metadata of a part, and the version of its format; keys may be added to it.
_KEY, _FORMAT = b"lpe_dask", 1


@dataclass(frozen=True, slots=True)
class PartFolder:
    """A folder of parts of one run.

    Attributes
    ----------
    url : str
    n_parts : int
    lock : Lock
        That the run holds.
    """

    url: str
    n_parts: int
    lock: Lock

    def name(self, number: int) -> str:
        """Return the name of a part; names sort like numbers."""
        return f"part-{number:0{max(5, len(str(self.n_parts - 1)))}}.parquet"

    def pending(self) -> PartFolder:
        """Return the folder for parts whose anomalies are not decided yet."""
        return replace(self, url=child_url(self.url, PENDING))

    def make(self) -> None:
        """Make the folder, if it does not exist."""
        Folder(self.url).make()

    def read_stats(self, made_from: Sequence[str]) -> dict[int, PartStats]:
        """Return the statistics of the parts that exist, by number, but for groups.

        Parameters
        ----------
        made_from : sequence of str
            What decides about each part; others of its number do not count.
        """
        missing = self.missing()
        numbers = [i for i in range(self.n_parts) if self.name(i) not in missing]
        with ThreadPoolExecutor(_READER_THREADS) as readers:
            stats = readers.map(self._read_stats, numbers, [made_from[i] for i in numbers])
            known = dict(zip(numbers, stats, strict=True))
        return {i: of_part for i, of_part in known.items() if of_part is not None}

    def group_counts(self, n_groups: int) -> GroupCounts:
        """Return the counts of all parts, which have to exist; reads one after another.

        So the client has those of one part at a time, however many parts and groups.
        """
        return GroupCounts.merge(self._groups_of_parts(), n_groups)

    def _groups_of_parts(self) -> Iterator[GroupCounts]:
        read = retried_until_visible(self._metadata)
        with ThreadPoolExecutor(_READER_THREADS) as readers:
            for first in range(0, self.n_parts, _READER_THREADS):
                numbers = range(first, min(first + _READER_THREADS, self.n_parts))
                for said in readers.map(read, numbers):
                    yield GroupCounts.from_json(said["groups"])

    def missing(self) -> set[str]:
        """Return the names of the parts that are not visible from this machine."""
        return {self.name(i) for i in range(self.n_parts)} - set(list_names(self.url))

    @retried_until_visible
    def wait_until_visible(self) -> None:
        """Raise if the parts that workers wrote do not become visible soon."""
        if missing := self.missing():
            raise FileNotFoundError(
                f"the workers wrote {self.n_parts} parts, but {len(missing)} of them are "
                f"not visible from this machine in {self.url}. Give an output that this "
                f"machine and all workers share: a shared folder, or a URL such as "
                f"s3://bucket/folder."
            )

    def _metadata(self, number: int) -> Any:
        """Return what the task that wrote a part says of it."""
        with self.open(number) as file:
            check_footer(file)
            return json.loads((pq.read_metadata(file).metadata or {})[_KEY])

    @retried
    def _read_stats(self, number: int, made_from: str) -> PartStats | None:
        """Return the statistics of a part; None if it is another one, or damaged."""
        try:
            said = self._metadata(number)
            is_ours = (said["fingerprint"], said["part"]) == (made_from, number)
            return PartStats.from_json(said).without_groups() if is_ours else None
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            if is_transient(error):  # reading it again is cheaper than writing it again
                raise
            return None

    def open(self, number: int) -> Any:
        """Return a part, as a file to read."""
        return Folder(self.url).open(self.name(number))

    @retried
    def publish(
        self, number: int, table: pa.Table, stats: PartStats, made_from: str
    ) -> None:
        """Write a part; it gets its name once complete, if the lock is still held."""
        about = {"format": _FORMAT, "fingerprint": made_from, "part": number}
        metadata = {
            **(table.schema.metadata or {}),
            _KEY: json.dumps(about | stats.as_json()).encode(),
        }
        with Folder(self.url).atomic_write(self.name(number)) as file:
            pq.write_table(table.replace_schema_metadata(metadata), file)
            self.lock.verify()


def part_writes(
    kept: FileTable,
    schema: pa.Schema,
    statistic: da.Array,
    p_values: da.Array,
    values: Sequence[Delayed] | None,
    limit: float | LocalValue | None,
    stats_of: Callable[..., PartStats],
    folder: PartFolder,
    made_from: Sequence[str],
    numbers: Sequence[int],
    *,
    first_rows: Sequence[int | None],
) -> list[Delayed]:
    """Return one task for each of some partitions, which writes its part; gives its stats.

    Parameters
    ----------
    kept : FileTable
        The columns to carry over.
    schema : pyarrow.Schema
        As `part_schema` gives it.
    statistic, p_values : dask array of shape (n_rows,)
        In the same partitions.
    values : sequence of Delayed, optional
        For each partition, as `ValueRanges.count_new` gives them.
    limit : float or LocalValue, optional
        A row is an anomaly if its p-value is below this, or below that of its group, of an
        array of shape (n_groups,); None: not decided yet.
    stats_of : callable
        `PartStats.of` with bins and graph.
    folder : PartFolder
    made_from : sequence of str
        What decides about each part.
    numbers : sequence of int
        Of the partitions to write.
    first_rows : sequence of int or None
        For each partition the number of its first row, if only flagged rows are written,
        and those without a p-value, with their numbers. None: all rows, without numbers.
    """
    schema = to_task(schema, "lpe-schema")
    of_rows = to_task(stats_of, "lpe-part-stats")
    limits = [to_task(limit, "lpe-group-limits")] if isinstance(limit, LocalValue) else []
    below = limits[0].key if limits else limit
    counts = [_NO_VALUES] * len(kept.parts) if values is None else [of.key for of in values]
    tasks = (
        (
            _write_part, kept.parts[i], (statistic.name, i), (p_values.name, i), counts[i],
            below, of_rows.key, schema.key, folder, made_from[i], first_rows[i], i,
        )
        for i in numbers
    )  # fmt: skip
    return new_tasks(
        "write", tasks, [statistic, p_values, *(values or []), schema, of_rows, *limits]
    )


def decision_writes(
    adjustment: Adjustment,
    fdr: float,
    stats_of: Callable[..., PartStats],
    folder: PartFolder,
    made_from: Sequence[str],
    numbers: Sequence[int],
    *,
    first_rows: Sequence[int | None],
) -> list[Delayed]:
    """Return one task for each of some undecided parts, which decides; gives its stats.

    Parameters
    ----------
    adjustment : Adjustment
        Of all p-values.
    fdr : float
        A row is an anomaly if its q-value is at most this.
    stats_of : callable
        `PartStats.of` with bins and graph.
    folder : PartFolder
        To write to; the undecided parts are in its `PartFolder.pending`.
    made_from, numbers, first_rows : sequence
        As for `part_writes`.
    """
    entered = to_task(adjustment, "lpe-adjustment")
    of_rows = to_task(stats_of, "lpe-part-stats")
    further = (entered.key, fdr, of_rows.key, folder)
    tasks = ((_decide_part, *further, made_from[i], i, first_rows[i]) for i in numbers)
    return new_tasks("decide", tasks, [entered, of_rows])


def undecided_p_values(folder: PartFolder) -> da.Array:
    """Return the p-values in the undecided parts, as a dask array of unknown chunks."""
    tasks = ((_read_p_values, folder, i) for i in range(folder.n_parts))
    chunks = ((np.nan,) * folder.n_parts,)
    return new_array("undecided", tasks, (), chunks, np.empty(0))


def row_counts(kept: FileTable) -> list[Delayed]:
    """Return one task for each partition, which counts its rows by reading a column."""
    return new_tasks("count", ((_count_rows, part) for part in kept.parts))


def part_schema(kept: FileTable, *, only_flagged: bool) -> pa.Schema:
    """Return the schema of all parts: columns to carry over, then the results.

    It gives pandas the index of the one table that the parts are together; none instead of
    a range where only flagged rows are written, whose numbers a column has that is not in
    the schema. Statuses are left out where the name of their column is carried over.
    """
    has_status = RowStatus.COLUMN not in kept.schema.names
    none = _NO_RESULTS if has_status else _NO_RESULTS.drop(columns=RowStatus.COLUMN)
    results = pa.Schema.from_pandas(none, preserve_index=False)
    if has_status:
        results = results.set(len(results) - 1, pa.field(RowStatus.COLUMN, _STATUS_TYPE))
    stored = kept.schema.pandas_metadata or {}
    index = None if only_flagged else kept.index
    names = stored.get("column_indexes", [])
    for_pandas = {
        **results.pandas_metadata,
        "index_columns": kept.index_columns if index is None else _described(index),
        # The names of the results are text of one level.
        "column_indexes": names if [n["pandas_type"] for n in names] == ["unicode"] else [],
        "columns": [
            *(
                of
                for of in stored.get("columns", [])
                if of["field_name"] in kept.schema.names
            ),
            *results.pandas_metadata["columns"],
        ],
    }
    metadata = {b"pandas": json.dumps(for_pandas).encode()}
    return pa.schema([*kept.schema, *results], metadata)


def _described(index: pd.RangeIndex) -> Any:
    return pa.Schema.from_pandas(pd.DataFrame(index=index)).pandas_metadata["index_columns"]


# The functions below run inside tasks.


def _write_part(
    part: Any,
    statistic: NDArray[np.float64],
    p_value: NDArray[np.float64],
    values: tuple[Any, Any, NDArray[np.int8] | None, NDArray[np.int32] | None],
    limit: float | NDArray[np.float64] | None,
    stats_of: Callable[..., PartStats],
    schema: pa.Schema,
    folder: PartFolder,
    made_from: str,
    first_row: int | None,
    number: int,
) -> PartStats:
    is_nan = np.isnan(p_value)
    fields = [*schema][: schema.get_field_index(RESULT_COLUMNS[0])]
    kept = part.read([field.name for field in fields])
    *counts, codes, groups = values
    if isinstance(limit, np.ndarray):  # of each group; without one there is no p-value
        limit = limit[groups]
    is_flagged = np.zeros(len(p_value), bool) if limit is None else p_value < limit
    codes = np.zeros(len(p_value), np.int8) if codes is None else codes
    columns = [
        *(_typed(*pair, part.name) for pair in zip(kept.columns, fields, strict=True)),
        pa.array(p_value, from_pandas=True),
        pa.array(statistic, from_pandas=True),
        pa.array(is_flagged, mask=is_nan),
    ]
    if len(columns) < len(schema):
        columns.append(pa.DictionaryArray.from_arrays(codes, _STATUS_NAMES))
    statuses = RowStatus.count(codes)
    stats = stats_of(number, p_value, statistic, is_flagged, (*counts, statuses), groups)
    table = pa.table(columns, schema)
    if limit is None and groups is not None:
        table = table.append_column(_GROUPS, pa.array(groups))
    if first_row is not None:
        table = _flagged_rows(table, is_flagged | is_nan, first_row)
    folder.publish(number, table, stats, made_from)
    return stats.without_groups()


def _flagged_rows(
    table: pa.Table, is_written: NDArray[np.bool_], first_row: int
) -> pa.Table:
    """Return some rows of a part, with their numbers in the input before the results."""
    numbers = pa.array(np.arange(first_row, first_row + len(table), dtype=np.int64))
    place = table.schema.get_field_index(RESULT_COLUMNS[0])
    table = table.add_column(place, ROW_NUMBER, numbers)
    try:
        return table.filter(pa.array(is_written))
    except pa.ArrowNotImplementedError:  # as of views of text, which can be sliced
        rows = [table.slice(i, 1) for i in np.flatnonzero(is_written)]
        return pa.concat_tables(rows or [table.slice(0, 0)])


def _count_rows(part: Any) -> int:
    return len(part.read(part.schema.names[:1]))


def _typed(column: pa.ChunkedArray, field: pa.Field, file: str) -> pa.ChunkedArray:
    """Return a column of a file in the type that it has in all parts."""
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{file} has column {field.name!r} as {column.type}, but with the other files "
            f"it is {field.type}, which cannot represent all of its values: {error}. Write "
            f"it with the same type in all files, or leave it out (keep=, --keep)."
        ) from error


def _decide_part(
    adjustment: Adjustment,
    fdr: float,
    stats_of: Callable[..., PartStats],
    folder: PartFolder,
    made_from: str,
    number: int,
    first_row: int | None,
) -> PartStats:
    table = _read_undecided(folder, number)
    before, groups = PartStats.from_json(json.loads(table.schema.metadata[_KEY])), None
    values = before.missing, before.unseen, before.statuses
    if before.groups is not None:
        last = table.num_columns - 1
        groups, table = table.column(last).to_numpy(), table.remove_column(last)
    p_value, statistic = (
        table.column(name).to_numpy() for name in ("p_value", "statistic")
    )
    q_value = adjustment.q_values(p_value)
    is_nan, is_flagged = np.isnan(q_value), q_value <= fdr
    place = table.schema.get_field_index("is_anomaly")
    decided = pa.array(is_flagged, mask=is_nan)
    table = table.set_column(place, table.schema.field(place), decided)
    table = table.append_column(Q_VALUE, pa.array(q_value, mask=is_nan))
    if first_row is not None:
        table = _flagged_rows(table, is_flagged | is_nan, first_row)
    stats = stats_of(number, p_value, statistic, is_flagged, values, groups)
    folder.publish(number, table, stats, made_from)
    return stats.without_groups()


def _read_p_values(folder: PartFolder, number: int) -> NDArray[np.float64]:
    table = _read_undecided(folder, number, ["p_value"])
    p_values: NDArray[np.float64] = table.column("p_value").to_numpy()
    return p_values


@retried_until_visible  # another machine may have written it
def _read_undecided(
    folder: PartFolder, number: int, columns: list[str] | None = None
) -> pa.Table:
    with folder.pending().open(number) as file:
        return pq.ParquetFile(file).read(columns=columns)
