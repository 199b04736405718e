"""How a command ends: its exit code, and its messages."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from lpe_dask.cli.interrupts import (
    StallTimeout,
    Terminated,
    ignore_signals,
    signals_as_exceptions,
)
from lpe_dask.cli.json_lines import json_lines, writes_json
from lpe_dask.cli.messages import StderrHandler, notice

#: Exit codes.
FAILED, INVALID_INPUT, DRIFTED, REFIT_REJECTED = 1, 2, 3, 4
TRY_LATER, INTERRUPTED, TERMINATED = 75, 130, 143

#: Errors about the input; any other error, and any in the middle of a run, is a failure.
_REFUSALS = (
    ValueError, TypeError, OSError, MemoryError, ImportError, NotImplementedError,
)  # fmt: skip


class UnavailableError(OSError):
    """What a run needs is not there now, but may be later."""


@contextmanager
def exit_codes(debug: bool) -> Iterator[None]:
    """Show the log, and turn errors into one paragraph each and an exit code."""
    is_json = writes_json()
    handlers = json_lines() if is_json else nullcontext(StderrHandler())
    with handlers as handler, _log_to(handler, debug):
        try:
            with signals_as_exceptions():
                yield
        except click.ClickException as error:
            if not is_json:
                raise
            raise click.exceptions.Exit(show_failure(error, False).code) from None
        except (Exception, KeyboardInterrupt) as error:
            raise click.exceptions.Exit(show_failure(error, debug).code) from None


@contextmanager
def _log_to(handler: logging.Handler, debug: bool) -> Iterator[None]:
    """Show the log of the package while the context is open."""
    log = logging.getLogger("lpe_dask")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run has failed.

    Attributes
    ----------
    code : int
        The exit code.
    text : str
        What is printed of it.
    """

    code: int
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an error stands for."""
        if isinstance(error, click.ClickException):
            return cls(error.exit_code, f"Error: {error.format_message()}")
        if isinstance(error, StallTimeout):
            return cls(FAILED, f"Error: {error}")
        if isinstance(error, Terminated):
            return cls(TERMINATED, "Terminated.")
        if isinstance(error, KeyboardInterrupt):
            return cls(INTERRUPTED, "Interrupted.")
        # A job file may have several problems, with a line for each.
        message = " ".join([str(error), *getattr(error, "__notes__", [])])
        text = "\n".join(" ".join(line.split()) for line in message.splitlines())
        is_refused = isinstance(error, _REFUSALS)
        if not is_refused and not isinstance(error, RuntimeError):
            text = f"{type(error).__name__}: {text} (--debug shows where)"
        if _is_temporary(error):
            return cls(TRY_LATER, f"Error: {text}")
        return cls(INVALID_INPUT if is_refused else FAILED, f"Error: {text}")


def show_failure(error: BaseException, debug: bool) -> Failure:
    """Print how a run has failed, with ``debug`` also where, and return it."""
    failure = Failure.of(error)
    if debug and not isinstance(error, KeyboardInterrupt):
        notice("".join(traceback.format_exception(error)).rstrip())
    notice(failure.text, "error", logging.ERROR, exit_code=failure.code)
    return failure


def _is_temporary(error: BaseException) -> bool:
    """Return whether the same command may succeed later, with nothing else changed."""
    from lpe_dask.storage import has_been_retried

    if isinstance(error, UnavailableError):
        return True
    return isinstance(error, OSError) and has_been_retried(error)


def exit_immediately(code: int) -> NoReturn:
    """End this process and its children without waiting for tasks that still run."""
    from lpe_dask.tasks import remove_spools

    ignore_signals()
    try:
        for child in multiprocessing.active_children():
            child.kill()
        remove_spools()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


# Results


def summary_lines(summary: dict[str, Any], place: str) -> str:
    """Return the result of a run in words: of a scored table, or of a saved model."""
    if "rows" in summary:
        lines, end = _score_lines(summary), f"written to {place}"
    else:
        lines, end = _fit_lines(summary), f"saved to {summary['model']}"
    return "\n".join([*lines, *_check_lines(summary["calibration_check"]), end])


def summary_fields(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a run for machines, with the keys of ``summary``."""
    keys = "rows rows_nan flagged flagged_share written_rows nominal_rows seconds"
    numbers = {key: summary[key] for key in keys.split() if key in summary}
    drift = {"verdict": summary["drift"]["verdict"]} if "drift" in summary else {}
    return numbers | drift


def url_of(place: str) -> str:
    """Return the URL of an output or a model, or its name where it can have none."""
    from lpe_dask.storage import Folder

    try:
        return Folder(place).full_url()
    except Exception:  # the run says why
        return place


def drift_code(summary: dict[str, Any]) -> int:
    """Return how a run ends that is to fail unless its rows are like the nominal ones."""
    verdict = (summary.get("drift") or {}).get("verdict")
    return 0 if verdict in ("no drift", "calibrating") else DRIFTED


