"""docs/paper.md from the table that `lpe-dask paper` writes: no number is typed by hand.

    python tests/paper_page.py OUT/table.csv

copies the table to docs/paper.csv and writes docs/paper.md from it, by paper_page.md.jinja.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lpe_dask.paper import claims

DOCS = Path(__file__).parents[1] / "docs"
TABLE, PAGE = DOCS / "paper.csv", DOCS / "paper.md"


class Record(dict):
    """A row of the table."""

    def __str__(self) -> str:
        """Return the number with its standard error."""
        return f"{float(self['here']):.4f} ± {float(self['standard_error']):.4f}"


def read_table(path: Path) -> list[Record]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Record(row) for row in csv.DictReader(file)]


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
    return environment.get_template("paper_page.md.jinja").render(
        rules=claims,
        rows={record["key"]: record for record in records},
        counts={verdict: verdicts.count(verdict) for verdict in set(verdicts)},
        of=lambda verdict: [record for record in records if record["verdict"] == verdict],
    )


def cell(value: Any) -> str:
    """Return what stands in a cell of a Markdown table."""
    return str(value).replace("|", r"\|")


def main() -> None:
    """Write the table and the page."""
    (table,) = map(Path, sys.argv[1:])
    TABLE.write_bytes(table.read_bytes())
    PAGE.write_text(render(read_table(TABLE)), encoding="utf-8")


if __name__ == "__main__":
    main()
