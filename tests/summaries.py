"""Summaries of runs as the page about a run gets them, of all kinds; none was computed."""

from __future__ import annotations

import copy
from typing import Any

#: Names and texts that try to leave their place on a page.
NASTY = (
    "</script><script>alert(1)</script>",
    'a & "b" <img src="http://example.org/x.png" onerror=alert(1)>',
    "\N{RIGHT-TO-LEFT OVERRIDE}desrever\N{LEFT-TO-RIGHT MARK}",
    "\N{PILE OF POO}" * 300,
    "two\nlines\r\nand\ttabs \0 \x1b[31m",
    "{{ 7 * 7 }}{% raw %}",
    "x" * 5000,
    "&" * 5000,
    "a lone \ud800 surrogate",
)


def ordinary(n_rows: int = 4, n_columns: int = 5, n_runs: int = 6) -> dict[str, Any]:
    """A run whose model fits, with flagged rows and some past runs."""
    columns = [f"mean_of_sensor_{i}" for i in range(n_columns)]
    return {
        "rows": 100_000, "rows_nan": 0, "flagged": 1234, "fdr_cut_off": None,
        "flagged_share": 0.01234, "flagged_between": [0.0117, 0.0131],
        "p_value_bins": {
            "upper": [0.01, 0.1, 0.25, 0.5, 0.75, 1.0],
            "promised": [0.01, 0.09, 0.15, 0.25, 0.25, 0.25],
            "rows": [1234, 8766, 15_100, 24_900, 25_060, 24_940],
        },
        "nominal_rows": 20_000, "dropped_rows": 3, "confirmed_anomalies": 2,
        "algorithm_": "pruned", "calibration_kind_": "loo", "calibration_rows": 5000,
        "n_neighbors_": 12, "radius_": None,
        "calibration_check": {
            "holds": True, "calibration": "loo", "is_exact": False, "n_held_out": 2000,
            "n_calibration": 18_000,
            "levels": [
                {"alpha": 0.01, "flagged": 21, "share": 0.0105, "lower": 11, "upper": 34,
                 "verdict": "holds"},
                {"alpha": 0.05, "flagged": 99, "share": 0.0495, "lower": 74, "upper": 127,
                 "verdict": "holds"},
            ],
        },
        "seconds": 754.321, "finished": "2026-11-25T02:03:04+00:00",
        "seconds_by_step": {"fit": 12.5, "score": 700.0, "explain": 41.821},
        "calibration_band": {"level": 0.95, "half_width": 0.0192},
        "certificate": {
            "max_p_error": 0.01, "bound": 0.0061, "risk": 0.001, "n_audited": 2000,
            "n_exceeding": 3, "largest_error": 0.014,
        },
        "alpha": 0.01, "fdr": None,
        "parameters": {
            "aggregation": "kth", "algorithm": "auto", "alpha": 0.01, "metric": "euclidean",
            "metric_params": {"p": [1, 2, [3, [4]]]}, "missing": None, "random_state": 0,
            "check_input": False, "graph": "knn",
        },
        "peak_worker_bytes": 523_644_928, "planned_worker_bytes": 580_052_976,
        "versions": {"python": "3.11.7", "lpe_dask": "0.1.0", "numpy": "2.4.6"},
        "fingerprint": {
            "data": [["file:///data/2026-11-25.parquet", 140_692, "1795610054.25"]],
            "settings": {
                "columns": columns, "scores_nominal_rows": False, "alpha": 0.01,
                "fdr": None,
            },
        },
        "output": "file:///out/2026-11-25", "model": "file:///out/model",
        "model_checksum": "0123456789abcdef" * 4,
        "model_created": "2026-10-25T02:03:04+00:00", "refit": None,
        "reasons": {
            "n_columns": n_columns, "n_private_columns": 1,
            "private_columns": ["name"],
            "flagged_rows": 3, "top_columns": [{"column": "mean_of_sensor_0", "rows": 3}],
            "reason": None, "rows": [_row(i, columns[:20]) for i in range(n_rows)],
        },
        "patterns": of_patterns(), "drift": _drift(n_runs),
        "values": [
            {"column": name, "missing": 10 * i, "unseen": 7 - i}
            for i, name in enumerate(columns[:3])
        ],
    }  # fmt: skip


