"""Show a fitted model in a notebook."""

from __future__ import annotations

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.parameters import PARAMETERS
from lpe_dask.pages import card


def model_card(fitted: Fitted) -> str:
    """Return a fitted model as HTML: what was learned, and what is not by default."""
    measured = f"{fitted.n_features:,} columns"
    n_codes = fitted.n_features - fitted.n_numbers
    if n_codes > 0:
        measured += f", {n_codes:,} of them categorical"
    kind = f"radius {fitted.radius}" if fitted.n_neighbors is None else ""
    if fitted.n_neighbors is not None:
        kind = f"K = {fitted.n_neighbors}, {fitted.aggregation}"
    dropped = f", {fitted.n_dropped:,} more dropped" if fitted.n_dropped else ""
    n_calibration = len(fitted.calibration.values)
    given = {
        name: value
        for name, value in (fitted.parameters | {"alpha": fitted.alpha}).items()
        if not _is_default(value, PARAMETERS[name].default)
    }
    lines = {
        "nominal rows": f"{fitted.n_samples:,}{dropped}",
        "measured": measured,
        "distance": kind,
        "calibration": f"{fitted.calibration_kind}, {n_calibration:,} rows",
        "algorithm": fitted.reference.space.algorithm,
        "alpha": fitted.alpha,
    }
    lines |= {name: value for name, value in given.items() if name not in lines}
    return card("LPE, fitted", lines)


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)
