"""List what a model promises about p-values and false alarms, and what of it holds.

    Fitted --promises_of--> for each promise "holds", "about" or "no", and why

Each follows from `validity` and the arguments; nothing is measured. Whether rows are like
the nominal ones is no promise but what all of them rest on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.validity import (
    UNION_GRAPH,
    decisive_places,
    learned_components,
    min_rows_for_loo,
)
from lpe_dask.pvalues import dkw_band
from lpe_dask.search import Approximation


@dataclass(frozen=True, slots=True)
class Promise:
    """What a model promises.

    Attributes
    ----------
    name : str
        "false alarms on average", "false alarms of this set", "can flag", "neighbors" or
        "calibration sample".
    state : {"holds", "about", "no"}
        Whether it holds as it is worded, about so, or not at all.
    text : str
        What is promised, or why it is not.
    number : float, optional
        The bound in the text, or the least level that can flag a row.
    """

    name: str
    state: Literal["holds", "about", "no"]
    text: str
    number: float | None = None


def promises_of(fitted: Fitted) -> list[Promise]:
    """Return the promises of a model, with its level that decides."""
    return list(_promises(fitted))


def sampling_band(fitted: Fitted) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for; nor is
    one for groups, of which each has a calibration of its own.
    """
    if fitted.has_groups:
        return None
    n_measured = len(fitted.calibration.values)
    if fitted.calibration_kind != "loo" or n_measured == fitted.n_samples:
        return None
    return dkw_band(n_measured)._asdict()


def rows_learned_from(fitted: Fitted) -> int:
    """Return of how many nominal rows scale and metric are learned: the smallest group."""
    groups = fitted.groups
    if groups is None or "scale" not in groups.own:
        return fitted.n_samples
    return int(groups.n_rows[~groups.small.value].min())


def _promises(fitted: Fitted) -> Iterator[Promise]:
    for promise in (_on_average(fitted), _of_this_set(fitted)):
        if fitted.pool is None or promise.state == "no":
            yield promise
        else:
            pooled = "nothing is promised for small and unknown groups"
            yield replace(promise, text=f"{promise.text}; {pooled}")
    yield _can_flag(fitted)
    if (band := sampling_band(fitted)) is not None:
        yield Promise(
            "calibration sample",
            "about",
            f"p-values compare with {len(fitted.calibration.values)} of the nominal rows: "
            f"they are within {band['half_width']:.3f} of those with all, with a "
            f"probability of {band['level']:g}",
            band["half_width"],
        )
    yield _neighbors(fitted)


def _on_average(fitted: Fitted) -> Promise:
    """Return what is promised about false alarms, averaged over nominal sets."""
    name, sizes = "false alarms on average", fitted.calibration.sizes
    learned, is_conformal = None, fitted.calibration_kind == "conformal"
    if not is_conformal:
        learned = learned_components(fitted.parameters)
    if learned == UNION_GRAPH:
        return Promise(
            name,
            "no",
            "in the union graph nominal rows have more edges than new ones, which look "
            "more anomalous for that; calibration='conformal' would promise a rate",
        )
    places = decisive_places(
        fitted.alpha, sizes, fitted.confidence,
        includes_self=bool(fitted.calibration.includes_self),
    )  # fmt: skip
    bound = float((places / (sizes + 1)).max())
    conditions = "" if is_conformal else _conditions(fitted)
    text = f"rows like the nominal ones are flagged at a rate of at most {bound:.4g}"
    text += _in_groups(fitted) + conditions
    if learned is not None:
        return _by_learned(name, text, bound, learned, fitted)
    return Promise(name, "about" if conditions else "holds", text, bound)


def _conditions(fitted: Fitted) -> str:
    """Return under which conditions a rate is about right, whatever is learned."""
    text = ", for many rows" if fitted.calibration_kind == "split" else ""
    if fitted.parameters["metric"] == "geodesic":
        text += ", along a directed graph"
    return text


