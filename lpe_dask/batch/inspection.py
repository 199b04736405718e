"""Describe a saved model: its rows, its arguments, its files, and what it promises.

    MODEL --inspect_model--> Inspection --> content, for programs; str, for people

Of categories and groups it has counts, and no values, which may be private.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dask.utils import format_bytes

from lpe_dask.batch.summary import listed
from lpe_dask.model import PARAMETERS, Fitted, ModelFolder, promises_of
from lpe_dask.storage import printable, redact_url

#: The version of the format of the content; keys may be added to it.
_FORMAT = 1

#: Most columns, and most characters of a name and of the value of an argument, that are
#: shown to people.
_MAX_COLUMNS, _MAX_NAME, _MAX_VALUE = 20, 40, 60


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a saved model is.

    Attributes
    ----------
    content : dict
        As docs/schemas/inspection.json describes it.
    """

    content: dict[str, Any]

    def __str__(self) -> str:
        # Each on one line, whatever names and versions there are.
        lines = [
            printable(f"{name:<12} {text}") for name, text in _lines(self.content) if text
        ]
        promises = (f"  {of['state']:<6} {of['text']}" for of in self.content["promises"])
        return "\n".join([*lines, "promises", *promises])


def inspect_model(path: str) -> Inspection:
    """Return the description of a saved model; reads no blocks, and computes nothing.

    Parameters
    ----------
    path : str
        Folder or URL of the model.

    Raises
    ------
    FileNotFoundError, ValueError, OSError
        As `lpe_dask.load`, if there is no complete model.
    """
    folder = ModelFolder(path)
    manifest, fitted = folder.inspect()
    files = [*manifest.files.values()]
    if manifest.pool is not None:
        files += manifest.pool.files.values()
    parameters = listed(fitted.parameters)
    del parameters["anomaly_log_density"]
    return Inspection(
        {
            "format": _FORMAT,
            "model": redact_url(folder.url),
            "created": fitted.created,
            "run_date": fitted.run_date,
            "checksum": fitted.checksum,
            "source": manifest.source,
            "versions": dict(sorted(manifest.versions.items())),
            "files": {"count": len(files), "bytes": sum(of.n_bytes for of in files)},
            "rows": {
                "nominal": fitted.n_samples,
                "dropped": fitted.n_dropped,
                "confirmed_anomalies": fitted.n_confirmed,
                "calibration": len(fitted.calibration.values),
                "reference": fitted.reference.shape.n_reference,
            },
            "columns": _columns(fitted),
            "groups": _groups(fitted),
            "parameters": parameters,
            "changed_parameters": _changed(fitted.parameters),
            "has_anomaly_log_density": manifest.has_anomaly_log_density,
            "alpha": fitted.alpha,
            "confidence": fitted.confidence,
            "algorithm_": fitted.reference.space.algorithm,
            "calibration_kind_": fitted.calibration_kind,
            "n_neighbors_": fitted.n_neighbors,
            "radius_": fitted.radius,
            "certificate": fitted.certificate and fitted.certificate.as_json(),
            "promises": [asdict(promise) for promise in promises_of(fitted)],
        }
    )


def _columns(fitted: Fitted) -> list[dict[str, Any]]:
    """Return the measured columns, with how many values categorical ones have."""
    names = fitted.columns or range(fitted.n_features)
    categories, counts = fitted.categories, {}
    if categories is not None:
        counts = dict(zip(categories.places, map(len, categories.levels), strict=True))
    return [
        {"name": name, "categories": counts.get(place)} for place, name in enumerate(names)
    ]


def _groups(fitted: Fitted) -> dict[str, Any] | None:
    groups = fitted.groups
    if groups is None:
        return None
    return {
        "by": list(groups.by),
        "own": sorted(groups.own),
        "count": len(groups.n_rows),
        "small": int(groups.small.value.sum()),
        "least_rows": int(groups.n_rows.min()),
        "most_rows": int(groups.n_rows.max()),
    }


def _changed(parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of arguments that are not as `LPE` has them by default."""
    return [
        name
        for name, parameter in PARAMETERS.items()
        if parameter.is_option and parameters[name] != parameter.default
    ]


def _lines(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a line is about, and its text; "" for what the model does not have."""
    rows, files, groups = content["rows"], content["files"], content["groups"]
    yield "model", content["model"]
    date = content["run_date"]
    fitted = content["created"] or "at a time that was not recorded"
    versions = ", ".join(f"{name} {of}" for name, of in content["versions"].items())
    yield "fitted", fitted + (f", for {date}" if date else "") + f", by {versions}"
    yield "checksum", content["checksum"]
    left_out = {"dropped": "dropped", "confirmed_anomalies": "confirmed anomalies left out"}
    more = (f"{rows[key]:,} {what}" for key, what in left_out.items() if rows[key])
    yield "rows", ", ".join([f"{rows['nominal']:,} nominal", *more])
    yield "columns", _names(content["columns"])
    if groups is not None:
        by = ", ".join(_short(of, _MAX_NAME) for of in groups["by"])
        sizes = f"{groups['least_rows']:,} to {groups['most_rows']:,} rows"
        small = f", {groups['small']:,} of them small" if groups["small"] else ""
        yield "groups", f"{groups['count']:,} by {by}, of {sizes}{small}"
    arguments = (
        f"{of}={_short(repr(content['parameters'][of]), _MAX_VALUE)}"
        for of in content["changed_parameters"]
    )
    yield "arguments", ", ".join(arguments) or "defaults"
    if content["has_anomaly_log_density"]:
        yield "", "needs its function anomaly_log_density to be loaded"
    yield "search", f"{content['algorithm_']}, {_statistic(content)}"
    yield (
        "calibration",
        f"{content['calibration_kind_']}: {rows['calibration']:,} rows, among "
        f"{rows['reference']:,}",
    )
    decision, confidence = f"alpha {content['alpha']:g}", content["confidence"]
    if confidence is not None:
        decision += f", confidence {confidence:g}"
    yield "decision", decision
    size = f"{files['count']:,} files, {format_bytes(files['bytes'])}"
    yield "storage", f"{size}: all are there, with their sizes"


def _statistic(content: dict[str, Any]) -> str:
    if content["radius_"] is not None:
        return f"radius {content['radius_']:g}"
    k = content["n_neighbors_"]
    return "K of each group" if k is None else f"K = {k}"


def _names(columns: list[dict[str, Any]]) -> str:
    """Return the names of columns, and how many values categorical ones have."""
    shown = [
        _short(of["name"], _MAX_NAME)
        + ("" if of["categories"] is None else f" ({of['categories']:,} categories)")
        for of in columns[:_MAX_COLUMNS]
    ]
    n_more = len(columns) - len(shown)
    return ", ".join([*shown, *([f"and {n_more:,} more"] if n_more else [])])


def _short(value: Any, width: int) -> str:
    """Return a value as text of so many characters at most, with single spaces."""
    text = " ".join(str(value).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
