"""Pictures as SVG that stands in a page and takes its colors, light or dark.

numbers --Matplotlib--> SVG --colors of our own--> CSS variables of the page
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup, escape

from lpe_dask.pages.rendering import is_number

#: Colors to draw with -> what they are on the page.
_COLORS = {
    "#010101": "var(--ink)", "#020202": "var(--soft)", "#030303": "var(--line)",
    "#040404": "var(--mark)", "#050505": "var(--bad)", "#060606": "var(--warn)",
}  # fmt: skip
_INK, _SOFT, _LINE, _MARK, _BAD, _WARN = _COLORS

#: Markers and colors of the verdicts.
_VERDICTS = {
    "no drift": ("o", _MARK), "drift": ("^", _WARN), "invalid input": ("x", _BAD),
    "calibrating": (".", _SOFT), "too few rows to test": ("_", _SOFT),
}  # fmt: skip

#: The largest number that is drawn.
_LARGEST = 1e9

#: Ratios and shares that are named on axes.
_RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
_SHARES = tuple(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5))[:-2]


def has_pictures() -> bool:
    """Return whether Matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def p_value_figure(bins: Any, alpha: float, called: str = "flagged") -> Markup | None:
    """Return the number of rows in each bin of p-values, over the promised one.

    Bars start at 1 and go up or down, on an axis of logarithms, with two standard
    deviations of their counts. The bins before those of the bulk are much narrower, and
    matter most: they stand on their own, on the left.

    Parameters
    ----------
    bins : mapping
        "upper", "promised" and "rows", as `PValueBins.histogram` gives them; there is no
        picture of anything else.
    alpha : float
        The first bin is that of the flagged rows if it ends there.
    called : str
        What rows in it are called.
    """
    upper, promised, rows = (_listed(bins, name) for name in ("upper", "promised", "rows"))
    total = sum(rows)
    is_drawn = len(upper) == len(promised) == len(rows) and total > 0
    if not is_drawn or math.isnan(sum(upper) + sum(promised)):
        return None
    bars = [_bar(n, share * total) for n, share in zip(rows, promised, strict=True)]
    names = [called.removeprefix("with ")] * (upper[0] <= alpha)
    n_left = min(len(bars), len(names) + 1)
    names.append(f"≤ {upper[n_left - 1]:.2g}")
    edges = upper[n_left - 1 :]
    ordinary = list(zip(edges, edges[1:], bars[n_left:], strict=False))
    with _figure(1, 2, sharey=True, width_ratios=[1.4 * n_left, 6]) as (
        figure,
        [left, right],
    ):
        low, high = _limits(bars)
        left.set(yscale="log", ylim=(low, high), ylabel="rows / promised")
        _draw_bars(left, [(i - 0.4, i + 0.4, bar) for i, bar in enumerate(bars[:n_left])])
        left.set_xticks(range(n_left), names[:n_left])
        left.set_xlim(-0.6, n_left - 0.4)
        left.set_yticks(_RATIOS, [f"{ratio:g}" for ratio in _RATIOS])
        left.minorticks_off()
        _draw_bars(right, ordinary)
        right.set(
            ylim=(low, high), xlim=(min(edges[0], 0.9), 1), xlabel="p-value of other rows"
        )
        right.tick_params(labelleft=False)
        return _svg(figure, "p", "Rows in each bin of p-values, over the promised number")


def _bar(n_rows: float, expected: float) -> tuple[float, float]:
    """Return a number of rows over the expected one, and two standard deviations of it."""
    if expected <= 0 or n_rows < 0:
        return 1.0, 0.0
    return n_rows / expected, 2 * math.sqrt(n_rows) / expected