def _in_groups(fitted: Fitted) -> str:
    """Return for which groups a rate is promised."""
    if fitted.groups is None:
        return ""
    if "calibration" in fitted.groups.own:
        return " in each group"
    return ", if groups are as frequent as among nominal rows"


def _by_learned(
    name: str, text: str, bound: float, learned: str, fitted: Fitted
) -> Promise:
    """Return the same where calibration rows are those that taught a scale or metric."""
    needed = min_rows_for_loo(learned, fitted.n_numbers)
    rows = f"{learned} are learned from {rows_learned_from(fitted):,} rows"
    if rows_learned_from(fitted) < needed:
        return Promise(
            name,
            "no",
            f"more rows than at alpha may be flagged: {rows}, and {needed:,.0f} are "
            f"needed; calibration='conformal' would promise a rate",
        )
    if _conditions(fitted):  # what learning adds was measured without these
        return Promise(name, "about", f"{text}: {rows}", bound)
    text += f", or a tenth above: {rows}, and {needed:,.0f} are enough"
    return Promise(name, "about", text, bound)


def _of_this_set(fitted: Fitted) -> Promise:
    """Return what is promised about false alarms for these nominal rows."""
    name, m, alpha = "false alarms of this set", fitted.calibration.sizes, fitted.alpha
    if fitted.confidence is not None:
        text = (
            f"rows like these nominal ones are flagged at a rate of at most {alpha:g}, "
            f"with a probability of {fitted.confidence:g}{_in_groups(fitted)}"
        )
        return Promise(name, "holds", text, alpha)
    spread = math.sqrt(alpha * (1 - alpha) / int(m.min()))
    least, remedy = "", "confidence= would bound it"
    if fitted.calibration_kind != "conformal":  # of which rows depend on each other
        least, remedy = (
            "at least ",
            "confidence= with calibration='conformal' would bound it",
        )
    in_group = " in the smallest group" if len(m) > 1 else ""
    return Promise(
        name,
        "no",
        f"for these nominal rows the rate may differ from that average by {least}about "
        f"{spread:.2g}{in_group} ({remedy})",
    )


def _can_flag(fitted: Fitted) -> Promise:
    """Return which levels can flag a row at all; with groups, one of the largest."""
    sizes = fitted.calibration.sizes
    least, m = fitted.calibration.least_p_value(), int(sizes.max())
    level, limit = least, fitted.limit
    if fitted.confidence is not None:
        level = max(least, 1 - (1 - fitted.confidence) ** (1 / m))
        if (of_groups := fitted.group_limits) is not None:
            limit = float(of_groups.value.max())
    levels = f"an alpha of at least {_rounded_up(level):g}" if level > 0 else "any alpha"
    in_group = " in the largest group" if len(sizes) > 1 else ""
    text = (
        f"the smallest p-value possible is {least:.3g}: with {m:,} calibration rows"
        f"{in_group}, {levels} can flag rows"
    )
    return Promise("can flag", "holds" if least < limit else "no", text, level)


def _rounded_up(level: float) -> float:
    """Return a level, above 0, as one with three digits that is not less."""
    unit = 10.0 ** (math.floor(math.log10(level)) - 2)
    return math.ceil(level / unit) * unit


def _neighbors(fitted: Fitted) -> Promise:
    """Return whether p-values are those of all nominal rows."""
    name, certificate, quality = "neighbors", fitted.certificate, fitted.quality
    if quality is None:
        return Promise(name, "holds", "every neighbor is found: p-values are exact")
    recheck = max(quality.recheck, float(np.nextafter(fitted.offset, 0)))
    text = (
        f"p-values up to {recheck:g} are exact; larger ones of more than "
        f"{Approximation.AUDITED_ROWS:,} new rows may be off, which each scoring checks by "
        f"a sample"
    )
    if certificate is None or certificate.is_exact:
        return Promise(name, "about", text)
    return Promise(
        name, "about", f"{text}; of the nominal rows, {certificate}", certificate.bound
    )
