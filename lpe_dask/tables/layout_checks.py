"""Refuse files that are not the rows of a table by themselves.

Files of a Delta, Iceberg or Hudi table hold rows that were removed: a log beside them says
which are valid. Parts of an unfinished run are not all, those of a finished one beside
other files are rows that would count twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

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
        "t.StaticTable.from_metadata('{log}/<the newest>.metadata.json').scan()"
        ".to_arrow_batch_reader(), 'plain', format='parquet')",
    ),
    ".hoodie": (
        "a Hudi table",
        "spark.read.format('hudi').load({folder!r}).write.parquet('plain')",
    ),
}

#: What runs write, and models: see `batch.output` and `model.persistence.manifest`.
_FINGERPRINT, _SUMMARY, _MANIFEST = "_run.json", "_summary.json", "manifest.json"


def check_layout(filesystem: Any, places: Sequence[Sequence[str]]) -> None:
    """Raise ValueError for files that are not the rows of a table by themselves.

    Parameters
    ----------
    filesystem : fsspec filesystem
    places : sequence of sequences of str
        The names of the files of each place.
    """
    if is_local(filesystem):
        # A link may lead into the folders of a table that has a log.
        places = [[Path(name).resolve().as_posix() for name in names] for names in places]
    if "http" in filesystem.protocol:  # which lists nothing
        return
    names = [name for of_place in places for name in of_place]
    folders = sorted({folder for name in names for folder in _above(name)})
    with ThreadPoolExecutor(16) as readers:
        listed = readers.map(partial(_contents, filesystem), folders)
    contents = dict(zip(folders, listed, strict=True))
    for folder in folders:
        for log in _LOGS.keys() & contents[folder]:
            _check_log(filesystem, folder, log, names)
    for of_place in places:
        _check_runs(of_place, contents)


def _above(name: str) -> list[str]:
    """Return the folders that a file is in, but not the root or bucket."""
    parts = name.split("/")
    return ["/".join(parts[:i]) for i in range(2, len(parts))]


def _contents(filesystem: Any, folder: str) -> set[str]:
    """Return the names in a folder; none where it cannot be read."""
    with suppress(OSError, NotImplementedError):
        paths = filesystem.ls(folder, detail=False)
        return {path.rstrip("/").rsplit("/", 1)[-1] for path in paths}
    return set()


def _check_log(filesystem: Any, folder: str, log: str, names: Sequence[str]) -> None:
    path = f"{folder}/{log}"
    if log == "metadata" and not any(  # which others may have, too
        name.endswith(".metadata.json") for name in _contents(filesystem, path)
    ):
        return
    inside = next(name for name in names if name.startswith(f"{folder}/"))
    what, code = _LOGS[log]
    raise ValueError(
        f"{inside} belongs to {what}: {path} says which rows are valid, and the files "
        f"alone hold removed ones, too. Write its rows as plain Parquet, and give that "
        f"folder: {code.format(folder=folder, log=path)}"
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
