"""When a job fits its model again, beside always and never, and what came of it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpe_dask.model import Fitted

#: What a job may say.
PATTERN = r"^(on drift|every [1-9][0-9]{0,3} days?)$"


class Outcome(StrEnum):
    """What came of a new model that was due."""

    #: Nothing yet: the run was interrupted.
    PENDING = "pending"
    #: It scores from the next run on.
    SWAPPED = "swapped"
    #: There is none, as the nominal rows are those of the old one.
    UNCHANGED = "unchanged"
    #: It is worse than the old one, which goes on; or it could not be fitted.
    REJECTED = "rejected"
    #: Another run has replaced the old one in the meantime.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class RefitPolicy:
    """When a job fits its model again.

    Attributes
    ----------
    text : str
        As the job has it: "on drift", or "every 30 days".
    """

    text: str

    @property
    def n_days(self) -> int | None:
        """Days after which a model is fitted again; None: on drift."""
        number = re.search("[0-9]+", self.text)
        return None if number is None else int(number[0])

    def due_reason(
        self, model: Fitted, day: datetime.date, drift: Mapping[str, Any]
    ) -> str | None:
        """Return why the model is to be fitted again after a run; None if it is not.

        Parameters
        ----------
        model : Fitted
            That has scored.
        day : datetime.date
            Of the run.
        drift : mapping
            The section of its summary.
        """
        verdict = drift["verdict"]
        if verdict == "invalid input":  # no model could be judged by it
            return None
        if model.run_date is not None and day < datetime.date.fromisoformat(model.run_date):
            return None  # a run of an earlier day: the model is the newer one
        if self.n_days is None:
            return drift["text"] if verdict == "drift" else None
        known = model.run_date or model.created
        if known is None:
            return "the day on which the model was fitted is not known"
        age = (day - datetime.date.fromisoformat(known[:10])).days
        if age < self.n_days:
            return None
        return f"the model is of {known[:10]}, {age} days ago"


def is_refit_pending(summary: Mapping[str, Any]) -> bool:
    """Return whether a run has scored its rows, and has yet to fit its model again."""
    section = summary.get("refit")
    return isinstance(section, Mapping) and section.get("outcome") == Outcome.PENDING
