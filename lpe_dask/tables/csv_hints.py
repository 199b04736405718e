"""Say what a CSV file looks like that is to be read otherwise, and the option for it.

Nothing is read otherwise than it was asked for: a guess ends in an error that names the
option, never in numbers.
"""

from __future__ import annotations

import codecs
import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from typing import Any

import pyarrow as pa

from lpe_dask.storage import redact
from lpe_dask.tables.column_names import as_option, join_names
from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_layouts import LOOKED_AT, is_row, layout_hint
from lpe_dask.tables.csv_values import Hint, column_hint
from lpe_dask.tables.errors import TableError

logger = logging.getLogger(__name__)

#: How text in other encodings begins; that of UTF-32 begins like UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Looks:
    """What the beginning of a file looks like.

    Attributes
    ----------
    name : str
    content : bytes
        As it is in the file.
    form : CsvFormat
        What it was read with.
    given : mapping
        The options that were given.
    names : list of str
        Of the columns.
    n_before : int
        Lines before the rows.
    rows : bytes
        In UTF-8.
    """

    name: str
    content: bytes
    form: CsvFormat
    given: Mapping[str, Any]
    names: Sequence[str] = ()
    n_before: int = 0
    rows: bytes = b""

    def layout(self) -> str:
        """Return an error that says how the file looks, and how to read it; "" if plain."""
        what, options = self._layout()
        return f"{self.name}: {what}: {remedy(options, self.given)}." if options else ""

    def check(
        self, schema: pa.Schema, measured: Sequence[str], named: Sequence[str] | None
    ) -> None:
        """Raise TableError if the file looks like one that is to be read otherwise.

        Parameters
        ----------
        schema : pyarrow.Schema
            Of all columns, as they look.
        measured : sequence of str
            The columns that will be measured, but for those of text.
        named : sequence of str, optional
            The columns that a user or a model named; None: all are measured.
        """
        lines = StringIO(self.rows.decode("utf-8", "replace"), newline="")
        reader = self.form.reader(lines)
        rows = list(islice(filter(None, reader), LOOKED_AT))
        missing = [name for name in measured if name not in schema.names]
        is_named = named is not None and not missing
        is_decided = "header" in self.given or "names" in self.given or is_named
        if not is_decided and is_row(self.names, rows, self.form):
            if "separator" in self._layout()[1]:
                raise TableError(self.layout())
            raise TableError(
                f"{self.name}: the column names look like a row: "
                f"{', '.join(self.names[:5])}. If they are one: "
                f"{remedy({'header': False}, self.given)}; if not: --csv header=true."
            )
        texts = [n for n in measured if n not in missing and _is_text(schema.field(n).type)]
        if (missing or texts) and (layout := self.layout()):
            raise TableError(layout)
        if named is None and any(name.startswith(" ") for name in self.names):
            logger.warning(
                "%s: column names begin with spaces, as values may; to leave these out: %s",
                redact(self.name),
                remedy({"separator": f"{self.form.separator} "}, self.given),
            )  # fmt: skip
        found = {}
        for name in texts:
            place = self.names.index(name)
            values = [row[place] for row in rows]
            found[name] = column_hint(values, self.form, self.n_before + 1)
        found = {name: hint for name, hint in found.items() if hint[1]}
        if not found:
            return
        first = next((n for n in found if "skip_rows" in found[n][1]), next(iter(found)))
        what, options = found[first]
        if "skip_rows" not in options:  # of units, which are no markers
            markers = [m for _, o in found.values() for m in o.get("na_values", ())]
            options = {k: v for _, o in reversed(found.values()) for k, v in o.items()}
            if markers:
                known = self.given.get("na_values", ())
                options["na_values"] = list(dict.fromkeys([*known, *markers]))
        raise TableError(
            f"{self.name}: column {first!r} {what}: {remedy(options, self.given)}. If it "
            f"is text, name it: {as_option('--categorical', [first])}."
        )

    def _layout(self) -> Hint:
        if "encoding" not in self.given:
            found = [of for mark, of in _MARKS.items() if self.content.startswith(mark)]
            if not found and self.content[1:4:2] == b"\0\0":
                found = ["utf-16-le"]
            if found:
                return f"it is text in {found[0].upper()}", {"encoding": found[0]}
        text = self.form.utf8(self.content, is_whole=False).decode("utf-8-sig", "replace")
        return layout_hint(text.splitlines()[:LOOKED_AT], self.form, self.given)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def remedy(options: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> str:
    """Return how to give options on the command line, and in Python beside those given.

    Examples
    --------
    >>> remedy({"decimal": ","})
    '--csv decimal=, (csv={"decimal": ","})'
    """
    text = json.dumps({**(given or {}), **options}, ensure_ascii=False)
    text = text.replace(": true", ": True").replace(": false", ": False")
    return f"{' '.join(map(_csv_option, options.items()))} (csv={text})"


def _csv_option(item: tuple[str, Any]) -> str:
    key, value = item
    if key in ("names", "na_values"):
        value = join_names(value)
    elif not isinstance(value, str):
        value = json.dumps(value)
    return "--csv " + shlex.quote(
        f"{key}={ {' ': 'space', chr(9): 'tab'}.get(value, value) }"
    )


def hint_at(options: Mapping[str, Any], lead: str) -> str:
    """Return the remedy for an end of a sentence; "" if there is none."""
    return f"{lead}: {remedy(options)}" if options else ""
