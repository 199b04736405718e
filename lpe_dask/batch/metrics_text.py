"""Write the numbers of a run as metrics, from the summary of its output alone.

`_summary.json` --metrics_text--> OUT/_metrics.prom

Gauges without time stamps are the same in OpenMetrics and in the older format of
Prometheus, which the textfile collector of node_exporter and the Pushgateway read. What is
not known has no line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, get_args

from lpe_dask.batch.output import METRICS_NAME
from lpe_dask.batch.summary import read_summary
from lpe_dask.monitoring import Verdict
from lpe_dask.storage import Folder, short_message

logger = logging.getLogger(__name__)

#: The verdict of a run without a drift test.
NOT_TESTED = "not tested"


def metrics_text(summary: Mapping[str, Any]) -> str:
    """Return the metrics of a run as OpenMetrics text.

    Each has the label ``output``: the URL of the output without secrets, with ``{date}`` in
    place of the day, so that the runs of a job are one time series.

    Parameters
    ----------
    summary : mapping
        The content of ``_summary.json``; keys that earlier releases did not write may be
        missing.
    """
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.openmetrics.exposition import generate_latest

    output = str(summary.get("output_template") or summary["output"])
    families = []
    for gauge in _gauges(summary):
        name, labels = f"lpe_dask_{gauge.name}", [gauge.label] if gauge.label else []
        family = GaugeMetricFamily(name, gauge.text, labels=["output", *labels])
        for of, value in gauge.values.items():
            if value is not None:
                family.add_metric([output, *([of] if labels else [])], value)
        if family.samples:
            families.append(family)
    return generate_latest(_Registry(families)).decode()


def make_metrics(output: str) -> None:
    """Write the metrics of a finished run into its output; a warning says if that fails."""
    try:
        text = metrics_text(read_summary(output))
        Folder(output).write(METRICS_NAME, text.encode(errors="replace"))
    except Exception as error:  # the output is complete without
        logger.warning(
            "the metrics of the run could not be written: %s", short_message(error)
        )


class _Gauge(NamedTuple):
    """A metric, and its values by those of its label; "" if it has none."""

    name: str
    text: str
    values: Mapping[str, float | None]
    label: str = ""


class _Registry(NamedTuple):
    """Metrics as prometheus_client takes them."""

    families: list[Any]

    def collect(self) -> list[Any]:
        """Return the metrics."""
        return self.families


def _gauges(summary: Mapping[str, Any]) -> Iterator[_Gauge]:
    drift, alarms, listed = (summary[key] for key in ("drift", "false_alarms", "patterns"))
    finished, created = summary["finished"], summary.get("model_created")
    finished_at, age = datetime.fromisoformat(finished), None
    if created is not None:
        age = (finished_at - datetime.fromisoformat(created)).total_seconds()
    for name, text, value in (
        ("rows", "Rows of the run.", summary["rows"]),
        ("rows_without_p_value", "Rows without a p-value.", summary["rows_nan"]),
        ("flagged_rows", "Rows that are flagged.", summary["flagged"]),
        ("expected_false_alarms", "Rows flagged by chance.", alarms["expected"]),
        ("max_false_alarms", "Bound on the false alarms.", alarms["at_most"]),
        ("new_patterns", "Patterns that no earlier run had.", _n_new(listed)),
        ("drift_log10_evidence", "Evidence of a change.", drift.get("log10_evidence")),
        ("run_seconds", "Time of the run.", summary["seconds"]),
        ("worker_peak_bytes", "Most memory of a worker.", summary["peak_worker_bytes"]),
        ("model_age_seconds", "Age of the model when the run finished.", age),
        (
            "run_finished_timestamp_seconds",
            "When the run finished.",
            finished_at.timestamp(),
        ),
    ):
        yield _Gauge(name, text, {"": value})
    verdict = drift["verdict"] or NOT_TESTED
    verdicts = {of: float(of == verdict) for of in (*get_args(Verdict), NOT_TESTED)}
    yield _Gauge("drift_verdict", "1 for the verdict of the run.", verdicts, "verdict")
    yield _Gauge("step_seconds", "Time of a step.", summary["seconds_by_step"], "step")


def _n_new(patterns: Mapping[str, Any]) -> int | None:
    """Return how many patterns are new; None without earlier runs."""
    new = [of["is_new"] for of in patterns["listed"]]
    return sum(new) if patterns["n_earlier_runs"] else None
