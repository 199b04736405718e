"""Tell what a run did: ``_summary.json`` in its output, or what a fit has learnt."""

from __future__ import annotations

from typing import Any

from lpe_dask.batch.fingerprint import MADE_FROM, Fingerprint
from lpe_dask.batch.parts import PART_COUNTS
from lpe_dask.model import Fitted
from lpe_dask.pvalues import BAND_LEVEL, band_half_width
from lpe_dask.storage import package_versions
from lpe_dask.tasks import peak_worker_bytes

#: Packages that the summary names the version of.
_PACKAGES = ("lpe_dask", "dask", "distributed", "numpy", "numba", "pandas", "pyarrow")


def fit_summary(
    model: Fitted, url: str, check: dict[str, Any] | None, seconds: float
) -> dict[str, Any]:
    """Return what a fit has learnt.

    Parameters
    ----------
    model : Fitted
    url : str
        Where it was saved.
    check : dict, optional
        What was found about its calibration.
    seconds : float
        That the run took.
    """
    return {
        "model": url,
        **_nominal_counts(model),
        "n_neighbors_": model.n_neighbors,
        "radius_": model.radius,
        "calibration_check": check,
        "seconds": round(seconds, 3),
    }


def score_summary(
    model: Fitted,
    made_from: Fingerprint,
    counts: dict[str, Any],
    check: dict[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    """Return what ``_summary.json`` holds.

    Parameters
    ----------
    model : Fitted
    made_from : Fingerprint
    counts : dict
        What all parts count, and ``fdr_cut_off`` where a false discovery rate decides.
    check : dict, optional
        What was found about the model's calibration.
    seconds : float
        That the run took.
    """
    rows, rows_nan, flagged = (counts[name] for name in PART_COUNTS)
    measured, settings = rows - rows_nan, made_from.settings
    return {
        "rows": rows,
        "rows_nan": rows_nan,
        **_nominal_counts(model),
        "calibration_band": _calibration_band(model),
        "calibration_check": check,
        "flagged": flagged,
        "flagged_share": flagged / measured if measured else None,
        "alpha": settings["alpha"],
        "fdr": settings["fdr"],
        "fdr_cut_off": counts.get("fdr_cut_off"),
        "parameters": model.parameters | {"alpha": settings["alpha"]},
        "n_neighbors_": model.n_neighbors,
        "radius_": model.radius,
        "seconds": round(seconds, 3),
        "peak_worker_bytes": peak_worker_bytes(),
        "versions": package_versions(*_PACKAGES),
        MADE_FROM: made_from.content(),
    }


def _nominal_counts(model: Fitted) -> dict[str, Any]:
    return {
        "nominal_rows": model.n_samples,
        "dropped_rows": model.n_dropped,
        "calibration_kind_": model.calibration_kind,
        "calibration_rows": len(model.calibration.values),
    }


def _calibration_band(model: Fitted) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for.
    """
    n_measured = len(model.calibration.values)
    if model.calibration_kind != "loo" or n_measured == model.n_samples:
        return None
    return {"level": BAND_LEVEL, "half_width": band_half_width(n_measured)}
