"""The page about a run, from its summary alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from markupsafe import Markup, escape

from lpe_dask.pages.pictures import has_pictures, picture_of_nights, picture_of_p_values
from lpe_dask.pages.rendering import cut, render, style, written

#: Most bytes of a page.
MOST_BYTES = 300_000

#: Columns that a row shows at most; fewer where the page would become too large.
_N_COLUMNS = (20, 10, 5, 3)

#: What a run counts of its workers, in words.
_OF_WORKERS = {
    "workers_lost": ("workers lost", "count"),
    "tasks_repeated": ("tasks done again", "count"),
    "bytes_spilled": ("written to disk for want of memory", "bytes"),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a summary, by their paths, such as ``drift.flagged_between.0``.

    Attributes
    ----------
    summary : mapping
    """

    summary: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """Return what is at a path; None if there is nothing."""
        found: Any = self.summary
        for step in path.split("."):
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, TypeError, ValueError):
                return None
        return found

    def __call__(self, path: str, form: str = "plain") -> Markup:
        """Return the number at a path as an element that has its exact value, too."""
        value = self.at(path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return escape(cut(written(value)))
        text = escape(written(value, form))
        return Markup('<data value="{}" data-key="{}">{}</data>').format(
            repr(value), path, text
        )


def report_page(summary: Mapping[str, Any]) -> str:
    """Return the page about a run.

    Parameters
    ----------
    summary : mapping
        What ``_summary.json`` contains; what is missing, as earlier versions had less, is
        left out.

    Returns
    -------
    page : str
        HTML without scripts, which loads nothing, of at most `MOST_BYTES`.
    """
    page = ""
    for n_columns in _N_COLUMNS:
        page = _page(summary, n_columns)
        if len(page.encode(errors="replace")) <= MOST_BYTES:
            break
    return page


def _page(summary: Mapping[str, Any], n_columns: int) -> str:
    number = Numbers(summary)
    return render(
        "report.html.jinja", number=number, at=number.at, n_columns=n_columns,
        attention=list(_attention(number)), pictures=_pictures(number), style=style(),
        has_pictures=has_pictures(), version=version("lpe-dask"), of_workers=_OF_WORKERS,
    )  # fmt: skip


def _pictures(number: Numbers) -> dict[str, Markup]:
    """Return the pictures of a summary that has what they show."""
    if not has_pictures():
        return {}
    pictures = {}
    if number.at("p_value_cells.rows"):
        pictures["p_values"] = picture_of_p_values(number.at("p_value_cells"))
    history = number.at("drift.history")
    if history:
        delta = number.at("drift.series.tolerances.delta") or 0.01
        needed = math.log10(2 / delta)
        pictures["nights"] = picture_of_nights(history, number.at("drift.promised"), needed)
    return pictures


def _attention(number: Numbers) -> Iterator[Markup]:
    """Yield what to look at, the most urgent first."""
    verdict, nights = number.at("drift.verdict"), number.at("drift.excess_nights") or 0
    if verdict in ("drifting", "broken input"):
        yield escape(cut(number.at("drift.reason"), 300))
    if verdict == "drifting" and number.at("drift.changed_since") is not None:
        since = number.at("drift.changed_since")
        yield escape(
            f"there is evidence of a change since {cut(since['output'] or since['run'])}"
        )
    if number.at("rows_nan"):
        yield Markup("{} rows have no p-value").format(number("rows_nan", "count"))
    if nights > 1:
        yield Markup("more rows than promised are flagged, for {} nights in a row").format(
            number("drift.excess_nights", "count")
        )
    if number.at("calibration_check.holds") is False:
        yield escape("held-out nominal rows raise more false alarms than promised")
    if number.at("workers_lost"):
        yield Markup("{} workers were lost").format(number("workers_lost", "count"))
    rows = [row for row in number.at("reasons.rows") or [] if row["is_anomaly"]]
    first = Counter(row["columns"][0]["column"] for row in rows if row["columns"])
    for name, n in first.most_common(2):
        yield escape(
            f"{cut(name)} is the first reason in {n} of the {len(rows)} flagged rows below"
        )
