"""The folder that a run writes, from before its first part to its summary.

    OUT/_lock.json                held during a run
    OUT/_fit-<hex>/               rows that its fit has measured
    OUT/_run.json                 what the parts are made from
    OUT/part-00000.parquet, ...   the rows with p-value, statistic, flag, status
    OUT/_scores.csv, .jsonl       the same rows in one file, if wanted
    OUT/_reasons.pqt              why the most anomalous rows are anomalous
    OUT/_summary.json             what was done; the output is complete
    OUT/_failure.json             why a run failed, if that was notified; until it is done
    OUT/_predecessor.json         what a replaced summary says of its series
    OUT/_report.html              the same, as a page
    OUT/_metrics.prom             its numbers, for Prometheus

Every file is written under another name and then moved: all visible files are complete.
Readers of Parquet folders ignore names that begin with an underscore.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from os.path import realpath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.utils import glob_translate

from lpe_dask.storage import (
    Folder,
    Lock,
    UnsafeFileError,
    check_footer,
    redact,
    retried,
    short_message,
    to_jsonable,
)
from lpe_dask.tables import resolve_path

logger = logging.getLogger(__name__)

#: Names of the fingerprint of an unfinished run, and of the file that completes an output.
FINGERPRINT_NAME, SUMMARY_NAME = "_run.json", "_summary.json"

#: Names of the reasons for the most anomalous rows, a Parquet file that readers of the
#: folder do not take for a part, of the page about a run, and of its metrics.
REASONS_NAME, REPORT_NAME, METRICS_NAME = "_reasons.pqt", "_report.html", "_metrics.prom"

#: Name of the copy of what a replaced summary says of its series of runs, and of the note
#: that somebody was notified that the run has failed.
PREDECESSOR_NAME, FAILURE_NAME = "_predecessor.json", "_failure.json"

#: Folder for parts whose anomalies cannot be decided before all are measured.
PENDING = "_undecided"

#: Columns that a run adds to those of the input.
RESULT_COLUMNS: tuple[str, ...] = ("p_value", "statistic", "is_anomaly")

#: The column of the number of a row in the input, from 0, where only some are written.
ROW_NUMBER = "row_number"

#: What runs write and replace; what may be there before the first part; and what they need
#: only until they have finished, except for the lock.
_OUTPUT_FILES = re.compile(
    r"part-\d{5,}\.parquet|_(summary|run)\.json|_undecided|_reasons\.pqt|_report\.html"
    r"|_metrics\.prom|_scores\.(csv|jsonl)"
)
_BEFORE_FIRST_PART = re.compile(
    r"_(lock|predecessor|failure)\.json|_fit-[0-9a-f]+"
    r"|\.+(part-|_(summary|run|lock|predecessor|failure|reasons|report|metrics|scores)).*\.tmp"
)
_TEMPORARY = re.compile(
    rf"(?!_(lock|predecessor)\.json)({_BEFORE_FIRST_PART.pattern})|_undecided|_run\.json"
)


#: What new volumes of some filesystems have, and no run.
_LOST_AND_FOUND = "lost+found"


# The output folder


def check_output(output: str, inputs: Sequence[str]) -> str:
    """Return the URL of the output folder, which must not overlap any input."""
    if not output.strip():
        raise ValueError("the output has no name. Give a folder to write to.")
    for path in inputs:
        if overlaps(output, path):
            raise ValueError(
                f"the output {output} and the input {path} overlap: one is the other, or "
                f"is inside it. Give a separate output folder."
            )
    return Folder(output).full_url()


def has_content(url: str) -> bool:
    """Return whether an output folder has more than what precedes the first part."""
    return any(not _BEFORE_FIRST_PART.fullmatch(name) for name in list_names(url))


def list_names(url: str) -> list[str]:
    """Return the names in a folder; none if it does not exist, or is a new volume."""
    folder = Folder(url)
    if folder.is_file():
        raise FileExistsError(
            f"the output {url} is a file; a run writes a folder. Give another name."
        )
    return [name for name in folder.names() if name != _LOST_AND_FOUND]


def overlaps(output: str, data: str) -> bool:
    """Return whether the output is the input, contains it, or is inside it."""
    filesystem, root = resolve_path(output)
    other, path = resolve_path(data)
    if filesystem.protocol != other.protocol:
        return False
    is_glob = any(sign in path for sign in "*?[") and not other.exists(path)
    places = other.glob(path) if is_glob else [path]
    own = [root.rstrip("/"), f"{root.rstrip('/')}/part-00000.parquet"]
    if is_glob and any(re.match(glob_translate(path), name) for name in own):
        places = [root]  # the output would be read
    ends = [_resolved(filesystem, name) + "/" for name in [root, *places]]
    return any(end.startswith(ends[0]) or ends[0].startswith(end) for end in ends[1:])


def _resolved(filesystem: Any, path: str) -> str:
    return realpath(path) if "file" in filesystem.protocol else path.rstrip("/")


def check_replaceable(url: str) -> None:
    """Raise FileExistsError if the folder has files that are not the output of a run."""
    names, folder = list_names(url), Folder(url)
    own = [
        _OUTPUT_FILES.fullmatch(name) or _BEFORE_FIRST_PART.fullmatch(name)
        for name in names
    ]
    foreign = sorted(name for name, is_ours in zip(names, own, strict=True) if not is_ours)
    if not foreign and not {SUMMARY_NAME, FINGERPRINT_NAME} & set(names):
        # Perhaps what a run has left that died while it removed an earlier output.
        parts = [name for name in names if name.startswith("part-")]
        foreign = [name for name in parts[:1] if not _is_part(folder, name)]
    if foreign:
        raise FileExistsError(
            f"the output {url} contains files that are not the output of a run: "
            f"{', '.join(foreign[:3])}. Only output of an earlier run can be replaced. "
            f"Give another folder, or move those files away."
        )


@retried
def _is_part(folder: Folder, name: str) -> bool:
    try:
        with folder.open(name) as file:
            check_footer(file)
            names = pq.read_schema(file).names
    except (pa.ArrowInvalid, ValueError, UnsafeFileError):
        return False
    return set(RESULT_COLUMNS) <= set(names)


def reserved_output(url: str) -> AbstractContextManager[Lock]:
    """Make the output folder and lock it; one that is new and empty is removed on failure.

    Raises
    ------
    OSError
        If nothing can be written there, or another run holds the lock.
    """
    refusal = "nothing can be written to the output {url}"
    is_ours = not Folder(url).exists()
    return Lock(url).hold("score a table", refusal, is_ours=is_ours)


def note_failure(url: str, text: str) -> bool:
    """Note in an output why its run has failed; return False if there is such a note.

    The note goes when the run is done. Where there is no output, there is none.
    """
    folder = Folder(url)
    if not folder.exists():
        return True
    if folder.exists(FAILURE_NAME):
        return False
    write_json(url, FAILURE_NAME, {"text": text})
    return True


def has_file(url: str, name: str) -> bool:
    """Return whether an output has a file; True where that cannot be seen."""
    try:
        return Folder(url).exists(name)
    except (OSError, NotImplementedError):
        return True


def write_json(url: str, name: str, content: Any, indent: int | None = 1) -> None:
    """Write a file of JSON into a folder, which is made if it does not exist."""
    folder = Folder(url)
    folder.make()
    text = json.dumps(content, indent=indent, default=to_jsonable)
    folder.write(name, text.encode() + b"\n")


def remove_output(url: str) -> None:
    """Remove what earlier runs have written to the output folder, the summary first."""
    _remove(url, _OUTPUT_FILES.fullmatch)


def remove_fits(url: str) -> None:
    """Remove what fits have measured, so that the next one starts from scratch."""
    _remove(url, re.compile("_fit-").match)


def remove_temporary(url: str) -> None:
    """Remove what runs need only until they have finished, except for the lock.

    Raises nothing: the output is complete, and the next start removes what is left.
    """
    try:
        _remove(url, _TEMPORARY.fullmatch)
    except OSError as error:
        _warn_leftovers(url, error)


def clean_up(url: str, reserved: Callable[[str], AbstractContextManager[Lock]]) -> None:
    """Remove what a run has left that died when its result was complete; raises nothing.

    Parameters
    ----------
    url : str
        Of the folder of an output or a model.
    reserved : callable
        Locks it; the lock of a run that died is taken over, and goes in the end, too.
    """
    try:
        names = Folder(url).names()
        is_locked = Lock.NAME in names
        is_left = is_locked or any(map(_TEMPORARY.fullmatch, names))
        if is_left and (not is_locked or Lock(url).is_stale()):
            with reserved(url):
                remove_temporary(url)
    except (OSError, NotImplementedError) as error:
        _warn_leftovers(url, error)


def _warn_leftovers(url: str, error: Exception) -> None:
    logger.warning(
        "could not remove what a run has left in %s: %s", redact(url), short_message(error)
    )


def _remove(url: str, is_wanted: Callable[[str], object]) -> None:
    names = [name for name in list_names(url) if is_wanted(name)]
    for name in sorted(names, key=lambda name: name != SUMMARY_NAME):
        Folder(url).remove(name)
