"""The columns that make rows anomalous, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lpe_dask.plots.style import BARS, LEVEL, OTHER_BARS, add_legend, axes_or_new, literal
from lpe_dask.plots.values import check_count, in_memory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEEDED = ["column", "value", "share", "typical_share", "statistic"]


def plot_reasons(reasons: Any, *, top: int = 10, ax: Axes | None = None) -> Axes:
    """Draw which columns make rows anomalous, as one bar for each.

    A bar is the mean share of a column in the distances of the rows to their nearest
    nominal rows; a line across it is what nominal rows have there, for several rows the
    mean of what is typical of each one's group. The last bar is the share of all columns
    that have none of their own: together they are 1.

    Parameters
    ----------
    reasons : DataFrame
        As `LPE.explain` returns it, or ``_reasons.pqt`` of a run; of one row or of many.
        Lines that a row does not have, as ``explain(top=)`` was smaller than the number of
        columns, count as other columns. Rows without shares are left out, and the legend
        says how many. For one row the bars have its values.
    top : int, default=10
        Bars of columns at most, those with the largest mean share.
    ax : Axes, optional
        As in `plot_scores`.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        For a table of another kind or without a share, for labels that several rows have,
        or ``top`` below 1.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from lpe_dask import LPE
    >>> rng = np.random.default_rng(0)
    >>> nominal = pd.DataFrame(rng.uniform(0, 1, (200, 3)), columns=["a", "b", "c"])
    >>> row = pd.DataFrame({"a": [0.5], "b": [4.0], "c": [0.4]}, index=["x7"])
    >>> ax = plot_reasons(LPE().fit(nominal).explain(row), ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['b = 4', 'c = 0.4', 'a = 0.5']
    """
    check_count("top", top)
    table = _checked_table(in_memory(reasons))
    n_given = table["row"].nunique()
    table = table.dropna(subset="share")
    n_rows = table["row"].nunique()
    if n_rows == 0:
        raise ValueError(
            f"reasons has {n_given} rows, but no share of a column: there is nothing to "
            f"draw. Give the reasons of rows that have a p-value."
        )
    shares = table.groupby("column", sort=False)["share"].sum() / n_rows
    shares = shares.sort_values(ascending=False, kind="stable")[:top]
    typical_shares = table.groupby("column", sort=False)["typical_share"].mean()
    names = [literal(name) for name in shares.index]
    if n_rows == 1:
        values = table.set_index("column")["value"].loc[shares.index].map(_text)
        names = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
    label = "share in the row" if n_rows == 1 else f"mean share of {n_rows} rows"
    rest = 1 - shares.sum()
    ax = axes_or_new(ax)
    ax.barh(range(len(shares)), shares, label=label, **BARS)
    for place, typical in enumerate(typical_shares.loc[shares.index]):
        ends = [place - 0.4, place + 0.4]
        name = "_" if place else "typical of nominal rows"
        ax.plot([typical, typical], ends, label=name, **LEVEL)
    if rest > 0.0005:
        names.append("other columns")
        ax.barh(len(shares), rest, **OTHER_BARS)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("share of the distance")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_xlim(min(0.0, 1.05 * shares.min()), 1.0)
    add_legend(ax, n_given - n_rows, loc="lower right")
    return ax


def _checked_table(reasons: Any) -> pd.DataFrame:
    """Return the lines of reasons, with the number of their row as the column "row"."""
    missing = [name for name in _NEEDED if name not in getattr(reasons, "columns", ())]
    if missing or not isinstance(reasons, pd.DataFrame):
        raise ValueError(
            f"reasons is a {type(reasons).__name__} without {', '.join(missing)}; it takes "
            f"the table that model.explain(rows) returns, or _reasons.pqt of a run."
        )
    keys = [reasons["part"], reasons["row"]] if "part" in reasons else [reasons.index]
    table = reasons[_NEEDED].reset_index(drop=True)
    by = [key.to_numpy() for key in keys]
    table["row"] = table.groupby(by, sort=False, dropna=False).ngroup()
    n_statistics = table.groupby("row")["statistic"].nunique(dropna=False)
    if table.duplicated(["row", "column"]).any() or (n_statistics > 1).any():
        raise ValueError(
            "reasons has several rows with the same label, which cannot be told apart. "
            "Give rows.reset_index(drop=True) to model.explain, or, of a Dask table, "
            "rows.compute().reset_index(drop=True)."
        )
    return table


def _text(value: Any) -> str:
    is_float = isinstance(value, float | np.floating)
    return f"{value:.4g}" if is_float else literal(value, longest=18)
