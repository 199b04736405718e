"""Run the command of a job, [notify], when its run has ended with something to look at.

    run --summary, or an error--> event --> command, with LPE_DASK_EVENT in its environment

Arguments of a command may be secrets: no message has them.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lpe_dask.cli.messages import sanitize
from lpe_dask.cli.outcome import (
    FAILED,
    INVALID_INPUT,
    Failure,
    refit_code,
    summary_lines,
)
from lpe_dask.storage import redact_url, short_message

if TYPE_CHECKING:
    from lpe_dask.batch import Job

logger = logging.getLogger(__name__)

#: Seconds after which a command is ended.
SECONDS = 60.0

#: Most characters of the text in the environment, which systems limit.
MAX_CHARACTERS = 30_000

#: Most bytes that are shown of what a command prints.
MAX_OUTPUT_BYTES = 2000

#: How many times as many rows as are expected by chance it may explain, where no bound is
#: known.
UNKNOWN_BOUND = 2.0

#: Verdicts of a drift test that somebody should look at.
_VERDICTS = ("drift", "invalid input")


def check_command(job: Job) -> None:
    """Raise ValueError if the program of a job's command cannot be run."""
    if job.notify is not None and shutil.which(job.notify.command[0]) is None:
        raise ValueError(
            f"{job.path}, [notify] command: there is no program "
            f"{job.notify.command[0]!r} on PATH, or at that path, that can be run. Install "
            f"it, or give its path."
        )


@contextmanager
def failures_notified(job: Job) -> Iterator[None]:
    """Notify of an error that leaves the context, unless it may pass or was wanted.

    A run that has started is notified of once, however often it is resumed and fails.
    """
    try:
        yield
    except BaseException as error:
        failed = Failure.of(error)
        text, code = failed.text, failed.code
        if job.notify is not None and (
            code == INVALID_INPUT or (code == FAILED and _is_first_failure(job, text))
        ):
            _run_command(job, "failure", text, code)
        raise


def notify(job: Job, summary: dict[str, Any], code: int) -> None:
    """Notify of a run that is done, where there is something to look at."""
    if job.notify is None or (event := event_of(summary)) is None:
        return
    patterns = [
        f"pattern: {of['text']}, about {of['flagged_rows']} rows"
        for of in _new_patterns(summary)
    ]
    lines = [summary_lines(summary, job.place), *patterns]
    _run_command(job, event, "\n".join(lines), code)


def event_of(summary: dict[str, Any]) -> str | None:
    """Return the reason to look at a run that is done; None: there is none.

    "refit rejected"; "drift"; or "patterns": those that are new, or that there is no
    earlier run to compare with, have more flagged rows than chance explains.
    """
    if refit_code(summary):
        return "refit rejected"
    if "drift" not in summary:  # of a fit
        return None
    if summary["drift"]["verdict"] in _VERDICTS:
        return "drift"
    at_most, expected = (summary["false_alarms"][key] for key in ("at_most", "expected"))
    by_chance = at_most if at_most is not None else UNKNOWN_BOUND * (expected or 0)
    n_new = sum(of["flagged_rows"] for of in _new_patterns(summary))
    return "patterns" if n_new > by_chance else None


def _new_patterns(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the patterns that are not known to be old; a fit has none."""
    listed = summary.get("patterns", {}).get("listed", [])
    return [of for of in listed if of["is_new"] is not False]


def _is_first_failure(job: Job, text: str) -> bool:
    """Return whether no failure of a run was notified yet, and take note of this one."""
    from lpe_dask.batch import note_failure

    try:
        return job.score is None or note_failure(job.place, sanitize(text))
    except Exception as error:  # the storage may be why the run has failed
        logger.warning(
            "it cannot be noted that a failure was notified, so the next one will be, "
            "too: %s", short_message(error),
        )  # fmt: skip
        return True


def _run_command(job: Job, event: str, text: str, code: int) -> None:
    """Run the command of a job; a warning says if that fails."""
    assert job.notify is not None
    summary = redact_url(f"{job.place.rstrip('/')}/_summary.json")
    command = [part.replace("{summary}", summary) for part in job.notify.command]
    environment = {
        "LPE_DASK_EVENT": event,
        "LPE_DASK_TEXT": sanitize(text)[:MAX_CHARACTERS],
        "LPE_DASK_EXIT_CODE": str(code),
    }
    try:
        code_of_command, text_of_command = _output_of(command, os.environ | environment)
    except subprocess.TimeoutExpired:
        logger.warning("the command of [notify] was ended after %.0f s", SECONDS)
        return
    except (OSError, ValueError) as error:
        logger.warning("the command of [notify] cannot be run: %s", short_message(error))
        return
    if code_of_command != 0:
        logger.warning(
            "the command of [notify] ended with exit code %d: %s",
            code_of_command, text_of_command or "it has printed nothing",
        )  # fmt: skip
        return
    logger.info("the command of [notify] was run (%s)", event)


def _output_of(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command, and return its exit code and the beginning of what it prints.

    After `SECONDS` it is ended with the processes that it has started. Those that outlive
    it before are left alone.
    """
    # A pipe would be open for as long as any of these processes.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(SECONDS)
        except BaseException:  # also Ctrl-C, which does not reach another session
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        output.seek(0)
        printed = output.read(MAX_OUTPUT_BYTES)
    return code, printed.decode(errors="replace").strip()
