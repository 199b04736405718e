"""Pictures as SVG that stands in a page and takes its colors, light or dark.

numbers --Matplotlib--> SVG --colors of our own--> CSS variables of the page
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

#: Colors to draw with -> what they are on the page: ink, soft, line, mark, bad.
_COLORS = {
    "#010101": "var(--ink)", "#020202": "var(--soft)", "#030303": "var(--line)",
    "#040404": "var(--mark)", "#050505": "var(--bad)",
}  # fmt: skip
_INK, _SOFT, _LINE, _MARK, _BAD = _COLORS

#: Markers and colors of the verdicts.
_VERDICTS = {"fits": ("o", _MARK), "drifting": ("^", _BAD), "broken input": ("x", _BAD)}


def has_pictures() -> bool:
    """Return whether Matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def picture_of_p_values(cells: Mapping[str, Sequence[float]]) -> Markup:
    """Return the share of rows in each cell of p-values, over the promised one.

    Parameters
    ----------
    cells : mapping
        "upper", "promised" and "rows", as `Cells.histogram` gives them.
    """
    figure, axes = _figure(1)
    total = sum(cells["rows"]) or 1
    ratios = [
        rows / total / promised if promised > 0 else 0.0
        for rows, promised in zip(cells["rows"], cells["promised"], strict=True)
    ]
    edges = [0.0, *cells["upper"]]
    axes[0].stairs(ratios, edges, fill=True, color=_MARK, alpha=0.75)
    axes[0].axhline(1, color=_INK, linewidth=1.2, linestyle="--")
    axes[0].set_xlim(0, 1)
    axes[0].set_ylim(0, max(1.5, min(5.0, 1.05 * max(ratios, default=0))))
    axes[0].set_xlabel("p-value")
    axes[0].set_ylabel("rows / promised")
    return _svg(figure, "p", "Rows in each cell of p-values, over the promised number")


def picture_of_nights(
    history: Sequence[Mapping[str, Any]], promised: float, evidence_needed: float
) -> Markup:
    """Return the flagged share of past nights with intervals, and the evidence below.

    Parameters
    ----------
    history : sequence of mapping
        As `Drift.history` gives it.
    promised : float
        The share of false alarms.
    evidence_needed : float
        The log10 of what counts as evidence of a change.
    """
    figure, axes = _figure(2)
    for verdict, (marker, color) in _VERDICTS.items():
        some = [
            (i, run) for i, run in enumerate(history, 1)
            if run["verdict"] == verdict and run["flagged_share"] is not None
        ]  # fmt: skip
        if not some:
            continue
        shares = [run["flagged_share"] for _, run in some]
        below = [run["flagged_share"] - run["flagged_between"][0] for _, run in some]
        above = [run["flagged_between"][1] - run["flagged_share"] for _, run in some]
        axes[0].errorbar(
            [i for i, _ in some], shares, [below, above], fmt=marker, color=color,
            label=verdict, markersize=4, linewidth=0.8,
        )  # fmt: skip
    axes[0].axhline(promised, color=_INK, linewidth=1, linestyle="--", label="promised")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("flagged share")
    axes[0].legend(frameon=False, fontsize=9, labelcolor=_INK)
    evidence = [run["log10_evidence"] for run in history]
    axes[1].plot(range(1, len(history) + 1), evidence, color=_MARK, marker=".")
    axes[1].axhline(evidence_needed, color=_INK, linewidth=1, linestyle="--")
    axes[1].set_ylabel("log10 evidence")
    axes[1].set_xlabel("night, the last one is this")
    return _svg(figure, "n", "Flagged share and evidence of a change, night by night")


def _figure(n_axes: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6 * n_axes), layout="constrained")
    axes = figure.subplots(n_axes, 1, squeeze=False)[:, 0].tolist()
    for of_one in axes:
        of_one.tick_params(colors=_SOFT, labelsize=9)
        of_one.xaxis.label.set_color(_SOFT)
        of_one.yaxis.label.set_color(_SOFT)
        for spine in of_one.spines.values():
            spine.set_color(_LINE)
        of_one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any, name: str, label: str) -> Markup:
    """Return a figure as an element of a page; ``name`` tells its ids from others'."""
    import matplotlib

    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    file = io.BytesIO()
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
    }
    with matplotlib.rc_context(settings):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'( id="|"#|url\(#)', rf"\g<1>{name}-", text)
    for color, variable in _COLORS.items():
        text = text.replace(color, variable)
    text = re.sub(r"\n\s*", "\n", text)
    head = f'<svg role="img" aria-label="{escape(label)}"'
    return Markup(text.replace("<svg", head, 1))
