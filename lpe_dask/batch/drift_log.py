"""Hold a run against the earlier runs of its series, each of which has its state on record.

    out/2026-11-19/_summary.json     the state after that run, and which one it follows
    out/2026-11-20/_summary.json     the state after this one, which follows it

An output without a day in its name is replaced by the next run. So what its summary says of
the series is copied first:

    OUT/_summary.json --> OUT/_predecessor.json, the state that the next summary begins with

A run that replaces itself therefore counts once. Nothing here fails a run that could write
its output.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.fingerprint import FINGERPRINT_KEY, Fingerprint
from lpe_dask.batch.output import PREDECESSOR_NAME, SUMMARY_NAME, write_json
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.monitoring import Drift, DriftMonitor, with_examples
from lpe_dask.storage import Folder, UnsafeFileError, redact, redact_url, short_message

logger = logging.getLogger(__name__)

#: Most summaries of other days that are read to find one of the same series: with a model
#: that is fitted again each day there is none.
MAX_SUMMARIES = 100


#: What reading a damaged summary raises, or one of another version.
_DAMAGED = (
    UnsafeFileError, IsADirectoryError, ValueError, KeyError, TypeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The runs of one job with one model and level, of which a run is the next one.

    Attributes
    ----------
    output : str
        URL of the output of the run.
    dated_output : DatedOutput, optional
        None if the output has no day in its name.
    made_from : Fingerprint
        Of the run.
    monitor : DriftMonitor
        Of the model and the level.
    """

    output: str
    dated_output: DatedOutput | None
    made_from: Fingerprint
    monitor: DriftMonitor

    @property
    def date(self) -> str:
        """The day of the run: that in the name of its output, or today."""
        dated = self.dated_output
        return (datetime.date.today() if dated is None else dated.day).isoformat()

    @property
    def key(self) -> dict[str, Any]:
        """What the runs of the series have in common."""
        job = None if self.dated_output is None else self.dated_output.job
        return {
            "job": job, "model": self.monitor.model, "alpha": self.monitor.bins.alpha,
            "delta": self.monitor.config.delta,
        }  # fmt: skip

    def section(
        self, stats: PartStats, examples: Callable[[str], Sequence[str]]
    ) -> dict[str, Any]:
        """Return the section of a summary about this run.

        Parameters
        ----------
        stats : PartStats
            Of all parts.
        examples : callable
            As in `with_examples`.
        """
        fork_warning = None
        try:
            drift, predecessor, why_none = self._after_predecessor(stats)
        except Exception as error:  # libraries of storages have errors of their own
            why_none = f"the outputs of earlier runs cannot be read: {short_message(error)}"
            logger.warning("this run counts as the first one of its series: %s", why_none)
            drift, predecessor = self._updated(None, stats), None
        drift = with_examples(drift, examples)
        try:
            fork_warning = self._fork_warning(drift)
        except Exception as error:
            logger.warning(
                "it is not known whether later runs follow this: %s", short_message(error)
            )
        if fork_warning is not None:
            logger.warning("%s", fork_warning)
        return {
            **drift.as_json(),
            "series": self.key,
            "predecessor": predecessor,
            "no_predecessor_reason": why_none,
            "fork_warning": fork_warning,
        }

    def carry_over(self) -> None:
        """Copy what the summary says of its series that is about to be replaced.

        The same input again replaces itself: the copy stays what that run has followed. It
        keeps the copy before it, which that run follows if the next one never ends.
        """
        summary = self._summary(self.output)
        if summary is None or (self._is_own(summary) and self._has_same_input(summary)):
            return
        before = self._summary(self.output, PREDECESSOR_NAME) or {}
        copied, of_before = map(_carried, (summary, before))
        write_json(self.output, PREDECESSOR_NAME, {**copied, "before": of_before})

    def predecessor_section(self, name: str) -> dict[str, Any]:
        """Return a section of the newest summary that the run may follow; {} if none."""
        for _, _, summary in self._earlier():
            return dict(summary.get(name) or {})
        return {}

    def _updated(self, state: dict[str, Any] | None, stats: PartStats) -> Drift:
        """Return the drift of the run after a state; None: it is the first one."""
        values = stats.missing, stats.unseen
        groups = None if stats.watched is None else stats.watched.array()
        return self.monitor.update(
            state, stats.bins, self.date, redact_url(self.output), values, groups
        )

    def _after_predecessor(
        self, stats: PartStats
    ) -> tuple[Drift, dict[str, Any] | None, str | None]:
        """Return the drift of the run, its predecessor, and why it has none."""
        for day, output, summary in self._earlier():
            section = summary["drift"]
            try:
                drift = self._updated(dict(section["state"]), stats)
            except _DAMAGED as error:
                _warn_skipped(output, error)
                continue
            date = None if day is None else day.isoformat()
            predecessor = {"output": redact_url(output), "date": date}
            return drift, predecessor | {"run": section.get("run")}, None
        why_none = "there is no summary of an earlier run of this job, model and alpha"
        return self._updated(None, stats), None, why_none

    def _fork_warning(self, drift: Drift) -> str | None:
        """Return in words that a later day does not follow this run; None if it does."""
        if self.dated_output is None:
            return None
        days = self.dated_output.others()
        later = [day for day in days if day > self.dated_output.day]
        for _, output, summary in self._of_days(later):
            own, known = drift.state["runs"][-1], summary["drift"]["state"]["runs"]
            if own in known:
                return None
            followed = (summary["drift"]["predecessor"] or {}).get("output")
            relation = "is the first run" if followed is None else f"follows {followed}"
            if followed == redact_url(self.output):
                relation += " as it was before"
            return (
                f"this run forks its series: {redact(output)} already {relation}; later "
                f"runs follow the newest date"
            )
        return None

    def _earlier(self) -> Iterator[tuple[datetime.date | None, str, dict[str, Any]]]:
        """Yield the summaries that the run may follow, the newest one first."""
        if self.dated_output is not None:
            days = self.dated_output.others()
            earlier = [day for day in days if day < self.dated_output.day]
            yield from self._of_days(reversed(earlier))
            return
        copied = self._summary(self.output, PREDECESSOR_NAME) or {}
        for summary in (copied, copied.get("before") or {}):
            if self._is_own(summary) and not self._has_same_input(summary):
                yield None, self.output, summary

    def _of_days(
        self, days: Iterable[datetime.date]
    ) -> Iterator[tuple[datetime.date, str, dict[str, Any]]]:
        """Yield the summaries of days that are of this series, and of other input."""
        assert self.dated_output is not None
        n_read = 0
        for day in days:
            output = Folder(self.dated_output.on(day)).full_url()
            summary = self._summary(output)
            if summary is None:
                continue
            if self._is_own(summary) and not self._has_same_input(summary):
                yield day, output, summary
            n_read += 1
            if n_read == MAX_SUMMARIES:
                return

    def _summary(self, output: str, name: str = SUMMARY_NAME) -> dict[str, Any] | None:
        """Return a summary; None if there is none, or a damaged one."""
        try:
            content = Folder(output).read(name)
            return None if content is None else dict(json.loads(content))
        except _DAMAGED as error:
            _warn_skipped(output, error)
            return None

    def _is_own(self, summary: dict[str, Any]) -> bool:
        section = summary.get("drift")
        series = section.get("series") if isinstance(section, dict) else None
        return isinstance(series, dict) and self.key.items() <= series.items()

    def _has_same_input(self, summary: dict[str, Any]) -> bool:
        made_from = summary.get(FINGERPRINT_KEY)
        return isinstance(made_from, dict) and made_from.get("data") == self.made_from.data


def _carried(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the next runs of the series need of a summary."""
    patterns = summary.get("patterns")
    history = patterns.get("history") if isinstance(patterns, dict) else None
    copied = {name: summary.get(name) for name in (FINGERPRINT_KEY, "drift")}
    return {**copied, "patterns": {"history": history or []}}


def _warn_skipped(output: str, error: Exception) -> None:
    logger.warning(
        "the summary in %s is passed over, as it is damaged or of another version: %s",
        redact(output), short_message(error),
    )  # fmt: skip
