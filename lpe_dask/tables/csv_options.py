"""The options that say how CSV files are read, as users give them, and where they go.

csv={...} | --csv KEY=VALUE | [csv] --of, of_texts--> CsvOptions --form--> CsvDialect
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from lpe_dask.tables.column_names import check_names, split_names
from lpe_dask.tables.csv_dialect import CsvDialect

#: Words for characters that are hard to type.
_WORDS = {"space": " ", "tab": "\t", "\\t": "\t"}

#: The last line that can be skipped by its number: these are at the beginning of a file.
_LAST_SKIPPED = 1000


def _as_texts(value: Any) -> Any:
    """Return one marker as several, and numbers as the texts that they are in a file."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(v if isinstance(v, str | bool) else repr(v) for v in values)


def _check_encoding(value: str) -> str:
    try:
        "a".encode(value)
        codecs.getincrementaldecoder(value)
    except LookupError as error:  # also for codecs between other types
        raise ValueError(str(error)) from error
    return value


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    check_names(names)
    return names


def _key(meaning: str, must_be: str, example: str, **limits: Any) -> Any:
    texts: dict[str, Any] = {"title": meaning, "description": must_be}
    return Field(None, examples=[example], **texts, **limits)


def _shown(pattern: str) -> WithJsonSchema:
    """Return what editors check a character by, or its word."""
    of_words = [re.escape(word) for word, of in _WORDS.items() if re.match(pattern, of)]
    words = "|".join(of_words)
    pattern = pattern.replace(r"\U0010ffff", r"\uffff")  # JSON Schema has four digits
    return WithJsonSchema({"type": "string", "pattern": f"{pattern}|^(?:{words})$"})


_SEPARATOR = r'^[^\r\n"\x80-\U0010ffff] *$'
_THOUSANDS = "^[,. '_\u00a0\u202f]$"
_QUOTE = r"^[^\r\n\x80-\U0010ffff]?$"

_AS_TEXTS = WithJsonSchema(
    {"type": ["array", "string", "number"], "items": {"type": ["string", "number"]}}
)
_Character = Annotated[
    str, BeforeValidator(lambda v: _WORDS.get(v, v) if isinstance(v, str) else v)
]
_DISTINCT = Field(json_schema_extra={"uniqueItems": True})
_Line = Annotated[int, Field(ge=1, le=_LAST_SKIPPED)]
_Texts = Annotated[tuple[str, ...], Field(strict=False)]
_Lines = Annotated[tuple[_Line, ...], Field(strict=False)]