def end_reason(output: str, code: int) -> str:
    """Return why a run that is done has this exit code, if its output can be read."""
    from lpe_dask.batch import read_summary

    section = "refit" if code == REFIT_REJECTED else "drift"
    try:
        summary = read_summary(output)
    except (OSError, ValueError):
        return ""
    return str((summary.get(section) or {}).get("text", ""))


def refit_code(summary: dict[str, Any]) -> int:
    """Return how a run ends whose new model was worse than the old one."""
    outcome = (summary.get("refit") or {}).get("outcome")
    return REFIT_REJECTED if outcome == "rejected" else 0


def _score_lines(summary: dict[str, Any]) -> list[str]:
    flagged, share = summary["flagged"], summary["flagged_share"]
    decided = f"alpha {summary['alpha']:g}"
    if summary["fdr"] is not None:
        decided = f"a false discovery rate of {summary['fdr']:g}"
    elif summary["confidence"] is not None and not _is_ranked(summary):
        decided += f" with {_percent(summary['confidence'])} confidence"
    lines = [
        f"{summary['rows']} rows against {summary['nominal_rows']} nominal rows, "
        f"in {summary['seconds']:.1f} s",
        f"{flagged} flagged at {decided}" + ("" if share is None else f" ({share:.2%})"),
        *_false_alarm_lines(summary["false_alarms"], flagged),
    ]
    if summary["output_rows"] == "flagged":
        lines.append(f"{summary['written_rows']} of {summary['rows']} rows are written")
    if summary["rows_nan"]:
        is_reason = summary["parameters"]["missing"] != "measure"
        missing = [of for of in summary["values"] if of["missing"] and is_reason][:3]
        named = ", ".join(f"{of['column']} {of['missing']}" for of in missing)
        lines.append(
            f"{summary['rows_nan']} without a p-value: {_statuses(summary)}"
            + (f" ({named})" if named else "")
        )
    groups = summary["groups"]
    if groups is not None and groups["n_conspicuous"] is not None:
        lines.append(
            f"more rows than expected in {groups['n_conspicuous']} of "
            f"{groups['n_with_rows']} groups"
        )
    if summary["drift"]["verdict"] is not None:
        lines.append(summary["drift"]["text"])
    lines += _left_out_lines(summary)
    if (band := summary["calibration_band"]) is not None:
        lines.append(
            f"p-values compare with {summary['calibration_rows']} nominal rows: within "
            f"{band['half_width']:.3f} of those with all, {band['level']:.0%} sure"
        )
    return lines


def _is_ranked(summary: dict[str, Any]) -> bool:
    """Return whether rows were scored against each other, for which nothing is promised."""
    return bool(summary["fingerprint"]["settings"]["scores_nominal_rows"])


def _false_alarm_lines(section: dict[str, Any], n_flagged: int) -> list[str]:
    """Return how many flagged rows are false alarms."""
    expected, at_most, clauses = section["expected"], section["at_most"], []
    if n_flagged == 0:
        return []
    if expected is not None:
        clauses.append(f"{expected:,.{0 if expected >= 10 else 2}f} expected by chance")
    if at_most == n_flagged:
        clauses.append("all may be false alarms")
    elif at_most is not None:
        sure = _percent(section["confidence"])
        clauses.append(f"at most {at_most} are false alarms, with {sure} confidence")
    return [", ".join(clauses)] if clauses else []


def _percent(level: float) -> str:
    return f"{100 * level:.6g} %"


def _statuses(summary: dict[str, Any]) -> str:
    """Return how many rows have each status with which there is no p-value."""
    counts, measured = summary["p_value_status"].items(), {"ok"}
    if summary["parameters"]["small_groups"] == "pool":
        measured |= {"small group", "unknown group"}
    return ", ".join(f"{n} {name}" for name, n in counts if n and name not in measured)


def _fit_lines(summary: dict[str, Any]) -> list[str]:
    n_rows = summary["nominal_rows"]
    fitted = f"{n_rows} nominal rows fitted, in {summary['seconds']:.1f} s"
    return [fitted, *_left_out_lines(summary)]


def _left_out_lines(summary: dict[str, Any]) -> list[str]:
    """Return how many nominal rows were not fitted, and why."""
    whys = {
        "dropped_rows": "nominal rows dropped: NaN or inf",
        "confirmed_anomalies": "nominal rows left out: confirmed anomalies",
    }
    return [f"{summary[key]} {why}" for key, why in whys.items() if summary[key]]


def _check_lines(check: dict[str, Any] | None) -> list[str]:
    """Return the result about false alarms, for each level."""
    if check is None:
        return []
    bounds = "exact bounds" if check["is_exact"] else "approximate bounds"
    lines = [f"{check['n_held_out']} nominal rows were held out; flagged ({bounds}):"]
    for level in check["levels"]:
        line = f"  {level['flagged']} at alpha {level['alpha']:g}"
        if level["upper"] is not None:
            line += f", {level['lower']} to {level['upper']} are expected"
        lines.append(f"{line}: {level['verdict']}")
    return lines
