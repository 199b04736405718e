"""Remember which days of a job are not finished, for a start after midnight.

    out/2026-11-20/                       the output of a day
    out/_runs/<job>-2026-11-20.json       beside it, from the start of its run to its end

A job is identified by its content, not by the name of its file: several jobs may share a
folder, also those of one file with different variables. An edited job is another job with
the same name of its outputs. These files only decide which day is chosen; users may remove
them.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lpe_dask.batch.output import write_json
from lpe_dask.storage import Folder, brief

logger = logging.getLogger(__name__)

#: Name of the folder, beside the outputs.
NOTES = "_runs"

#: Errors with which a run is refused: it would be refused again.
_REFUSED = (ValueError, TypeError, MemoryError, ImportError)


@dataclass(frozen=True, slots=True)
class DayOfJob:
    """A day of a job whose output has the day in its name.

    Attributes
    ----------
    folder : str
        Contains the outputs of all days.
    job : str
        Hash of the job, without the day.
    output : str
        Hash of the name of its output, without the day; the same after most edits, but not
        with other variables.
    path : str
        Of its file.
    day : date
    """

    folder: str
    job: str
    output: str
    path: str
    day: datetime.date

    @property
    def notes(self) -> str:
        """The folder of the notes."""
        return f"{self.folder.rstrip('/')}/{NOTES}"

    @property
    def _name(self) -> str:
        """The name of the note of the run."""
        return f"{self.job}-{self.day}.json"

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep a note of the run in the folder until the run is finished or refused."""
        is_new = self._note()
        try:
            yield
        except _REFUSED:
            if is_new:  # that of an earlier start is of a run which was not refused
                self.forget()
            raise
        self.forget()

    def _note(self) -> bool:
        """Write the note, and return True; not if there is one, as a run is resumed."""
        said = {
            "job": os.path.abspath(self.path),
            "says": self.job,
            "writes": self.output,
            "date": self.day.isoformat(),
            "began": now().isoformat(),
        }
        try:
            noted = {(note.job, note.day) for note in self.others()}
            if (self.job, self.day) in noted:
                return False
            write_json(self.notes, self._name, said)
        except (OSError, NotImplementedError) as error:
            logger.warning(
                "cannot write the note of the run of %s to %s: %s If the run is "
                "interrupted, resume it with --date %s.",
                self.day, self.notes, brief(error), self.day,
            )  # fmt: skip
        return True

    def forget(self) -> None:
        """Remove the note, and those of this day from before the job was edited."""
        folder = Folder(self.notes)
        with suppress(OSError, NotImplementedError):  # the next start looks at the output
            for note in self.others():
                if note.day == self.day:
                    folder.remove_file(note.name)
            # Where a run died while it wrote the note.
            for name in folder.names(f".{self._name}."):
                folder.remove_file(name)

    def others(self) -> list[Note]:
        """Return the notes of this job, also from before it was edited."""
        folder, notes = Folder(self.notes), []
        for name in [name for name in folder.names() if name.endswith(".json")]:
            with suppress(ValueError, KeyError, TypeError):  # not a note
                note = json.loads(folder.read(name) or b"")
                day = datetime.date.fromisoformat(note["date"])
                began = datetime.datetime.fromisoformat(note["began"]).astimezone()
                if note["writes"] == self.output:
                    notes.append(Note(name, note["says"], day, began))
        return notes


@dataclass(frozen=True, slots=True)
class Note:
    """The note of a run that has begun.

    Attributes
    ----------
    name : str
        Of its file.
    job : str
        As in `DayOfJob`.
    day : date
        What ``{date}`` stood for.
    began : datetime
        When the run began for the first time.
    """

    name: str
    job: str
    day: datetime.date
    began: datetime.datetime


def now() -> datetime.datetime:
    """Return the local time of this machine."""
    return datetime.datetime.now().astimezone()
