"""The patterns among flagged rows, as a command prints them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lpe_dask.storage import printable


def format_patterns(section: dict[str, Any]) -> str:
    """Return the patterns of a summary as a table."""
    if not section["listed"]:
        return "no row is flagged"
    table = pd.DataFrame([*map(_line, section["listed"])])
    if section["n_earlier_runs"]:
        of = f" of {section['n_earlier_runs']}"
        table["earlier_runs"] = [
            "new" if line["is_new"] else f"{line['seen_runs']}{of}"
            for line in section["listed"]
        ]
    table = table.dropna(axis="columns", how="all")
    if section["is_sample"]:
        table = table.rename(columns={"rows": "about_rows"})
    return table.to_string(index=False, justify="left", na_rep="")


def patterns_note(section: dict[str, Any]) -> str:
    """Return what the patterns cover, in a sentence."""
    sample = ", a random sample," if section["is_sample"] else ""
    share = section["listed_share"] or 0.0
    counts = f"{section['explained_rows']} of {section['flagged_rows']} flagged rows"
    return (
        f"{counts}{sample} are grouped, {share:.0%} of them in these patterns; no p-value "
        f"belongs to them, as the data chose them"
    )


def _line(pattern: dict[str, Any]) -> dict[str, Any]:
    example, top = pattern["example"], pattern["top_group"]
    ids = [f"{name}={value}" for name, value in example["id_columns"].items()]
    return {
        "rows": pattern["flagged_rows"],
        "share": f"{pattern['share']:.1%}",
        "pattern": printable(pattern["text"]),
        "groups": pattern["n_groups"],
        "most_in": top
        and printable(f"{', '.join(map(str, top))} ({pattern['top_group_share']:.0%})"),
        "most_first": pattern["most_first"],
        "most_last": pattern["most_last"],
        "example": printable(", ".join([*ids, example["part"], f"row {example['row']}"])),
    }
