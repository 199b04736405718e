"""Remember the patterns of a series of runs, to tell which of them are new.

`history` of the run before --> up to `N_EARLIER` runs --with this one--> `history`

Patterns are known by digests of their terms: of what all their rows have, any may come
first. Digests can be guessed, so what was remembered before a column became private is
forgotten. Only one earlier summary is read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

from lpe_dask.batch.drift_log import RunSeries
from lpe_dask.model import Term
from lpe_dask.storage import short_message

logger = logging.getLogger(__name__)

#: Earlier runs in which patterns are looked up, and which part of the rows that one has now
#: it had there at least: single false alarms are in every run.
N_EARLIER, LEAST_PART = 7, 0.1


@dataclass(frozen=True, slots=True)
class PatternHistory:
    """The patterns of the runs before a run of a series.

    Attributes
    ----------
    earlier : list of dict, optional
        Of each earlier run, the newest first: about how many flagged rows the largest
        pattern with each term had, by digest, and which columns were private. None: the
        run belongs to no series.
    private : list of str
        The columns that are private now.
    """

    earlier: list[dict[str, Any]] | None
    private: list[str]

    @classmethod
    def of(cls, series: RunSeries | None, private: Collection[str]) -> Self:
        """Return that before the next run of a series; raises nothing."""
        now = sorted(private)
        if series is None:
            return cls(None, now)
        try:
            history = series.predecessor_section("patterns").get("history", [])
            known = [
                _record(run["rows"], run["private_columns"]) for run in history[:N_EARLIER]
            ]
        except Exception as error:  # libraries of storages have errors of their own
            logger.warning(
                "patterns of earlier runs cannot be read: %s", short_message(error)
            )
            return cls([], now)
        return cls([run for run in known if {*now} <= {*run["private_columns"]}], now)

    def seen(self, lead: Term, n_rows: int) -> dict[str, Any]:
        """Return whether a pattern is new, and in how many runs it was of this size."""
        if not self.earlier:
            return {"is_new": None, "seen_runs": None}
        key, least = _digest(lead), LEAST_PART * n_rows
        n_runs = sum(run["rows"].get(key, 0) >= max(1, least) for run in self.earlier)
        return {"is_new": n_runs == 0, "seen_runs": n_runs}

    def section(self, sizes: dict[Term, int] | None) -> dict[str, Any]:
        """Return what a summary has of this, with the terms of the run and their rows.

        None: its patterns are not known, and it does not count.
        """
        earlier = self.earlier or []
        history = earlier
        if self.earlier is not None and sizes is not None:
            own = {_digest(term): n_rows for term, n_rows in sizes.items()}
            history = [_record(own, self.private), *earlier]
        return {"n_earlier_runs": len(earlier), "history": history}


def _record(rows: dict[str, Any], private: list[Any]) -> dict[str, Any]:
    sizes = {str(key): int(n_rows) for key, n_rows in rows.items()}
    return {"rows": sizes, "private_columns": [*map(str, private)]}


def _digest(term: Term) -> str:
    text = "\0".join((term.column, term.relation, term.value))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
