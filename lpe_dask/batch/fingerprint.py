"""What an output was made from, so that a later run can see whether it is the same run.

A run is the same if its files, settings and model are the same: then the existing part of
its output is what it would write, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lpe_dask.batch.errors import RunError
from lpe_dask.batch.output import FINGERPRINT_NAME, SUMMARY_NAME, write_json
from lpe_dask.storage import Folder, Lock, to_jsonable
from lpe_dask.tables import FileTable

#: Where in a summary the fingerprint is.
FINGERPRINT_KEY = "fingerprint"

#: What to call the settings that differ.
_SETTING_NAMES = {
    "columns": "the columns to measure",
    "keep": "the columns to carry over",
    "model": "the nominal rows, the model or its parameters",
    "scores_nominal_rows": "whether rows are scored among themselves",
    "alpha": "alpha",
    "fdr": "fdr",
    "confidence": "confidence",
    "csv": "how CSV files are read",
    "rows": "which rows are written",
    "format": "the format of the output",
    "n_parts": "the partitions of the input",
    "versions": "the versions of lpe_dask and Dask",
}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What decides about an output: two runs with the same one would write the same.

    Attributes
    ----------
    data : list
        Name, bytes and time of change of each file, as `TableFiles.stamps` has them.
    settings : dict
        Everything else, by the keys of `_SETTING_NAMES`.
    """

    data: list[Any]
    settings: dict[str, Any]

    @property
    def run(self) -> str:
        """Tells this run from others."""
        return digest(self.content())

    def same_input(self, other: Fingerprint) -> bool:
        """Return whether both are the same except for how the input was partitioned."""
        cut = ("n_parts", "versions")
        own, others = (
            {name: value for name, value in settings.items() if name not in cut}
            for settings in (self.settings, other.settings)
        )
        return self.data == other.data and own == others

    def is_resumable_from(self, earlier: Fingerprint) -> bool:
        """Return whether all but the content of some files is the same as in another run.

        What that run has written from the other files is what this one would write: see
        `of_parts`.
        """
        names, before = ([name for name, *_ in each.data] for each in (self, earlier))
        return self.settings == earlier.settings and names == before

    def part_digests(
        self, table: FileTable, about: list[str], *, is_exact: bool
    ) -> list[str]:
        """Return for each part of the output what decides about it alone.

        Parameters
        ----------
        table : FileTable
            With the partitions of the input.
        about : list of str
            What else decides about all parts.
        is_exact : bool
            Whether p-values are the same whatever other rows are scored with them.
        """
        whole = [self.settings, about, [] if is_exact else self.data]
        return [digest([*whole, token]) for token in table.partition_tokens()]

    def content(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return {"data": self.data, "settings": self.settings}

    def write(self, url: str) -> None:
        """Write it, and the time, into an output folder that is not finished."""
        began = {"started": now().isoformat()}
        write_json(url, FINGERPRINT_NAME, self.content() | began)

    def differences(self, earlier: Fingerprint) -> str:
        """Return in words what has changed since an earlier run."""
        before, now = earlier.settings, self.settings
        changed = [
            _SETTING_NAMES[name]
            for name in _SETTING_NAMES
            if before.get(name) != now.get(name)
        ]
        return ", ".join(changed_files(earlier.data, self.data) + changed)


def changed_files(before: list[Any], now: list[Any]) -> list[str]:
    """Return in words the first file that has changed, and how many have.

    Parameters
    ----------
    before, now : list
        As `TableFiles.stamps` has them.
    """
    if before == now:
        return []
    old, new = ({name: stamp for name, *stamp in files} for files in (before, now))
    names = sorted(old.keys() | new.keys())
    changed = [name for name in names if old.get(name) != new.get(name)]
    if not changed:
        return ["the order of the input files"]
    first = changed[0]
    how = "changed" if first in old and first in new else "new" if first in new else "gone"
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return [f"the input ({first} is {how}{more})"]


def check_unchanged(table: FileTable, remove: Callable[[str], None], url: str) -> None:
    """Raise RunError if the files of a table are not what they were when the run began.

    Parameters
    ----------
    table : FileTable
    remove : callable
        Is called with ``url`` before, to remove what was made from these files: it may be
        from what they were meanwhile, also if they are later what they were before.
    url : str
    """
    changed = changed_files(table.files.stamps, table.files.again().stamps)
    if changed:
        remove(url)
        raise RunError(
            f"the run stopped because an input file changed while it was read: "
            f"{changed[0]}. What was computed from the input files is removed. Start the "
            f"run again when they no longer change."
        )


def read_fingerprint(url: str) -> Fingerprint | None:
    """Return the fingerprint in an output folder; None without a valid one.

    That of an interrupted run, or else of the run that wrote the summary.
    """
    folder = Folder(url)
    for name in (FINGERPRINT_NAME, SUMMARY_NAME):
        try:  # other OSErrors are no reason to start from scratch
            content = json.loads(folder.read(name) or b"")
            if name == SUMMARY_NAME:
                content = content[FINGERPRINT_KEY]
            data = [[str(file_name), *stamp] for file_name, *stamp in content["data"]]
            settings = dict(content["settings"])
            if not isinstance(settings["n_parts"], int) or settings["n_parts"] < 1:
                continue
            return Fingerprint(data, settings)
        except (IsADirectoryError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def start_of(url: str) -> datetime | None:
    """Return when the run began that an output folder has; None if it is finished.

    Parts may have been written later: by the same run, which was resumed. While its model
    was fitted there was only the lock, which stays if the run was killed.
    """
    folder = Folder(url)
    if folder.exists(SUMMARY_NAME):
        return None
    for name, key in ((FINGERPRINT_NAME, "started"), (Lock.NAME, "since")):
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            said = json.loads(folder.read(name) or b"")[key]
            return datetime.fromisoformat(said).astimezone()
    return None


def now() -> datetime:
    """Return the local time of this machine."""
    return datetime.now().astimezone()


def digest(content: Any) -> str:
    """Return a hash of values of JSON, in hexadecimal digits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=to_jsonable)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