def _limits(bars: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the ends of the axis: 1 is well inside, and what is far from it is cut."""
    low, high = 0.8 * min(bars)[0], 1.25 * max(bars)[0]
    return max(_RATIOS[0], min(0.45, low)), min(_RATIOS[-1], max(2.2, high))


def _draw_bars(axes: Any, bars: Sequence[tuple[float, float, tuple[float, float]]]) -> None:
    """Draw bars from here to there; one that is cut has its number."""
    low, high = axes.get_ylim()
    for start, end, (ratio, deviation) in bars:
        middle, seen = (start + end) / 2, min(max(ratio, low), high)
        axes.fill_between([start, end], 1, seen, color=_MARK, alpha=0.35, linewidth=0)
        axes.plot([start, end], [seen, seen], color=_MARK, linewidth=1.5)
        ends = [min(max(ratio + by, low), high) for by in (-deviation, deviation)]
        axes.plot([middle, middle], ends, color=_MARK, linewidth=0.8)
        if ratio > high:
            axes.annotate(
                f"{ratio:.3g}", (middle, high), (0, -2), textcoords="offset points",
                ha="center", va="top", color=_INK,
            )  # fmt: skip
    axes.axhline(1, color=_INK, linewidth=1.2, linestyle="--")


def runs_figure(
    history: Sequence[Any],
    promised: Sequence[float],
    delta: float,
    called: str = "flagged",
) -> Markup | None:
    """Return the flagged share of past runs with intervals, and the evidence below.

    Shares are on an axis of square roots: a run of invalid input leaves the others room.

    Parameters
    ----------
    history : sequence of mapping
        The runs in `Drift.state`; there is no picture of fewer than two runs.
    promised : sequence of three floats
        The share of false alarms, and its interval.
    delta : float
        Evidence of 3 / delta is what a change takes.
    called : str
        What rows with p-values up to alpha are called.
    """
    runs = [run if isinstance(run, dict) else {} for run in history]
    if len(runs) < 2:
        return None
    with _figure(2, 1, sharex=True, height_ratios=[3, 2]) as (figure, [above, below]):
        _draw_shares(above, runs, [max(0.0, _drawn(share, 1)) for share in promised])
        above.set_ylabel(f"share {called}")
        evidence = [_drawn(run.get("log10_evidence")) for run in runs]
        below.plot(range(1, len(runs) + 1), evidence, color=_MARK, linewidth=1.5)
        needed = math.log10(3) - math.log10(delta) if delta > 0 else math.nan
        below.axhline(needed, color=_INK, linewidth=1, linestyle="--")
        below.set(ylabel="log10 evidence", xlabel="run, the last one is this")
        below.set_xlim(0.5, len(runs) + 0.5)
        below.xaxis.get_major_locator().set_params(integer=True)
        return _svg(figure, "n", f"Share {called} and evidence of a change of each run")


def _draw_shares(axes: Any, runs: list[dict[str, Any]], promised: list[float]) -> None:
    """Draw the flagged share of each run, and what is promised."""
    level, *between = map(math.sqrt, promised)
    axes.axhspan(*between, color=_LINE, alpha=0.6, linewidth=0)
    axes.axhline(level, color=_INK, linewidth=1, linestyle="--", label="promised")
    largest = max(promised)
    for verdict, (marker, color) in _VERDICTS.items():
        points = [
            (i, *_share_of(run)) for i, run in enumerate(runs, 1)
            if run.get("verdict") == verdict
        ]  # fmt: skip
        if points:
            x, *shares = zip(*points, strict=True)
            share, low, high = ([_root(of) for of in some] for some in shares)
            axes.plot(x, share, marker, color=color, label=verdict, markersize=4)
            axes.vlines(x, low, high, color=color, linewidth=0.8)
            largest = max([largest, *(of for some in shares for of in some if of > 0)])
    ticks = [of for of in _SHARES if largest / 20 <= of <= largest]
    axes.set_yticks(
        [0, *map(math.sqrt, ticks)], ["0", *(f"{100 * of:g} %" for of in ticks)]
    )
    axes.set_ylim(0, 1.05 * math.sqrt(largest) or 1)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 0.98), ncols=4, frameon=False, fontsize=9,
        labelcolor=_INK, handletextpad=0.3, columnspacing=1.2,
    )  # fmt: skip


def _root(share: float) -> float:
    """Return the square root of a share; NaN for NaN."""
    return math.nan if math.isnan(share) else math.sqrt(max(0.0, share))


def _drawn(value: Any, most: float = _LARGEST) -> float:
    """Return a number that can be drawn; NaN for anything else."""
    return max(-most, min(most, float(value))) if is_number(value) else math.nan


def _listed(bins: Any, name: str) -> list[float]:
    """Return the values of bins under a name, as they can be drawn."""
    listed = bins.get(name) if isinstance(bins, dict) else None
    return [_drawn(value) for value in listed] if isinstance(listed, list) else []


def _share_of(run: dict[str, Any]) -> tuple[float, float, float]:
    """Return the flagged share of a run, and its interval."""
    between = run.get("flagged_between")
    if not isinstance(between, list) or len(between) != 2:
        between = [None, None]
    share, low, high = (_drawn(x, 1) for x in (run.get("flagged_share"), *between))
    return share, low, high


@contextmanager
def _figure(n_rows: int, n_columns: int, **shape: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Give a figure and its axes, whatever style is set elsewhere."""
    import matplotlib.style
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "axes.edgecolor": _LINE, "axes.labelcolor": _SOFT, "axes.spines.right": False,
        "axes.spines.top": False, "font.family": "sans-serif", "font.size": 10,
        "svg.fonttype": "none", "xtick.color": _SOFT, "xtick.labelsize": 10,
        "ytick.color": _SOFT, "ytick.labelsize": 10,
    }  # fmt: skip
    with matplotlib.style.context(["default", settings]):
        figure = Figure(figsize=(4.8, 2.0 + 1.9 * (n_rows - 1)), layout="constrained")
        yield figure, figure.subplots(n_rows, n_columns, **shape).tolist()


def _svg(figure: Any, name: str, label: str) -> Markup:
    """Return a figure as an element of a page; ``name`` makes its ids unique."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        no_date: dict[Any, Any] = {"Date": None, "Creator": None}
        figure.savefig(file, format="svg", transparent=True, metadata=no_date)
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| version="[^"]*"', "", text)
    text = re.sub(r"font-family: [^;]*; ", "", text)  # that of the page
    text = re.sub(r'<g id="[^"]*"', "<g", text).replace("xlink:href", "href")
    text = re.sub(r'( id="|"#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"(\.\d\d)\d+(?=[^<>]*>)", r"\1", text)  # of a point, in tags
    for color, variable in _COLORS.items():
        text = text.replace(color, variable)
    text = re.sub(r"\s*\n\s*", " ", text)
    head = f'<svg role="img" aria-label="{escape(label)}"'
    return Markup(text.replace("<svg", head, 1))
