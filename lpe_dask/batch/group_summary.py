"""Tell of the groups of a run: in which of them conspicuously many rows are flagged.

rows and flagged rows of each group --BetaBinomial, Holm--> `groups` in _summary.json
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv

from lpe_dask.batch.column_values import PRIVATE
from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.model import Fitted
from lpe_dask.pvalues import excess_p_values, expected_flagged, holm

#: Groups that are listed, the level at which they are conspicuous, and characters of a
#: value.
N_LISTED, LEVEL, MAX_CHARACTERS = 20, 0.05, 200

#: Why numbers of rows are not compared with what is promised.
_RANKS = "rows are scored against each other: p-values are ranks within their group"
SHARED_CALIBRATION = (
    "groups have no calibration of their own: nothing is promised for each of them"
)


def group_section(
    model: Fitted,
    counts: GroupCounts | None,
    alpha: float,
    private: Collection[str] = (),
    *,
    scores_nominal_rows: bool = False,
) -> dict[str, Any] | None:
    """Return the section of a summary about groups; None where rows have none.

    Parameters
    ----------
    model : Fitted
    counts : GroupCounts, optional
        Of all rows.
    alpha : float
    private : collection of str
        Columns whose names and values are not shown.
    scores_nominal_rows : bool, default=False
        Whether the rows are the nominal ones.
    """
    if counts is None or model.groups is None:
        return None
    groups, why = model.groups, None
    if "calibration" not in groups.own:
        why = SHARED_CALIBRATION
    elif scores_nominal_rows:
        why = _RANKS
    columns: dict[str, Any] = {
        "rows": counts.rows, "flagged": counts.flagged, "up_to_alpha": counts.up_to_alpha,
        "share": counts.flagged / counts.rows,
        "nominal_rows": groups.n_rows[counts.codes],
    }  # fmt: skip
    n_conspicuous = None
    if why is None:
        compared = _compared(model, counts, alpha)
        columns |= compared
        n_conspicuous = int((compared["adjusted_p_value"] <= LEVEL).sum())
        excess = counts.up_to_alpha - np.nan_to_num(compared["expected"])
        order = np.lexsort((-excess, compared["p_value"]))  # NaN comes last
    else:
        order = np.argsort(-_least_share(counts), kind="stable")
    listed = order[:N_LISTED]
    values = _shown_values(model, counts.codes[listed], private)
    lines = pd.DataFrame(columns).iloc[listed].astype(object)
    lines = lines.where(lines.notna(), None)
    return {
        "by": [PRIVATE if str(name) in private else str(name) for name in groups.by],
        "own": sorted(groups.own),
        "n_groups": len(groups.n_rows),
        "n_small": int(groups.small.value.sum()),
        "n_with_rows": len(counts.codes),
        "is_exact": groups.kind == "conformal",
        "not_compared": why,
        "n_conspicuous": n_conspicuous,
        "listed": [
            {"group": group, **line}
            for group, line in zip(values, lines.to_dict("records"), strict=True)
        ],
    }


def _compared(
    model: Fitted, counts: GroupCounts, alpha: float
) -> dict[str, NDArray[np.float64]]:
    """Return what is expected of each group, and how likely it is exceeded so far.

    NaN for small groups, where nothing is promised.
    """
    groups = model.groups
    assert groups is not None
    is_judged = ~groups.small.value[counts.codes]
    codes = counts.codes[is_judged]
    given = (
        counts.rows[is_judged], groups.flagged_places(alpha)[codes],
        groups.n_calibration[codes],
    )  # fmt: skip
    p_values = excess_p_values(counts.up_to_alpha[is_judged], *given)
    found = {
        "expected": expected_flagged(*given), "p_value": p_values,
        "adjusted_p_value": holm(p_values),
    }  # fmt: skip
    columns = {name: np.full(len(counts.codes), np.nan) for name in found}
    for name, values in found.items():
        columns[name][is_judged] = values
    return columns


def _least_share(counts: GroupCounts) -> NDArray[np.float64]:
    """Return from where on the share of flagged rows of each group is, 97.5 % sure."""
    flagged = counts.flagged
    shares = betaincinv(np.maximum(flagged, 1), counts.rows - flagged + 1, 0.025)
    return np.where(flagged > 0, shares, 0.0)


def _shown_values(
    model: Fitted, codes: NDArray[np.int64], private: Collection[str]
) -> list[list[Any]]:
    """Return the values of groups in the columns that divide rows."""
    assert model.categories is not None
    assert model.categories.groups is not None
    known, is_hidden = model.categories.groups.values, [str(n) in private for n in model.by]
    return [
        [
            PRIVATE if hidden else _shown(known.iloc[code, i])
            for i, hidden in enumerate(is_hidden)
        ]
        for code in codes.tolist()
    ]


def _shown(value: Any) -> Any:
    """Return the value of a group as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int):
        return value
    text = value.isoformat() if isinstance(value, pd.Timestamp) else str(value)
    text = text.encode(errors="replace").decode()  # a lone surrogate is in no file
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
