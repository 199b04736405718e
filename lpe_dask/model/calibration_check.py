r"""Judge by nominal rows that were held out whether false alarms are as rare as promised.

    nominal rows --drawn--> most of them, fitted again
                       +--> h held out, scored as new rows --> how many have p <= a

Against one nominal set the share of new rows with ``p <= a`` is random: among the m + 1
statistics of its calibration rows and a new row, k places are flagged, and the share is
distributed as Beta(k, m + 1 - k). Of h rows that share it, a number is flagged that is
distributed as BetaBinomial(h, k, m + 1 - k).

Where groups have their own calibration, that is so in each, by its h and m. The number in
all groups is a sum, which shows what is a little wrong in many groups; Holm's procedure
over the groups shows what is wrong in a few. Half of the error goes to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.calibration_split import INCLUDES_SELF
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.fitting import fit_model
from lpe_dask.model.flagged_counts import Counts
from lpe_dask.model.validity import flagged_places
from lpe_dask.pvalues import check_level, excess_p_values, holm
from lpe_dask.tables import NominalRows, select_rows
from lpe_dask.tasks import compute, eager_scope

#: With which probability any level of a promise that holds is judged to be broken.
ERROR = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCheck:
    """What `lpe_dask.LPE.check_calibration` found about the false alarms of a model.

    Attributes
    ----------
    calibration : {"loo", "split", "conformal"}
        That of the model.
    is_exact : bool
        Whether the bounds hold exactly (up to ties, which lower counts): for "conformal".
        For the others they are approximate.
    n_held_out, n_calibration : int
        Rows that were scored, and those that they were compared with.
    table : DataFrame
        For each level: alpha; flagged, the rows with ``p <= alpha``, and their share;
        lower and upper, the numbers between which that is to be expected; where groups have
        their own calibration, odd_groups, how many have too many by themselves; verdict:
        "holds", "too many" (more than upper, or in a group), "conservative" (fewer than
        lower) or "cannot be judged" (no p-value can be as small).
    odd_groups : DataFrame, optional
        There, a line for each level and group with too many: its values, alpha, flagged,
        held_out and calibration_rows.
    holds : bool or None
        False if any level has too many; None if none can be judged.
    """

    calibration: str
    is_exact: bool
    n_held_out: int
    n_calibration: int
    table: pd.DataFrame
    holds: bool | None
    odd_groups: pd.DataFrame | None = None

    def as_json(self) -> dict[str, Any]:
        """Return this as what JSON knows."""
        return {
            "holds": self.holds,
            "calibration": self.calibration,
            "is_exact": self.is_exact,
            "n_held_out": self.n_held_out,
            "n_calibration": self.n_calibration,
            "levels": self.table.astype(object)
            .where(self.table.notna(), None)
            .to_dict(orient="records"),
        }


@eager_scope()
def check_calibration(
    fitted: Fitted,
    X: Any = None,
    fraction: float = 0.1,
    alphas: Sequence[float] = (0.01, 0.05, 0.1),
) -> CalibrationCheck:
    """Return the result of `LPE.check_calibration`; computes."""
    alphas = np.atleast_1d(alphas).tolist()
    for alpha in alphas:
        check_level("alphas", alpha)
    origin = fitted.nominal.origin
    if X is None and origin is not None:
        X = origin.rows
    if X is None:
        raise ValueError(
            "check_calibration needs the nominal rows, and this model has not got "
            "them: it was loaded or copied. Give them: check_calibration(X)."
        )
    parameters, kind = fitted.parameters, fitted.calibration_kind
    # Rows other than those of the fit may have other categories: all of these are one.
    has_groups = fitted.has_groups
    nominal = NominalRows.of(fitted.table(X), parameters["missing"], has_groups=has_groups)
    places = fitted.reference.space.preparation.categorical
    seed, size = parameters["random_state"] or 0, parameters["calibration_size"]
    kept, held_out = hold_out(nominal, fraction, seed)
    search: dict[str, Any] = {}
    if fitted.quality is not None:  # decisions are those of an exact search
        size = len(fitted.calibration.values)
        search = {"algorithm": "auto"}
    settled = {
        "n_neighbors": fitted.n_neighbors,
        "radius": fitted.radius,
        "calibration": kind,
        "calibration_size": size and max(1, size * len(kept) // len(nominal.rows)),
        "random_state": seed,
        "confidence": None,  # what is judged is the promise on average
    }
    if has_groups:  # the numbers of the groups are a column, the last
        places = places[:-1]
        search |= {"by": [fitted.n_features], "categorical": None, "small_groups": "nan"}
        if "neighbors" in fitted.groups_own:  # each group has its own K or radius
            settled |= {name: parameters[name] for name in ("n_neighbors", "radius")}
    model = fit_model(parameters | settled | search, kept, places=places)
    if model.calibration.groups is not None:
        return _judge_in_groups(fitted, model, held_out, alphas)
    (p_values,) = compute(model.p_values(held_out))
    is_measured = ~np.isnan(p_values)  # not so of small groups
    return judge(p_values[is_measured], kind, len(model.calibration.values), alphas)


def _judge_in_groups(
    fitted: Fitted, model: Fitted, held_out: da.Array, alphas: Sequence[float]
) -> CalibrationCheck:
    """Return the judgement on the groups of a model of rows of which some were held out."""
    p_values, numbers = compute(model.p_values(held_out), held_out[:, -1])
    is_measured = ~np.isnan(p_values)
    levels, known = model.categories, model.calibration.groups
    assert levels is not None
    assert levels.groups is not None
    assert known is not None
    # What the model has as values of its groups are numbers of those of the fit.
    of_groups = levels.groups.values.iloc[:, 0].to_numpy(np.int64)
    codes = np.searchsorted(of_groups, numbers[is_measured].astype(np.int64))
    check = judge_groups(
        p_values[is_measured], codes, model.calibration_kind, known.value.known.sizes,
        alphas,
    )  # fmt: skip
    assert check.odd_groups is not None
    group = check.odd_groups.pop("group").to_numpy(np.int64)
    values = fitted.group_values(of_groups[group])
    return replace(check, odd_groups=pd.concat([values, check.odd_groups], axis=1))


def judge(
    p_values: NDArray[np.float64],
    calibration: str,
    n_calibration: int,
    alphas: Sequence[float],
) -> CalibrationCheck:
    """Return the judgement on p-values of held-out nominal rows.

    Parameters
    ----------
    p_values : ndarray of shape (h,)
    calibration : {"loo", "split", "conformal"}
    n_calibration : int
        m.
    alphas : sequence of float
    """
    is_exact, error = bool(INCLUDES_SELF[calibration]), ERROR / len(alphas)
    held_out, m = np.array([len(p_values)]), np.array([n_calibration])
    lines = []
    for alpha in alphas:
        flagged = int((p_values <= alpha).sum())
        places = flagged_places(alpha, m, includes_self=is_exact)
        bounds = _bounds(held_out, places, m, (error, 1 - error))
        share = flagged / max(1, len(p_values))
        lines.append((alpha, flagged, share, *bounds, _verdict(flagged, *bounds)))
    table = _table_of(lines, ["alpha", "flagged", "share", "lower", "upper", "verdict"])
    return CalibrationCheck(
        calibration, is_exact, len(p_values), n_calibration, table, _holds(table)
    )


def judge_groups(
    p_values: NDArray[np.float64],
    codes: NDArray[np.int64],
    calibration: str,
    n_calibration: NDArray[np.int64],
    alphas: Sequence[float],
) -> CalibrationCheck:
    """Return the judgement on p-values of held-out nominal rows against their groups.

    Parameters
    ----------
    p_values, codes : ndarray of shape (h,)
        Of the rows, and the numbers of their groups.
    calibration, alphas
        As for `judge`.
    n_calibration : ndarray of shape (n_groups,)
        m of each group.

    Returns
    -------
    check : CalibrationCheck
        Its ``odd_groups`` have the numbers of groups, as the column "group".
    """
    is_exact, error = bool(INCLUDES_SELF[calibration]), ERROR / len(alphas)
    judged, which, held_out = np.unique(codes, return_inverse=True, return_counts=True)
    m = n_calibration[judged]
    lines, odd = [], []
    for alpha in alphas:
        flagged = np.bincount(which[p_values <= alpha], minlength=len(judged))
        given = held_out, flagged_places(alpha, m, includes_self=is_exact), m
        bounds = _bounds(*given, (error, 1 - error / 2))
        is_odd = holm(excess_p_values(flagged, *given)) <= error / 2
        n_flagged, n_odd = int(flagged.sum()), int(is_odd.sum())
        verdict = _BROKEN if n_odd else _verdict(n_flagged, *bounds)
        share = n_flagged / max(1, len(p_values))
        lines.append((alpha, n_flagged, share, *bounds, n_odd, verdict))
        of_level = {
            "group": judged[is_odd], "alpha": alpha, "flagged": flagged[is_odd],
            "held_out": held_out[is_odd], "calibration_rows": m[is_odd],
        }  # fmt: skip
        odd.append(pd.DataFrame(of_level))
    names = ["alpha", "flagged", "share", "lower", "upper", "odd_groups", "verdict"]
    table = _table_of(lines, names)
    return CalibrationCheck(
        calibration, is_exact, len(p_values), int(n_calibration.sum()), table,
        _holds(table), pd.concat(odd, ignore_index=True),
    )  # fmt: skip


def _table_of(lines: list[Any], names: list[str]) -> pd.DataFrame:
    table = pd.DataFrame(lines, columns=names)
    return table.astype({"lower": "Int64", "upper": "Int64"})


def _holds(table: pd.DataFrame) -> bool | None:
    """Return the verdict on all levels; None where none can be judged."""
    judged = table[table["verdict"] != _UNJUDGED]
    return None if judged.empty else bool((judged["verdict"] != _BROKEN).all())


_BROKEN, _UNJUDGED = "too many", "cannot be judged"


def _bounds(
    n_held_out: NDArray[np.int64],
    places: NDArray[np.int64],
    n_calibration: NDArray[np.int64],
    levels: tuple[float, float],
) -> tuple[int | None, int | None]:
    """Return quantiles of how many rows of all groups are flagged; None: none can be."""
    if not places[n_held_out > 0].any():
        return None, None
    flagged = Counts.in_groups(n_held_out, places, n_calibration)
    return flagged.quantile(levels[0]), flagged.quantile(levels[1])


def _verdict(flagged: int, lower: int | None, upper: int | None) -> str:
    if lower is None or upper is None:
        return _UNJUDGED
    if flagged > upper:
        return _BROKEN
    return "conservative" if flagged < lower else "holds"


def hold_out(nominal: NominalRows, fraction: float, seed: int) -> tuple[da.Array, da.Array]:
    """Return the nominal rows in two parts, lazily: to fit, and to be scored.

    Parameters
    ----------
    nominal : NominalRows
    fraction : float
        Of the rows to be held out, between 0 and 1; at least one is.
    seed : int

    Raises
    ------
    ValueError
        If the fraction is out of range, or nothing is left to fit.
    """
    check_level("fraction", fraction)
    n_rows = nominal.rows.shape[0]
    n_held_out = max(1, round(fraction * n_rows))
    if n_held_out >= n_rows:
        raise ValueError(
            f"fraction={fraction} of {n_rows} nominal rows leaves none to fit. Give more "
            f"rows, or lower it."
        )
    order = np.random.default_rng(seed).permutation(n_rows)
    held_out, fitted = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    return select_rows(nominal.again(), fitted), select_rows(nominal.again(), held_out)