def drifting() -> dict[str, Any]:
    """A run that is not like the nominal rows, as some before."""
    summary = ordinary()
    drift = summary["drift"]
    change = {"run": "run-4", "output": "file:///out/2026-11-04", "number": 4}
    reason = "the distribution of p-values of non-anomalous rows has shifted"
    drift |= {
        "verdict": "drift", "changed_since": change, "log10_evidence": 7.25,
        "reason": reason, "consecutive_excess_runs": 3, "shift": 0.041,
        "shift_low": 0.029,
        "text": f"drift: 1.23% have p <= 0.01. Evidence of a change since {change['run']}. "
        f"{reason.capitalize()}: look at what has changed, and fit the model again.",
    }  # fmt: skip
    for run in drift["state"]["runs"][-2:]:
        run |= {"verdict": "drift", "log10_evidence": 7.25, "shift": 0.041}
    return summary | {"refit": of_refit()}


def of_refit() -> dict[str, Any]:
    """What a summary says of a new model that was rejected."""
    reason = "it would flag 40.00% of the rows of this run"
    old = {
        "checksum": "0123456789abcdef" * 4, "created": "2026-10-25T02:03:04+00:00",
        "run_date": "2026-10-25", "nominal_rows": 20_000,
    }  # fmt: skip
    flagged = {"flagged": 1234, "flagged_share": 0.01234, "flagged_between": [0.01, 0.02]}
    return {
        "policy": "on drift", "due": "drift: 1.23% have p <= 0.01.", "outcome": "rejected",
        "reason": reason, "text": f"the new model was rejected: {reason}",
        "old": old | flagged,
        "new": old | {
            "checksum": None, "run_date": "2026-11-25", "nominal_rows": 21_000,
            "calibration_check": {"holds": True}, "flagged": 40_000, "flagged_share": 0.4,
            "flagged_between": [0.39, 0.41], "most_flagged_share": 0.0625,
        },
        "nominal_flagged_by_old": 321, "seconds": 17.5,
    }  # fmt: skip


def invalid() -> dict[str, Any]:
    """A run of invalid input."""
    summary = ordinary()
    reason = "no p-value for any of 100,000 rows"
    summary["drift"] |= {
        "verdict": "invalid input", "reason": reason,
        "text": f"invalid input: {reason.capitalize()}. This run is excluded from the "
        f"drift test.",
    }  # fmt: skip
    last = {"verdict": "invalid input", "flagged_share": None, "flagged_between": None}
    summary["drift"]["state"]["runs"][-1] |= last
    summary["values"][0]["missing"] = 100_000
    return summary | {"rows_nan": 100_000}


def calibrating() -> dict[str, Any]:
    """The first run of a series against which later ones are tested."""
    summary = ordinary(n_runs=1)
    summary["drift"] |= {
        "verdict": "calibrating", "promised_between": None,
        "text": "calibrating: 1.23% have p <= 0.01, 1.00% promised. Later runs are tested "
        "against these 100,000 rows.",
    }  # fmt: skip
    return summary


def single() -> dict[str, Any]:
    """A single run, which is not tested."""
    reason = "this is a single run: only the runs of a job are compared"
    drift = {"verdict": None, "reason": reason, "text": reason}
    return ordinary() | {"drift": drift, "rows_nan": 300}


def with_fdr() -> dict[str, Any]:
    """A run that controls the false discovery rate."""
    summary = ordinary() | {"fdr": 0.05, "fdr_cut_off": 0.00034}
    summary["drift"] |= {
        "flagged": summary["flagged"] + 7, "consecutive_excess_runs": 1,
        "text": "no drift: 7 of 60 rows with p <= 0.01, 1.00% promised.",
    }  # fmt: skip
    for i, row in enumerate(summary["reasons"]["rows"]):
        row["q_value"] = 0.001 * (i + 1)
    return summary


