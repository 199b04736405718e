"""Show the options of a command in groups: what it does, the model, the workers."""

from __future__ import annotations

from collections.abc import Iterator

import click

from lpe_dask.model import PARAMETERS

#: Options about workers, by name; those of the model are the arguments of `LPE`.
_OF_WORKERS = (
    "scheduler", "scheduler_file", "workers", "memory_limit", "spool", "give_up_after",
    "dashboard",
)  # fmt: skip

#: The headings, in their order.
_HEADINGS = ("Options", "Options of the model", "Options of the workers")


def option_groups(context: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
    """Yield the headings in the help of a command, each with its options."""
    params = context.command.get_params(context)
    options = [of for of in params if isinstance(of, click.Option)]
    for heading in _HEADINGS:
        if group := [of for of in options if _heading(of) == heading]:
            yield heading, group


def _heading(option: click.Option) -> str:
    place = 1 if option.name in PARAMETERS else 2 if option.name in _OF_WORKERS else 0
    return _HEADINGS[place]


class GroupedCommand(click.Command):
    """A command whose help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group under its heading."""
        for heading, group in option_groups(ctx):
            records = [record for of in group if (record := of.get_help_record(ctx))]
            with formatter.section(heading):
                formatter.write_dl(records)
