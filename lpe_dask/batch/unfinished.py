"""Remember which days of a job are not finished, for the start that comes after midnight.

    out/2026-11-20/                       the output of a day
    out/_runs/<job>-2026-11-20.json       beside it, from the start of its run to its end

A job is known by what it says, not by the name of its file: several jobs may share a
folder, also those of one file with other variables, and one that was edited is another one,
as its outputs are. What has the same name for its outputs is the job before it was edited.
These files decide nothing but which day is taken, and whoever has no use for one may remove
it.
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

#: What a run may be refused for: started again, it would be refused again.
_REFUSED = (ValueError, TypeError, MemoryError)


@dataclass(frozen=True, slots=True)
class DayOfJob:
    """A day of a job whose output has the day in its name.

    Attributes
    ----------
    folder : str
        That holds the outputs of all days.
    job : str
        Tells the job from others.
    output : str
        Tells its outputs from those of others; the same after most edits, but not with
        other variables.
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

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Have a note of the run in the folder until it is finished, or refused."""
        self._note()
        try:
            yield
        except _REFUSED:
            self.forget()
            raise
        self.forget()

    def _note(self) -> None:
        """Write the note, but leave one that is there: the run is going on."""
        said = {
            "job": os.path.abspath(self.path),
            "says": self.job,
            "writes": self.output,
            "date": self.day.isoformat(),
            "began": now().isoformat(),
        }
        try:
            if not any(note.is_of(self) for note in self.others()):
                write_json(self.notes, f"{self.job}-{self.day}.json", said)
        except (OSError, NotImplementedError) as error:
            logger.warning(
                "it is not noted in %s that the run of %s has begun: %s If it is "
                "interrupted, go on with --date %s.",
                self.notes, self.day, brief(error), self.day,
            )  # fmt: skip

    def forget(self) -> None:
        """Remove the note, and those of this day from before the job was edited."""
        with suppress(OSError, NotImplementedError):  # the next start looks at the output
            for note in self.others():
                if note.day == self.day:
                    Folder(self.notes).remove_file(note.name)

    def others(self) -> list[Note]:
        """Return the notes of this job, also from before it was edited."""
        return [note for note in _notes(self.notes) if note.output == self.output]


@dataclass(frozen=True, slots=True)
class Note:
    """What tells that a run has begun.

    Attributes
    ----------
    name : str
        Of its file.
    job, output : str
        As `DayOfJob` has them.
    day : date
        What ``{date}`` stood for.
    began : datetime
        When the run began first.
    """

    name: str
    job: str
    output: str
    day: datetime.date
    began: datetime.datetime

    def is_of(self, day: DayOfJob) -> bool:
        """Return whether a run of this job and day has begun."""
        return (self.job, self.day) == (day.job, day.day)


def now() -> datetime.datetime:
    """Return the time, with the days of this machine's clock."""
    return datetime.datetime.now().astimezone()


def _notes(url: str) -> list[Note]:
    folder, notes = Folder(url), []
    for name in folder.names():
        if name.endswith(".json"):
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(folder.read(name) or b"")
                day = datetime.date.fromisoformat(said["date"])
                began = datetime.datetime.fromisoformat(said["began"]).astimezone()
                notes.append(Note(name, said["says"], said["writes"], day, began))
    return notes
