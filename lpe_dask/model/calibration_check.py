r"""Judge by nominal rows that were held out whether false alarms are as rare as promised.

    nominal rows --drawn--> most of them, fitted again
                       +--> h held out, scored as new rows --> how many have p <= a

Against one nominal set the share of new rows with ``p <= a`` is random: among the m + 1
statistics of its calibration rows and a new row, k places are flagged, and the share is
distributed as Beta(k, m + 1 - k). Of h rows that share it, a number is flagged that is
distributed as BetaBinomial(h, k, m + 1 - k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.calibration_split import INCLUDES_SELF
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.fitting import fit_model
from lpe_dask.model.validity import n_flagged_ranks
from lpe_dask.pvalues import check_level
from lpe_dask.tables import NominalRows, select_rows
from lpe_dask.tasks import compute, eager_scope

#: With which probability any level of a promise that holds is judged to be broken.
ERROR = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCheck:
    """What was found about the false alarms of a model; see `LPE.check_calibration`.

    Attributes
    ----------
    calibration : {"loo", "split", "conformal"}
    is_exact : bool
        Whether the bounds hold exactly (up to ties, which lower counts): for "conformal".
        For the others they are approximate.
    n_held_out, n_calibration : int
        Rows that were scored, and those that they were compared with.
    table : DataFrame
        For each level: alpha; flagged, the rows with ``p <= alpha``, and their share;
        lower and upper, the numbers between which that is to be expected; verdict: "holds",
        "too many", "conservative" (fewer than lower) or "cannot be judged" (no p-value can
        be as small).
    holds : bool or None
        False if any level has too many; None if none can be judged.
    """

    calibration: str
    is_exact: bool
    n_held_out: int
    n_calibration: int
    table: pd.DataFrame
    holds: bool | None

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
    nominal = NominalRows.of(fitted.table(X), parameters["missing"])
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
    }
    model = fit_model(parameters | settled | search, kept, places=places)
    (p_values,) = compute(model.p_values(held_out))
    return judge(p_values, kind, len(model.calibration.values), alphas)


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
    is_exact = bool(INCLUDES_SELF[calibration])
    lines = []
    for alpha in alphas:
        flagged = int((p_values <= alpha).sum())
        places = _places(is_exact, n_calibration, alpha)
        bounds = _bounds(len(p_values), places, n_calibration, ERROR / len(alphas))
        share = flagged / max(1, len(p_values))
        lines.append((alpha, flagged, share, *bounds, _verdict(flagged, *bounds)))
    names = ["alpha", "flagged", "share", "lower", "upper", "verdict"]
    table = pd.DataFrame(lines, columns=names).astype({"lower": "Int64", "upper": "Int64"})
    judged = table[table["verdict"] != _UNJUDGED]
    holds = None if judged.empty else bool((judged["verdict"] != _BROKEN).all())
    return CalibrationCheck(
        calibration, is_exact, len(p_values), n_calibration, table, holds
    )


_BROKEN, _UNJUDGED = "too many", "cannot be judged"


def _places(is_exact: bool, n_calibration: int, alpha: float) -> int:
    """Return k, how many of the places among m + 1 rows are flagged."""
    if is_exact:
        return n_flagged_ranks(alpha, n_calibration + 1)
    return n_flagged_ranks(alpha, n_calibration) + 1


def _bounds(
    n_held_out: int, places: int, n_calibration: int, error: float
) -> tuple[int | None, int | None]:
    if places == 0 or n_held_out == 0:
        return None, None
    from scipy.stats import betabinom  # takes half a second, and 50 MiB

    flagged = betabinom(n_held_out, places, n_calibration + 1 - places)
    return int(flagged.ppf(error)), int(flagged.ppf(1 - error))


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
