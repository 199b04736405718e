"""Say how files of one table differ: an error only for columns that are used."""

from __future__ import annotations

from collections.abc import Sequence


def differences(
    names: Sequence[str], columns_of: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Return the columns that are not in all files, and how the files differ in each."""
    first, differing = {*columns_of[0]}, dict[str, str]()
    for name, columns in zip(names, columns_of, strict=True):
        for column in sorted({*columns} ^ first):
            differing.setdefault(column, differ(name, names[0], [column]))
    return differing


def differ(name: str, first: str, what: Sequence[str]) -> str:
    """Return an error about two files that differ in some columns."""
    return (
        f"{name} and {first} do not belong to one table: they differ in {what}. Name "
        f"files with the same columns, for example as a glob; or leave these columns out, "
        f"of what is measured (columns=, --columns) and carried over (keep=, --keep)."
    )
