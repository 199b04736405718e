"""Print what a command says, which may hold names, values and URLs of others."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import click

from lpe_dask.cli.option_groups import GroupedCommand
from lpe_dask.storage import printable, redact

logger = logging.getLogger(__name__)

#: Most characters of a line that is shown.
MAX_CHARACTERS = 10_000


def echo(text: object) -> None:
    """Print a result of one or more lines as it may be shown to anybody."""
    click.echo(sanitize(str(text)))


def notice(text: str, event: str = "log", level: int = logging.INFO, **fields: Any) -> None:
    """Log what a command says, on standard error.

    Parameters
    ----------
    text : str
        Of one or more lines; "" is shown to machines only.
    event : str
        A short name of what has happened, which stays the same.
    level : int
    **fields
        Its numbers, for machines.
    """
    about = {"event": event, "fields": fields}
    logger.log(level, "%s", sanitize(text), extra=about)  # others may read the log, too


def sanitize(text: str) -> str:
    """Return a text of one or more lines as it may be shown to anybody."""
    return "\n".join(_cut(printable(line)) for line in redact(text).split("\n"))


def _cut(line: str) -> str:
    half = MAX_CHARACTERS // 2
    if len(line) <= MAX_CHARACTERS:
        return line
    return f"{line[:half]} ... {line[-half:]}"


class StderrHandler(logging.Handler):
    """Prints to the current standard error: a progress line may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it has no text."""
        if text := self.format(record):
            print(sanitize(text), file=sys.stderr)


def log_level(level: int, name: str) -> AbstractContextManager[None]:
    """Return a context in which a logger drops what is below a level."""
    return at_level(level, logging.getLogger(name))


@contextmanager
def at_level(level: int, *targets: logging.Logger | logging.Handler) -> Iterator[None]:
    """Let loggers or handlers drop what is below a level while the context is open."""
    before = [(target, target.level) for target in targets]
    for target in targets:
        target.setLevel(level)
    try:
        yield
    finally:
        for target, level_before in before:
            target.setLevel(level_before)


class SafeGroup(click.Group):
    """A group of commands that repeats wrong arguments as `echo` would."""

    command_class = GroupedCommand

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse what precedes the name of the command."""
        with _usage_errors_shown():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the rest, and run the command."""
        with _usage_errors_shown():
            return super().invoke(ctx)


@contextmanager
def _usage_errors_shown() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        error.args = (sanitize(error.message),)
        error.message = error.args[0]  # type: ignore[misc]  # what click prints
        raise
