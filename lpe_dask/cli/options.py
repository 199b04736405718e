"""The options that several commands share: those about workers, and those of a model.

Each is checked as far as it can be without looking at data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from dask.utils import format_bytes, parse_bytes

from lpe_dask.search import PROCESS_BYTES, USABLE_SHARE


def names(ctx: Any, param: Any, value: str | None) -> list[str] | None:
    """Return names that were separated by commas."""
    if value is None:
        return None
    return [name.strip() for name in value.split(",") if name.strip()]


def _mapping(ctx: Any, param: Any, value: str | None) -> dict[str, Any] | None:
    """Return a JSON object as a dict."""
    if value is None:
        return None
    try:
        mapping = json.loads(value)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}.") from None
    if not isinstance(mapping, dict):
        raise click.BadParameter(
            f'{value!r} is no JSON object. Write it as {{"name": value}}.'
        )
    return mapping


def _bytes(ctx: Any, param: Any, value: str | None) -> int | None:
    """Return an amount of memory, such as 4GiB, as a number of bytes."""
    if value is None:
        return None
    least = int(PROCESS_BYTES / USABLE_SHARE)
    try:
        n_bytes: int = parse_bytes(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not an amount of memory. Write it as 4GiB or 800MB."
        ) from None
    if n_bytes < least:
        raise click.BadParameter(
            f"{value} is too little: a worker takes {format_bytes(PROCESS_BYTES)} before "
            f"any data. Give at least {format_bytes(least)}."
        )
    return n_bytes


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options, in this order in its help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


check_option = click.option(
    "--check-calibration",
    is_flag=True,
    help="Judge by nominal rows that are held out whether false alarms are as rare as "
    "promised; takes about as long as the fit.",
)

worker_options = _options(
    click.option(
        "--scheduler",
        metavar="ADDRESS|threads",
        help="Join a running Dask cluster, for example tcp://10.0.0.1:8786, or work in "
        "this process with `threads`.  [default: start a cluster on this machine]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes of the cluster to start; they share the processor cores.  "
        "[default: as suits the machine]",
    ),
    click.option(
        "--memory-limit",
        callback=_bytes,
        metavar="BYTES",
        help="Memory of each worker to start, for example 4GiB.  [default: an equal share "
        "of the machine's]",
    ),
    click.option(
        "--spool",
        metavar="FOLDER",
        help="Where arrays go that tasks read, and nominal rows that do not fit into the "
        "memory of each worker: a folder or URL that all workers see.  [default: Dask's "
        "temporary directory]",
    ),
    click.option(
        "--profile",
        metavar="FILE",
        help="Write Dask's report on what the workers did to this HTML file.",
    ),
    click.option("--debug", is_flag=True, help="Show the full traceback of an error."),
)

model_options = _options(
    click.option(
        "--n-neighbors",
        type=int,
        metavar="K",
        help="Measure the distance to the K-th nearest nominal row.  [default: "
        "round(n^0.4) for n nominal rows]",
    ),
    click.option(
        "--graph",
        type=click.Choice(["knn", "radius"]),
        default="knn",
        help="Measure the distance to the K-th neighbor, or count those within a radius.",
    ),
    click.option(
        "--radius",
        type=float,
        metavar="R",
        help="Radius for --graph radius, in scaled units.  [default: a rule, with "
        "--scale minmax]",
    ),
    click.option(
        "--metric",
        type=click.Choice(["euclidean", "seuclidean", "mahalanobis", "geodesic"]),
        default="euclidean",
        help="Distance between rows, after scaling; geodesic goes along a graph of nearest "
        "nominal rows.",
    ),
    click.option(
        "--metric-params",
        callback=_mapping,
        metavar="JSON",
        help="""Parameters of the metric, such as '{"n_neighbors": 8}' for geodesic or """
        """'{"w": [1, 0.5]}' for weights.  [default: learnt from the nominal rows]""",
    ),
    click.option(
        "--scale",
        type=click.Choice(["none", "minmax", "standard"]),
        default="none",
        help="Bring the columns to one scale, learnt from the nominal rows.",
    ),
    click.option(
        "--alpha",
        type=float,
        metavar="LEVEL",
        default=0.05,
        help="Flag rows with a p-value of at most this; nominal rows are flagged at about "
        "this rate.",
    ),
    click.option(
        "--algorithm",
        type=click.Choice(["auto", "brute", "pruned"]),
        default="auto",
        help="How neighbors are searched; the results are the same.",
    ),
    click.option(
        "--calibration",
        type=click.Choice(["auto", "loo", "split", "conformal"]),
        default="auto",
        help="Which nominal rows p-values compare with: all, each left out; half of them; "
        "or a part measured like new rows, which is valid for any number of rows. auto: "
        "loo where nothing is learnt from the rows, or from many; else conformal.",
    ),
    click.option(
        "--calibration-size",
        type=int,
        metavar="M",
        help="Measure only so many nominal rows, drawn at random.  [default: all of them, "
        "or half]",
    ),
    click.option(
        "--random-state",
        type=int,
        metavar="SEED",
        help="What the draw of nominal rows follows.  [default: another one each time; "
        "with --calibration auto always the same]",
    ),
    click.option(
        "--missing",
        type=click.Choice(["error", "drop"]),
        default="error",
        help="What to do about nominal rows with NaN or inf.",
    ),
)
