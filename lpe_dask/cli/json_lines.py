"""Write all that a command says on standard error as JSON, one object a line.

    log records, warnings, text that libraries print
        --> {"time": ..., "level": ..., "event": ..., "run": ..., "fields": {...}}

Libraries for this (python-json-logger, structlog) would need each key, and how to mask:
no fewer lines than are here.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import Any

import click

from lpe_dask.cli.messages import sanitize
from lpe_dask.storage import redact_url, to_jsonable

#: Where the option is kept for the functions of a command.
_KEY = f"{__name__}.log_format"

#: How it is done in a worker process, for as long as that lives. `distributed` runs the
#: text of a preload more than once, and this function of it when the worker starts.
WORKER_PRELOAD = """
def dask_setup(worker):
    from lpe_dask.cli.json_lines import start_in_worker
    start_in_worker({run!r})
"""


class JsonFormatter(logging.Formatter):
    """Makes a line of JSON of a record.

    A record may have an `event`, a short name that stays the same, and `fields`, a dict.
    """

    #: URL of the output or model that the command writes, without secrets.
    run: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        # The text of an exception is part of the message, as elsewhere.
        text = sanitize(super().format(record))
        given = getattr(record, "fields", {})  # of other libraries: of any kind
        named = given if isinstance(given, Mapping) else {"fields": given}
        fields = {str(name): value for name, value in named.items()}
        if text:
            fields["message"] = text
        time = datetime.fromtimestamp(record.created, UTC)
        content = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "run": JsonFormatter.run,
            "fields": fields,
        }
        return _dumps(content)


def _dumps(content: dict[str, Any]) -> str:
    """Return JSON, with null for what is no finite number."""
    try:
        return json.dumps(content, default=to_jsonable, allow_nan=False)
    except ValueError:
        known = json.loads(
            json.dumps(content, default=to_jsonable), parse_constant=lambda _: None
        )
        return json.dumps(known)


def name_run(url: str | None) -> None:
    """Give all further lines the URL of what a run writes; it may have secrets."""
    JsonFormatter.run = None if url is None else redact_url(url)


@contextmanager
def no_run_named() -> Iterator[None]:
    """Name no run while the context is open: what begins there is for several."""
    before, JsonFormatter.run = JsonFormatter.run, None
    try:
        yield
    finally:
        JsonFormatter.run = before


def log_format_option(command: Any) -> Any:
    """Add the option about standard error to a command."""
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        expose_value=False,
        callback=_keep,
        help="How messages are written to standard error: for people, or as JSON, one "
        "object a line, with time, level, event, run and fields.",
    )(command)


def _keep(context: click.Context, param: Any, value: str) -> None:
    context.meta[_KEY] = value


def writes_json() -> bool:
    """Return whether this command is to write JSON to standard error."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_KEY) == "json"


class _Lines(io.TextIOBase):
    """A standard error that makes a log record of each line that is printed to it."""

    def __init__(self, handler: logging.StreamHandler[Any]) -> None:
        self.handler = handler
        self._unfinished: dict[int, str] = {}  # each thread changes its own item only

    def fileno(self) -> int:
        """Return the descriptor below: C libraries and child processes write to it."""
        return int(self.handler.stream.fileno())

    def write(self, text: str) -> int:
        """Log the lines that are complete by now; `print` writes their ends separately."""
        thread = threading.get_ident()
        *lines, rest = (self._unfinished.get(thread, "") + text).split("\n")
        self._unfinished[thread] = rest
        self._log(lines)
        return len(text)

    def finish(self) -> None:
        """Log what was printed without the end of a line."""
        while self._unfinished:
            self._log([self._unfinished.popitem()[1]])

    def _log(self, lines: list[str]) -> None:
        for line in filter(str.strip, lines):
            about = {"levelno": logging.INFO, "levelname": "INFO", "msg": line}
            self.handler.handle(logging.makeLogRecord(about))


@contextmanager
def json_lines() -> Iterator[logging.Handler]:
    """Write lines of JSON to standard error while the context is open.

    Gives a handler for the log of the command; what has none of its own uses it already.
    """
    handler, last_resort = (logging.StreamHandler(sys.stderr) for _ in range(2))
    for each in (handler, last_resort):
        each.setFormatter(JsonFormatter())
    last_resort.setLevel(logging.WARNING)
    name_run(None)
    before, logging.lastResort = logging.lastResort, last_resort
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").addHandler(handler)
    lines = _Lines(handler)
    try:
        with redirect_stderr(lines):
            yield handler
    finally:
        lines.finish()
        logging.getLogger("py.warnings").removeHandler(handler)
        logging.captureWarnings(False)
        logging.lastResort = before


@contextmanager
def as_json(*others: logging.StreamHandler[Any]) -> Iterator[None]:
    """Let handlers of others write such lines, too, where standard error is JSON."""
    if not isinstance(sys.stderr, _Lines):
        yield
        return
    ours = sys.stderr.handler
    before = [(other, other.stream, other.formatter) for other in others]
    for other in others:
        other.setStream(ours.stream)
        other.setFormatter(ours.formatter)
    try:
        yield
    finally:
        for other, stream, formatter in before:
            other.setStream(stream)
            other.setFormatter(formatter)


_of_worker = ExitStack()


def start_in_worker(run: str | None) -> None:
    """Write lines of JSON from now on, those of `distributed` as well."""
    if isinstance(sys.stderr, _Lines):  # another worker of this process has begun
        return
    _of_worker.enter_context(json_lines())
    _of_worker.enter_context(as_json(*stream_handlers("distributed")))
    name_run(run)


def stream_handlers(name: str) -> list[logging.StreamHandler[Any]]:
    """Return the handlers of a logger that write to a stream."""
    handlers = logging.getLogger(name).handlers
    return [item for item in handlers if isinstance(item, logging.StreamHandler)]
