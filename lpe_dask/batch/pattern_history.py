"""Remember the patterns of a series of runs, to tell which of them are new.

`history` of the run before --> up to `N_EARLIER` runs --with this one--> `history`

Patterns are known by digests of what they begin with, so that nothing of a table is kept
that is to be private later. Only one earlier summary is read.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Any, Self

from lpe_dask.batch.drift_log import RunSeries
from lpe_dask.model import Term
from lpe_dask.storage import short_message

logger = logging.getLogger(__name__)

#: Earlier runs in which patterns are looked up.
N_EARLIER = 7


@dataclass(frozen=True, slots=True)
class PatternHistory:
    """The patterns of the runs before a run of a series.

    Attributes
    ----------
    date : str, optional
        Of the run; None where it belongs to no series.
    earlier : list of dict
        Of each earlier run, the newest first: its date, and about how many flagged rows
        each pattern had, by digest.
    reason : str, optional
        Why there are none; None: there are.
    """

    date: str | None
    earlier: list[dict[str, Any]]
    reason: str | None

    @classmethod
    def of(cls, series: RunSeries | None, no_series_reason: str | None) -> Self:
        """Return that before the next run of a series; raises nothing."""
        if series is None:
            return cls(None, [], no_series_reason)
        try:
            told = series.predecessor_section("patterns").get("history", [])[:N_EARLIER]
            known = [_record(run["date"], run["rows"]) for run in told]
        except Exception as error:  # libraries of storages have errors of their own
            why = f"patterns of earlier runs cannot be read: {short_message(error)}"
            logger.warning("%s", why)
            return cls(series.date, [], why)
        why_none = None if known else "no earlier run of the series has patterns"
        return cls(series.date, known, why_none)

    def seen(self, lead: Term) -> dict[str, Any]:
        """Return whether a pattern is new, else in how many runs it was, and how large."""
        if not self.earlier:
            return {"is_new": None, "seen_runs": None, "seen_rows": None}
        key = _digest(lead)
        sizes = [run["rows"][key] for run in self.earlier if key in run["rows"]]
        return {
            "is_new": not sizes, "seen_runs": len(sizes), "seen_rows": max(sizes, default=0)
        }  # fmt: skip

    def section(self, patterns: dict[Term, int] | None) -> dict[str, Any]:
        """Return what a summary has of this, with the patterns of the run and their rows.

        None: those of the run are not known, and it does not count.
        """
        history = self.earlier
        if self.date is not None and patterns is not None:
            own = {_digest(lead): n_rows for lead, n_rows in patterns.items()}
            history = [_record(self.date, own), *history]
        return {
            "n_earlier_runs": len(self.earlier), "no_earlier_runs_reason": self.reason,
            "history": history,
        }  # fmt: skip


def _record(date: Any, rows: dict[str, Any]) -> dict[str, Any]:
    sizes = {str(key): int(n_rows) for key, n_rows in rows.items()}
    return {"date": str(date), "rows": sizes}


def _digest(lead: Term) -> str:
    text = "\0".join((lead.column, lead.relation, lead.value))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
