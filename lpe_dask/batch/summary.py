"""Tell what a run did: ``_summary.json`` in its output, or what a fit has learned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lpe_dask.batch.fingerprint import FINGERPRINT_KEY, Fingerprint
from lpe_dask.batch.output import SUMMARY_NAME
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted
from lpe_dask.monitoring import clopper_pearson_interval
from lpe_dask.pvalues import dkw_band
from lpe_dask.storage import Folder, package_versions, short_message
from lpe_dask.tables import RowStatus
from lpe_dask.tasks import Workers

#: The version of the format of a summary; keys may be added to it.
_FORMAT = 1

#: Packages that the summary names the version of.
_PACKAGES = ("lpe_dask", "dask", "distributed", "numpy", "numba", "pandas", "pyarrow")


def model_summary(
    model: Fitted, check: dict[str, Any] | None, seconds: float
) -> dict[str, Any]:
    """Return the section of a summary about the model.

    Parameters
    ----------
    model : Fitted
    check : dict, optional
        What was found about its calibration.
    seconds : float
        That the run took.
    """
    return {
        "model_checksum": model.checksum,
        "model_created": model.created,
        "nominal_rows": model.n_samples,
        "dropped_rows": model.n_dropped,
        "confirmed_anomalies": model.n_confirmed,
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
    stats: PartStats,
    check: dict[str, Any] | None,
    certificate: dict[str, Any] | None,
    steps: Steps,
) -> dict[str, Any]:
    """Return what ``_summary.json`` says of a model and of the rows scored by it.

    `batch.findings` adds what was found: drift, reasons, values, and the rest.

    Parameters
    ----------
    model : Fitted
    made_from : Fingerprint
    stats : PartStats
        Of all parts.
    check : dict, optional
        As in `model_summary`.
    certificate : dict, optional
        Of the rows that were scored, where neighbors may have been missed.
    steps : Steps
        Of the run.
    """
    counts, alpha = stats.counts, made_from.settings["alpha"]
    confidence = made_from.settings.get("confidence")
    measured = counts["rows"] - counts["rows_nan"]
    share = between = None
    if measured:
        share = counts["flagged"] / measured
        between = list(clopper_pearson_interval(counts["flagged"], measured))
    return {
        "format": _FORMAT,
        **counts,
        RowStatus.COLUMN: dict(zip(RowStatus.NAMES, stats.statuses.tolist(), strict=True)),
        "flagged_share": share,
        "flagged_between": between,
        **model_summary(model, check, steps.seconds),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds_by_step": steps.by_step,
        "calibration_band": _sampling_band(model),
        "certificate": certificate,
        "alpha": alpha,
        "confidence": confidence,
        "fdr": made_from.settings["fdr"],
        "parameters": _listed(model.parameters)
        | {"alpha": alpha, "confidence": confidence},
        "peak_worker_bytes": Workers.peak_bytes(),
        "versions": package_versions(*_PACKAGES),
        FINGERPRINT_KEY: made_from.content(),
    }


def _listed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON has them, with lists."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in parameters.items()
    }


def read_summary(output: str) -> dict[str, Any]:
    """Return the summary of a finished run.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it was cut short or altered.
    """
    content = Folder(output).read(SUMMARY_NAME)
    if content is None:
        raise FileNotFoundError(
            f"there is no summary of a finished run in {output}. Give the folder that was "
            f"named by --output, or by `output` in the job; `lpe-dask status {output}` "
            f"tells how far a run is."
        )
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{output}/{SUMMARY_NAME} is not a summary: {short_message(error)} Run the "
            f"job again with overwrite=True (--overwrite)."
        ) from error


def _sampling_band(model: Fitted) -> dict[str, float] | None:
    """Return how far p-values may be off because only some nominal rows were measured.

    The other calibrations measure among other rows, too, which no band is known for; nor is
    one for groups, of which each has a calibration of its own.
    """
    if model.has_groups:
        return None
    n_measured = len(model.calibration.values)
    if model.calibration_kind != "loo" or n_measured == model.n_samples:
        return None
    return dkw_band(n_measured)._asdict()