class CsvOptions(BaseModel):
    """How CSV files are read; a key that is not given has its plain meaning.

    Without a separator it is one of , ; | and tab, by the first line. The others are those
    of `CsvDialect`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    separator: Annotated[_Character, _shown(_SEPARATOR)] | None = _key(
        "What is between values; else one of , ; | and tab, by the first line",
        'one ASCII character, also as "tab" or "space" (any number of spaces); with a '
        "space after it, spaces around it are left out",
        '";"',
        pattern=_SEPARATOR,
    )
    decimal: Literal[".", ","] | None = _key(
        "The decimal point of numbers; a point, if it is not given", '"." or ","', '","'
    )
    thousands: Annotated[_Character, _shown(_THOUSANDS)] | None = _key(
        "What groups the digits of numbers",
        "a comma, a point, a space, ' or _",
        '"."',
        pattern=_THOUSANDS,
    )
    quote: Annotated[_Character, _shown(_QUOTE)] | None = _key(
        'What is around texts; ", if it is not given',
        'one ASCII character, or "" where there are no quotes',
        '"\'"',
        pattern=_QUOTE,
    )
    comment: str | None = _key(
        "Lines that begin with this are left out",
        "what lines begin with that are left out, not blank",
        '"#"',
        pattern=r"^[^\n]*\S[^\n]*$",
    )
    skip_rows: Annotated[int, Field(ge=0, le=_LAST_SKIPPED)] | _Lines | None = _key(
        "Lines to leave out at the beginning, or by their numbers",
        "how many lines are left out at the beginning, or a list of the numbers of lines, "
        f"from 1 to {_LAST_SKIPPED}",
        "[1, 3, 4]",
    )
    header: bool | None = _key(
        "Whether the first line has the names of columns; true without names, if it is not "
        "given",
        "true or false",
        "false",
    )
    names: Annotated[_Texts, AfterValidator(_check_names), _DISTINCT] | None = _key(
        "The names of the columns",
        "a list of column names, at least one and none twice",
        '["a", "b"]',
        min_length=1,
    )
    na_values: Annotated[_Texts, BeforeValidator(_as_texts), _AS_TEXTS] | None = _key(
        "What stands for a missing value, beside nothing",
        "a list of texts or numbers that mean a missing value",
        '["?", "-200"]',
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] | None = _key(
        "The encoding of the files; UTF-8, if it is not given",
        "an encoding that Python knows",
        '"latin-1"',
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return options that were given in Python, or found in [csv] before.

        Raises
        ------
        TypeError, ValueError
            For an unknown key or a wrong value, naming what is allowed.
        """
        if not isinstance(given, Mapping):
            raise TypeError(
                f"csv={given!r} must be a dict of options, for example "
                f'csv={{"separator": ";"}}. Keys are {", ".join(cls.model_fields)}.'
            )
        try:
            options = cls.model_validate(dict(given))
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)[0]
            kind = TypeError if details["type"].endswith("_type") else ValueError
            raise kind(_wrong(str(details["loc"][0]), given)) from None
        for _, problem in options.conflicts():
            raise ValueError(f"csv: {problem}")
        return options

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Self:
        """Return options that were given as ``KEY=VALUE``."""
        given: dict[str, Any] = {}
        for text in texts:
            key, sign, value = text.partition("=")
            if not sign or key in given:
                raise ValueError(
                    f"--csv {text!r} is not KEY=VALUE, or its key was given before. Give "
                    f"each key once, for example --csv decimal=,."
                )
            given[key] = split_names(value) if key in ("names", "na_values") else value
            if key in ("skip_rows", "header"):
                with suppress(json.JSONDecodeError):  # `of` says what is allowed
                    given[key] = json.loads(value.lower())
        return cls.of(given)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield keys that contradict others, and what is wrong."""
        form = self.form()
        if form.thousands == form.decimal:
            problem = (
                f"thousands={form.thousands!r} is the decimal point, too. Give another "
                f"decimal, or leave thousands out."
            )
            yield "thousands", problem
        if form.quote and form.quote in (form.separator, form.comment):
            problem = (
                f"quote={form.quote!r} is the separator or begins comments, too. Give "
                f'another quote, or "" where there are no quotes.'
            )
            yield "quote", problem

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as values of JSON."""
        return self.model_dump(exclude_none=True, mode="json")

    def form(self) -> CsvDialect:
        """Return the format that these say, and a comma where they have no separator."""
        given = self.model_dump(exclude_none=True)
        separator, skip = given.pop("separator", ","), given.pop("skip_rows", ())
        return CsvDialect(
            separator=separator[0],
            strips_spaces=separator == " " or len(separator) > 1,
            skipped=tuple(range(1, skip + 1) if isinstance(skip, int) else sorted(skip)),
            has_header=given.pop("header", self.names is None),
            **given,
        )


def _wrong(key: str, given: Mapping[str, Any]) -> str:
    known = CsvOptions.model_fields
    if key not in known:
        nearest = get_close_matches(key, known, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        return f"csv has no key {key!r}.{hint} Keys are {', '.join(known)}."
    example = f"{key} = {(known[key].examples or [''])[0]}"
    allowed = known[key].description
    return f"csv: {key}={given[key]!r} must be {allowed}. For example: {example}."
