"""The table of all claims, and the page from it: no number is typed by hand."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paper import claims


class Record(dict):
    """A row of the table."""

    def __str__(self) -> str:
        """Return the number with its standard error."""
        return f"{float(self['here']):.4f} ± {float(self['standard_error']):.4f}"


def write_table(path: Path, rows: Mapping[int, Sequence[claims.Row]]) -> None:
    """Write the rows of each figure as CSV."""
    table = pd.DataFrame(
        {
            "key": row.key, "figure": number, "place": row.place,
            "claim": row.claim, "paper": row.paper, "here": f"{row.here.mean:.6g}",
            "standard_error": f"{row.here.standard_error:.3g}", "draws": row.here.n_draws,
            "verdict": row.verdict, "reason": row.reason, "procedure": row.procedure,
        }
        for number, of_figure in rows.items()
        for row in of_figure
    )  # fmt: skip
    table.to_csv(path, index=False, lineterminator="\n")


def read_table(path: Path) -> list[Record]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Record(row) for row in csv.DictReader(file)]


def write_page(path: Path, table: Path) -> None:
    """Write the page of a table."""
    path.write_text(render(read_table(table)), encoding="utf-8")


def render(records: list[Record]) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell
    verdicts = [record["verdict"] for record in records]
    return environment.get_template("page.md.jinja").render(
        rules=claims,
        rows={record["key"]: record for record in records},
        counts={
            verdict: verdicts.count(verdict)
            for verdict in (claims.HOLDS, claims.FAILS, claims.UNDECIDED, claims.OPEN)
        },
        of=lambda verdict: [record for record in records if record["verdict"] == verdict],
    )


def cell(value: Any) -> str:
    """Return what stands in a cell of a Markdown table."""
    return str(value).replace("|", r"\|")
