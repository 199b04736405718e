"""When a job fits its model again, beside always and never."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpe_dask.model import Fitted

#: What a job may say.
PATTERN = r"^(on drift|every [1-9][0-9]{0,3} days?)$"


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
        if self.n_days is None:
            return drift["text"] if verdict == "drift" else None
        known = model.run_date or model.created
        if known is None:
            return "the day on which the model was fitted is not known"
        age = (day - datetime.date.fromisoformat(known[:10])).days
        if age < self.n_days:
            return None
        return f"the model is of {known[:10]}, {age} days ago"
