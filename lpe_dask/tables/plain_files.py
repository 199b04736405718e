"""Refuse files that are not the rows of a table by themselves.

Files of a Delta, Iceberg or Hudi table hold rows that were removed: a log beside them says
which are valid. Parts of an unfinished run are not all, those of a finished one beside
other files are rows that would count twice, and so is a file at two names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dask.utils import natural_sort_key

from lpe_dask.tables.listing import is_local

#: Folders beside the files of a table that has a log -> whose they are, and how to write
#: its valid rows as plain files.
_LOGS = {
    "_delta_log": (
        "a Delta table",
        "import deltalake, pyarrow.dataset as ds; ds.write_dataset("
        "deltalake.DeltaTable({folder!r}).to_pyarrow_dataset(), 'plain', format='parquet')",
    ),
    "metadata": (
        "an Iceberg table",
        "import pyiceberg.table as t, pyarrow.dataset as ds; ds.write_dataset("
        "t.StaticTable.from_metadata({log!r}).scan().to_arrow_batch_reader(), 'plain', "
        "format='parquet')",
    ),
    ".hoodie": (
        "a Hudi table",
        "spark.read.format('hudi').load({folder!r}).write.parquet('plain')",
    ),
}

#: Names of the metadata of an Iceberg table.
_ICEBERG = re.compile(r"v?\d.*\.metadata\.json")

#: What runs write, and models: see `batch.output` and `model.manifest`.
_FINGERPRINT, _SUMMARY, _MANIFEST = "_run.json", "_summary.json", "manifest.json"

_NAMES = (*_LOGS, _FINGERPRINT, _SUMMARY, _MANIFEST)


def check_plain(filesystem: Any, places: Sequence[Sequence[str]]) -> None:
    """Raise ValueError for files that are not the rows of a table by themselves.

    Parameters
    ----------
    filesystem : fsspec filesystem
    places : sequence of sequences of str
        The names of the files of each place.
    """
    if is_local(filesystem):
        _check_distinct_files([name for names in places for name in names])
        # A link may lead into the folders of a table that has a log.
        places = [[Path(name).resolve().as_posix() for name in names] for names in places]
    if {"http", "https"} & {*_protocols(filesystem)}:  # answers to any name
        return
    folders = sorted({f for names in places for name in names for f in _above(name)})
    with ThreadPoolExecutor(16) as readers:
        listed = readers.map(partial(_contents, filesystem), folders)
    contents = dict(zip(folders, listed, strict=True))
    for folder, there in contents.items():
        for log in _LOGS.keys() & there:
            _check_log(filesystem, folder, log, places)
    for names in places:
        _check_runs(names, contents)


def _protocols(filesystem: Any) -> Sequence[str]:
    protocol = filesystem.protocol
    return [protocol] if isinstance(protocol, str) else protocol


def _above(name: str) -> list[str]:
    """Return the folders that a file is in, but not the root or bucket."""
    parts = name.split("/")
    return ["/".join(parts[:i]) for i in range(2, len(parts))]


def _contents(filesystem: Any, folder: str) -> set[str]:
    """Return which of the telling names are in a folder; none where it cannot be read."""
    if is_local(filesystem):
        return {name for name in _NAMES if os.path.exists(f"{folder}/{name}")}
    with suppress(OSError, NotImplementedError):
        paths = filesystem.ls(folder, detail=False)
        return {path.rstrip("/").rsplit("/", 1)[-1] for path in paths} & {*_NAMES}
    return set()


def _check_distinct_files(names: Sequence[str]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for name in names:
        about = os.stat(name)
        other = seen.setdefault((about.st_dev, about.st_ino), name)
        if about.st_ino and other != name:
            raise ValueError(
                f"{name} and {other} are the same file, by a link, so its rows would count "
                f"more than once. Name each file once."
            )


def _check_log(
    filesystem: Any, folder: str, log: str, places: Sequence[Sequence[str]]
) -> None:
    path = f"{folder}/{log}"
    if log == "metadata":
        found: list[str] = []
        with suppress(OSError, NotImplementedError):
            found = filesystem.ls(path, detail=False)
        metadata = [n for n in found if _ICEBERG.fullmatch(n.rsplit("/", 1)[-1])]
        if not metadata:
            return
        path = max(metadata, key=natural_sort_key)  # v10 comes after v9
    inside = [n for names in places for n in names if n.startswith(f"{folder}/")]
    if all(n.lower().endswith((".csv", ".tsv", ".txt")) for n in inside):
        return
    what, code = _LOGS[log]
    raise ValueError(
        f"{inside[0]} belongs to {what}: {folder}/{log} says which rows are valid, and the "
        f"files alone hold removed ones, too. Write its rows as plain Parquet, and give "
        f"that folder: {code.format(folder=folder, log=path)}"
    )


def _check_runs(names: Sequence[str], contents: dict[str, set[str]]) -> None:
    outputs: dict[str, str] = {}
    for name in names:
        folder = name.rpartition("/")[0]
        there, above = (contents.get(f, set()) for f in (folder, folder.rpartition("/")[0]))
        if _FINGERPRINT in there and _SUMMARY not in there:
            raise ValueError(
                f"{name} is a part of a run that has not finished: {folder} lacks others. "
                f"Start that run again to finish it, or name other files."
            )
        if _MANIFEST in above and folder.rpartition("/")[2].startswith("data-"):
            raise ValueError(
                f"{name} is a file of a saved model, and no table. Name other files, for "
                f"example as a glob."
            )
        if _SUMMARY in there:
            outputs[name] = folder
    if outputs and len(outputs) < len(names):
        raise ValueError(
            f"{next(iter(outputs.values()))} is the output of a run, in one place with "
            f"other files, whose rows may be the same. Name either of them, for example as "
            f"a glob."
        )