def own() -> dict[str, Any]:
    """A run whose rows were scored against each other."""
    summary = ordinary() | {"certificate": None, "calibration_check": None}
    summary["fingerprint"]["settings"]["scores_nominal_rows"] = True
    reason = "rows were scored against each other: their p-values are ranks"
    drift = {"verdict": None, "reason": reason, "text": reason}
    return summary | {"drift": drift, "values": []}


def old() -> dict[str, Any]:
    """A run of a version without reasons, drift and counts of p-values."""
    names = (
        "rows", "rows_nan", "flagged", "fdr_cut_off", "nominal_rows", "dropped_rows",
        "algorithm_", "calibration_kind_", "calibration_rows", "n_neighbors_", "radius_",
        "calibration_check", "seconds", "certificate", "versions", "output", "fingerprint",
    )  # fmt: skip
    summary = ordinary()
    return {name: summary[name] for name in names}


def hostile(n_rows: int = 50, n_columns: int = 20, n_runs: int = 200) -> dict[str, Any]:
    """A run with nasty names and texts wherever a user can have an influence."""
    summary = ordinary(n_rows, 5000, n_runs)
    for i, row in enumerate(summary["reasons"]["rows"]):
        row["part"] = nasty(i)
        row["id_columns"] = {nasty(i + j): nasty(i + j + 1) for j in range(3)}
        row["note"] = nasty(i) if i % 2 else None
        row["columns"] = [
            {
                "column": nasty(i + j), "value": nasty(i + j + 1),
                "usual": nasty(i + j + 2), "nominal_value": nasty(i + j + 3),
                "share": 0.1, "typical_share": 0.01,
            }
            for j in range(n_columns)
        ]  # fmt: skip
    for i, run in enumerate(summary["drift"]["state"]["runs"]):
        run["output"] = nasty(i)
    summary["patterns"] = of_patterns(30)
    for i, pattern in enumerate(summary["patterns"]["listed"]):
        names = {nasty(i + j): nasty(i + j + 1) for j in range(3)}
        pattern["example"] |= {"part": nasty(i), "id_columns": names}
        pattern |= {"text": nasty(i) * 3, "top_group": [nasty(i + 1), nasty(i + 2)]}
        pattern |= {name: nasty(i) for name in ("first", "last", "most_first", "most_last")}
    summary["patterns"]["time_column"] = nasty(0)
    summary["drift"]["groups"] = of_groups(20)
    summary["drift"]["groups"]["names"] = nasty(0)
    for i, group in enumerate(summary["drift"]["groups"]["most_evidence"]):
        group["group"] = nasty(i)
    everything = dict(zip(map(nasty, range(9)), map(nasty, range(1, 10)), strict=True))
    summary["drift"]["text"] = "fits: " + nasty(0) + nasty(7)
    summary["reasons"]["private_columns"] = list(NASTY)
    refit = of_refit() | {
        name: nasty(i) for i, name in enumerate(("policy", "due", "text"))
    }
    refit["old"] = dict.fromkeys(refit["old"], nasty(0))
    return summary | {
        "refit": refit, "model_created": nasty(3), "model_checksum": nasty(2),
        "output": nasty(6) + nasty(0), "parameters": everything | {"list": list(NASTY)},
        "versions": everything, "finished": nasty(0), "rows": 10**8,
        "seconds_by_step": dict.fromkeys(NASTY, 1.5),
    }  # fmt: skip


def of_groups(n_groups: int = 2) -> dict[str, Any]:
    """What groups say of drift; the first one has changed."""
    return {
        "watched": 1000, "not_watched": 234, "rows_not_tested": 56, "ready": 1000,
        "changed": 1, "names": "site=north", "reference_rows": None,
        "most_evidence": [
            {
                "group": "site=south" if i else "site=north", "rows": 1203 - i,
                "flagged": 17 + i, "shift": 0.081 / (i + 1), "shift_low": 0.043 / (i + 1),
                "log10_evidence": 8.125 - i, "p_value": 2.5e-6 * 1000**i,
                "is_changed": i == 0,
            }
            for i in range(n_groups)
        ],
    }  # fmt: skip


