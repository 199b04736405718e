"""Keep spreadsheets from running text of CSV files as formulas.

A spreadsheet that takes semicolons or tabs for the separator cuts a quoted text there, and
at its line breaks, as the quote is then not at the beginning of a cell.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

#: What a formula begins with, at the beginning of what may become a cell; with apostrophes
#: before it, so that taking away one of them gives back the text.
_FORMULA = r"""(^|[;\t\r\n])([ "]*)('*[=+\-@])"""

#: A text that is a number, and harmless.
_NUMBER = r"^[+-]?[0-9]*[.,]?[0-9]+([eE][+-]?[0-9]+)?$"


def without_formulas(texts: Any) -> Any:
    """Return texts, an array of Arrow, with an apostrophe before what may be a formula.

    Examples
    --------
    >>> import pyarrow as pa
    >>> texts = pa.array(["=2+5", "n;=2+5;z", "-5", "a=b"])
    >>> without_formulas(texts).to_pylist()
    ["'=2+5", "n;'=2+5;z", '-5', 'a=b']
    """
    harmless = pc.replace_substring_regex(texts, _FORMULA, r"\1\2'\3")
    return pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, harmless)
