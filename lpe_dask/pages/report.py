"""The page about a run, from its summary alone.

A summary may be of an earlier version, or damaged: whatever it has or lacks, there is a
page. Templates therefore reach values by their paths alone, and never fail for want of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from markupsafe import Markup, escape

from lpe_dask.pages.pictures import has_pictures, p_value_figure, runs_figure
from lpe_dask.pages.rendering import cut, is_number, parted, place, render, style, written

#: Most bytes of a page.
MAX_BYTES = 300_000

#: Rows, past runs, and items of other lists that a page shows at most.
_N_ROWS, _N_RUNS, _N_ITEMS = 50, 200, 40

#: Columns that a row shows at most; fewer where the page would become too large.
_N_COLUMNS = (20, 10, 5, 3)

#: Columns with missing values that are named in the first card, and statuses at most.
_N_MISSING, _N_STATUSES = 3, 10

#: The longest path that a page has.
_PATH_LENGTH = 100

#: The promised share of flagged rows, and between which the calibration rows put it.
_PROMISED = ("drift.promised", "drift.promised_between.0", "drift.promised_between.1")


@dataclass(frozen=True, slots=True)
class Content:
    """What a summary holds, by paths such as ``drift.flagged_between.0``.

    Attributes
    ----------
    summary : mapping
    """

    summary: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """Return the value at a path; None if there is none."""
        found: Any = self.summary
        while path:
            if isinstance(found, Mapping) and path in found:
                return found[path]  # a name may have a dot
            step, _, path = path.partition(".")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, TypeError, ValueError):
                return None
        return found

    def real(self, path: str) -> float:
        """Return the number at a path; 0 if there is none."""
        value = self.at(path)
        return float(value) if is_number(value) else 0.0

    def names(self, path: str) -> list[tuple[str, str]]:
        """Return the names in the mapping at a path, each with its own path."""
        found = self.at(path)
        names = list(found)[:_N_ITEMS] if isinstance(found, Mapping) else []
        return [(name, f"{path}.{name}") for name in names]

    def items(self, path: str, most: int = _N_ITEMS, *, last: bool = False) -> list[str]:
        """Return the paths of the first, or the last, items in the list at a path."""
        found = self.at(path)
        n = len(found) if isinstance(found, list) else 0
        start = max(0, n - most) if last else 0
        return [f"{path}.{i}" for i in range(start, min(n, start + most))]

    def text(self, path: str, form: str = "plain", most: int = 60) -> str:
        """Return the value at a path as a page shows it."""
        return cut(written(self.at(path), form), most)

    def number(self, path: str, form: str = "plain") -> Markup:
        """Return the number at a path as an element that has its exact value, too."""
        value, text = self.at(path), escape(self.text(path, form))
        if not is_number(value) or len(path) > _PATH_LENGTH:
            return text
        key = escape(path)
        return Markup(f'<data value="{value!r}" data-key="{key}">{text}</data>')


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
        HTML without scripts, which loads nothing, of at most `MAX_BYTES`.
    """
    content, page = Content(summary), ""
    given = {
        "at": content.at, "items": content.items, "names": content.names,
        "number": content.number, "real": content.real, "text": content.text,
        "rows": content.items("reasons.rows", _N_ROWS),
        "runs": content.items("drift.state.runs", _N_RUNS, last=True),
        "values": content.items("values"), "missing": _missing(content),
        "statuses": _statuses(content),
        "attention": list(_attention(content)), "pictures": _pictures(content),
        "up_to_alpha": _up_to_alpha(content), "has_pictures": has_pictures(),
        "style": style(), "version": version("lpe-dask"),
    }  # fmt: skip
    for n_columns in _N_COLUMNS:
        page = render("report.html.jinja", n_columns=n_columns, **given)
        if len(page.encode(errors="replace")) <= MAX_BYTES:
            break
    return page


def _statuses(content: Content) -> list[str]:
    """Return the statuses that rows without a p-value have."""
    counts = content.at("p_value_status")
    measured = {"ok"}
    if content.at("parameters.small_groups") == "pool":
        measured |= {"small group", "unknown group"}
    names = [n for n in counts if n not in measured] if isinstance(counts, dict) else []
    return [name for name in names[:_N_STATUSES] if content.real(f"p_value_status.{name}")]


def _missing(content: Content) -> list[str]:
    """Return the paths of the columns in which most values are missing.

    None where rows are measured with their gaps.
    """
    if content.at("parameters.missing") == "measure":
        return []
    paths = [path for path in content.items("values") if content.real(f"{path}.missing")]
    return sorted(paths, key=lambda path: -content.real(f"{path}.missing"))[:_N_MISSING]


def _pictures(content: Content) -> dict[str, Markup | None]:
    """Return the pictures of a summary that has what they show."""
    if not has_pictures():
        return dict.fromkeys(("p_values", "runs"))
    paths = content.items("drift.state.runs", _N_RUNS, last=True)
    called = _up_to_alpha(content)
    return {
        "p_values": p_value_figure(
            content.at("p_value_bins"), content.real("alpha"), called
        ),
        "runs": runs_figure(
            [content.at(path) for path in paths],
            [content.real(path) for path in _PROMISED],
            content.real("drift.state.delta") or 0.01, called,
        ),
    }  # fmt: skip


def _up_to_alpha(content: Content) -> str:
    """Return the word for rows with p-values up to alpha."""
    if content.at("fdr") is None and content.at("confidence") is None:
        return "flagged"
    return f"with p ≤ {content.text('alpha')}"


def _attention(content: Content) -> Iterator[Markup]:
    """Yield what to look at, the most urgent first."""
    number, verdict = content.number, content.at("drift.verdict")
    if verdict == "invalid input":
        yield escape("the input of this run")
    elif content.at("rows") == 0:
        yield escape("the input: there are no rows")
    elif is_number(content.at("rows")) and content.at("rows") == content.at("rows_nan"):
        yield escape("the input: no row has a p-value")
    if verdict == "drift":
        names = [content.at(f"drift.changed_since.{name}") for name in ("run", "output")]
        since = next((place(name) for name in names if name), "this run")
        groups = content.text("drift.groups.names", most=200)
        where = f" in {groups}" if content.at("drift.groups.names") else ""
        yield escape(f"what has changed{where} since {since}; then fit the model again")
    excess = content.real("drift.consecutive_excess_runs")
    if excess > 0 and verdict != "invalid input":
        than = (
            "promised"
            if content.at("drift.reference_rows") is None
            else "in the first runs"
        )
        text = "more rows {} than {}" + (", in {} runs in a row" if excess > 1 else "")
        n_runs = number("drift.consecutive_excess_runs", "count")
        yield Markup(text).format(_up_to_alpha(content), than, n_runs)
    if content.at("refit.outcome") == "rejected":
        yield escape("why the new model was rejected; the old one goes on")
    if content.at("calibration_check.holds") is False:
        yield escape("held-out nominal rows raise more false alarms than promised")
    if content.real("groups.n_conspicuous") > 0:
        text = "more rows {} than expected in {} of {} groups"
        counts = (
            number(f"groups.{name}", "count") for name in ("n_conspicuous", "n_with_rows")
        )
        yield Markup(text).format(_up_to_alpha(content), *counts)
    for path in content.items("reasons.top_columns", 2):
        yield Markup("{}: the first reason for {} of the {} flagged rows below").format(
            parted(content.text(f"{path}.column")), number(f"{path}.rows", "count"),
            number("reasons.flagged_rows", "count"),
        )  # fmt: skip
