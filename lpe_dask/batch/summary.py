"""Tell what a run did: ``_summary.json`` in its output, or what a fit has learned."""

from __future__ import annotations

from typing import Any

from lpe_dask.batch.fingerprint import MADE_FROM, Fingerprint
from lpe_dask.model import Certificate, Fitted
from lpe_dask.pvalues import BAND_LEVEL, band_half_width
from lpe_dask.storage import package_versions
from lpe_dask.tasks import observed_counts, peak_worker_bytes

#: Packages that the summary names the version of.
_PACKAGES = ("lpe_dask", "dask", "distributed", "numpy", "numba", "pandas", "pyarrow")


def model_summary(
    model: Fitted, check: dict[str, Any] | None, seconds: float
) -> dict[str, Any]:
    """Return what a run tells about its model.

    Parameters
    ----------
    model : Fitted
    check : dict, optional
        What was found about its calibration.
    seconds : float
        That the run took.
    """
    return {
        "nominal_rows": model.n_samples,
        "dropped_rows": model.n_dropped,
        "algorithm_": model.reference.space.algorithm,
        "calibration_kind_": model.calibration_kind,
        "calibration_rows": len(model.calibration.values),
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
    certificate: Certificate | None,
    seconds: float,
) -> dict[str, Any]:
    """Return what ``_summary.json`` contains.

    Parameters
    ----------
    model : Fitted
    made_from : Fingerprint
    counts : dict
        Those of all parts together, and ``fdr_cut_off``.
    certificate : Certificate, optional
        Of the rows that were scored, where neighbors may have been missed.
    check, seconds
        As in `model_summary`.
    """
    measured, alpha = counts["rows"] - counts["rows_nan"], made_from.settings["alpha"]
    return {
        **counts,
        "flagged_share": counts["flagged"] / measured if measured else None,
        **model_summary(model, check, seconds),
        "calibration_band": _calibration_band(model),
        "certificate": None if certificate is None else certificate.as_json(),
        "alpha": alpha,
        "fdr": made_from.settings["fdr"],
        "parameters": model.parameters | {"alpha": alpha},
        "peak_worker_bytes": peak_worker_bytes(),
        **observed_counts(),
        "versions": package_versions(*_PACKAGES),
        MADE_FROM: made_from.content(),
    }


def _calibration_band(model: Fitted) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for.
    """
    n_measured = len(model.calibration.values)
    if model.calibration_kind != "loo" or n_measured == model.n_samples:
        return None
    return {"level": BAND_LEVEL, "half_width": band_half_width(n_measured)}