def of_patterns(n_patterns: int = 3) -> dict[str, Any]:
    """What flagged rows have in common, of which 1,000 were drawn; the last one is new."""
    return {
        "reason": None, "flagged_rows": 1234, "explained_rows": 1000, "is_sample": True,
        "listed_share": 0.875, "time_column": "time_of_day",
        "listed": [
            {
                "text": f"mean_of_sensor_{i} high, site = north",
                "terms": [
                    {"column": f"mean_of_sensor_{i}", "direction": "high", "value": None},
                    {"column": "site", "direction": "=", "value": "north"},
                ],
                "rows": 500 // (i + 1), "share": 0.5 / (i + 1),
                "flagged_rows": 617 // (i + 1),
                "example": {
                    "part": "part-00007.parquet", "row": 77 + i, "id_columns": {"pump": i}
                },
                "first": "2026-11-24T01:02:03", "last": f"2026-11-24T{i:02}:59:59",
                "most_first": "2026-11-24T01:03:00", "most_last": "2026-11-24T01:04:00",
                "n_groups": 2 + i, "top_group": ["north"], "top_group_share": 0.8,
                "is_new": i == n_patterns - 1, "seen_runs": 4 * (i < n_patterns - 1),
            }
            for i in range(n_patterns)
        ],
        "n_earlier_runs": 5, "history": [],
    }  # fmt: skip


def nasty(i: int) -> str:
    """The i-th of the nasty texts, again and again."""
    return NASTY[i % len(NASTY)]


def changed(summary: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    """A copy of a summary with another value at a path."""
    summary = copy.deepcopy(summary)
    inside: Any = summary
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return summary


def paths(value: Any, start: tuple[Any, ...] = ()) -> list[list[Any]]:
    """All paths of a value of JSON; of a list, those of its first item only."""
    found = [list(start)] if start else []
    steps: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list) and value:
        steps = [0]
    for step in steps:
        found += paths(value[step], (*start, step))
    return found


def _row(i: int, columns: list[str]) -> dict[str, Any]:
    return {
        "part": f"part-0000{i}.parquet", "row": 1000 + i,
        "id_columns": {"pump": i, "site": "north_east"}, "q_value": None,
        "is_anomaly": i != 3, "p_value": 0.0002 * i, "statistic": 3.25 - i / 100,
        "note": "spread over many columns" if i == 1 else None,
        "columns": [
            {
                "column": name, "value": j + 0.5 if j % 2 else "S0",
                "usual": "0 to 4.5, median 1" if j % 2 else "S0 80%, S1 20%",
                "nominal_value": j if j % 2 else None, "share": 0.8 / (j + 1),
                "typical_share": 0.01,
            }
            for j, name in enumerate(columns)
        ],
    }  # fmt: skip


def _drift(n_runs: int) -> dict[str, Any]:
    runs = [
        {
            "run": f"run-{i}", "output": f"file:///out/2026-11-{i:02}",
            "verdict": "no drift", "reason": None, "number": i, "rows": 99_000 + i,
            "flagged_share": 0.012 + i / 1e5, "flagged_between": [0.011, 0.014],
            "shift": 0.004, "recent_shift": 0.003, "log10_evidence": -0.1 * i,
        }
        for i in range(1, n_runs + 1)
    ]  # fmt: skip
    text = "no drift: 1.23% have p <= 0.01 (95% interval: 1.17% to 1.31%), 1.00% promised."
    return {
        "verdict": "no drift", "reason": None, "run": f"run-{n_runs}", "number": n_runs,
        "rows": 100_000, "rows_nan": 0, "flagged": 1234, "flagged_share": 0.01234,
        "flagged_between": [0.0117, 0.0131], "promised": 0.01,
        "promised_between": [0.0075, 0.0128], "shift": 0.004, "shift_low": 0.0,
        "recent_shift": 0.003, "recent_shift_low": 0.0, "log10_evidence": -0.6,
        "changed_since": None, "consecutive_excess_runs": 0, "n_calibration": 5000,
        "reference_rows": None, "unseen_values": [], "text": text,
        "state": {"delta": 0.01, "runs": runs}, "predecessor": None, "fork_warning": None,
    }  # fmt: skip
