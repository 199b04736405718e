"""The outputs of a job that has the day of each run in their name.

    output = "out/{date}"       out/2026-11-19, out/2026-11-20, ...

Which outputs there are is read from the folder that holds those of all days.
"""

from __future__ import annotations

import datetime
from contextlib import suppress
from dataclasses import dataclass, replace

from lpe_dask.batch.fingerprint import digest
from lpe_dask.batch.placeholders import Placeholders
from lpe_dask.storage import Folder, like

#: Replaces the day of a run where days must not matter.
_REFERENCE_DATE = datetime.date(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class DatedOutput:
    """The output of a run, and those of the same job on other days.

    Attributes
    ----------
    template : str
        As the job has it, with placeholders; outputs open as it does.
    placeholders : Placeholders
        For the day of the run.
    start : str
        What precedes the first day in the name of each output.
    offset : timedelta
        From the day of a run to that first day.
    """

    template: str
    placeholders: Placeholders
    start: str
    offset: datetime.timedelta

    @classmethod
    def of(cls, template: str, placeholders: Placeholders) -> DatedOutput | None:
        """Return the outputs of a template.

        None if there is no day in it, or no folder that holds the outputs of all days.
        """
        found = placeholders.first_day(template)
        if found is None or found[0].rpartition("/")[0].endswith(":/"):
            return None  # the day is the name of a bucket
        start, day = found
        return cls(template, placeholders, start, day - placeholders.day)

    @property
    def day(self) -> datetime.date:
        """The day of the run."""
        return self.placeholders.day

    @property
    def job(self) -> str:
        """Identifies the template, with its variables filled in."""
        return digest(self.on(_REFERENCE_DATE))

    @property
    def without_day(self) -> str:
        """The output, with the placeholders of days as they are."""
        return self.placeholders.expand_variables(self.template)

    @property
    def folder(self) -> str:
        """The folder that holds the outputs of all days."""
        folder, slash, _ = self.start.rpartition("/")
        return like(self.template, folder or slash or ".")

    def on(self, day: datetime.date) -> str:
        """Return the output of a day."""
        output = replace(self.placeholders, day=day).expand(self.template)[0]
        return like(self.template, output)

    def others(self) -> list[datetime.date]:
        """Return the other days for which there is something in the folder, ascending."""
        days = map(self._day_of, Folder(self.folder).names())
        return sorted({day for day in days if day is not None} - {self.day})

    def _day_of(self, name: str) -> datetime.date | None:
        """Return the day whose output is, or is below, this name in the folder."""
        n_before = len(self.start.rpartition("/")[2])
        with suppress(ValueError, OverflowError):  # no day, or one that cannot be
            day = datetime.date.fromisoformat(name[n_before:][:10]) - self.offset
            below = self.on(day)[len(self.start) - n_before :]
            return day if below.split("/")[0] == name else None
        return None
