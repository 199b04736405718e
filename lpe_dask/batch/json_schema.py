"""The JSON Schema of job files, with which editors complete and check them.

It is made of the sections that check a file when it is read (job.py), and of the table of
arguments of `LPE`. It says nothing of keys that contradict each other. A text that has an
environment variable in it may become any other, and so is allowed where texts are.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from lpe_dask.batch.job import KEYS, SECTIONS
from lpe_dask.batch.job_storage import STORAGE
from lpe_dask.model import PARAMETERS

#: What TOML editors know best.
_DIALECT = "http://json-schema.org/draft-07/schema"

_VARIABLE = r"\$\{"

#: What a key has for messages (`job._key`).
_OF_MESSAGES = ("title", "description", "examples")

#: Python's types of arguments -> what they are in a file.
_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    dict: {"type": "object"},
    list: {"type": ["array", "string"], "items": {"type": ["string", "integer"]}},
}


def job_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file, with a description of each key.

    Examples
    --------
    >>> job_schema()["properties"]["cluster"]["properties"]["workers"]["type"]
    'integer'
    """
    sections = {name: _section(name) for name in SECTIONS}
    sections[STORAGE] = {
        "type": "object",
        "description": "Options with which all URLs of the job open, such as key and "
        "secret; those in a table such as [storage.s3] are for one protocol.",
    }
    return {
        "$schema": _DIALECT,
        "title": "a job of lpe-dask run",
        "description": "What to fit, what to score, and where to write the output.",
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
        "anyOf": [{"required": ["nominal"]}, {"required": ["score"]}],
    }


def _section(name: str) -> dict[str, Any]:
    """Return the schema of a section."""
    model = SECTIONS[name]
    schema = model.model_json_schema()
    arguments = PARAMETERS if name == "model" else {}
    first_line, _, _ = str(model.__doc__).partition("\n")
    section = {
        "type": "object",
        "description": first_line,
        "properties": {
            key: _argument(key) if key in arguments else _key(schema["properties"][key])
            for key in KEYS[name]
        },
        "additionalProperties": False,
    }
    return section | {key: of for key, of in schema.items() if key == "required"}


def _key(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key, in the form that an editor may show."""
    texts = {"description": f"{schema['title']}. It must be {schema['description']}."}
    examples = [tomllib.loads(f"example = {of}")["example"] for of in schema["examples"]]
    values = {of: value for of, value in schema.items() if of not in _OF_MESSAGES}
    return texts | _values(values) | {"examples": examples}


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    """Return which values a schema allows that TOML can have, and texts with variables."""
    schema = {of: value for of, value in schema.items() if value is not None}
    if schema.get("type") == "array" and "minLength" in schema:  # so pydantic calls it
        schema["minItems"] = schema.pop("minLength")
    if "items" in schema:
        schema["items"] = _values(schema["items"])
    if "anyOf" in schema:
        known = [_values(of) for of in schema.pop("anyOf") if of.get("type") != "null"]
        return schema | (known[0] if len(known) == 1 else {"anyOf": known})
    if "pattern" in schema:
        schema["pattern"] = f"(?:{schema['pattern']})|{_VARIABLE}"
    if "enum" in schema:
        values = {"enum": schema.pop("enum")}
        return schema | {"anyOf": [values, {"pattern": _VARIABLE}]}
    return schema


def _argument(name: str) -> dict[str, Any]:
    """Return the schema of an argument of `LPE`."""
    known = PARAMETERS[name]
    text = re.sub("--([a-z-]+)", lambda of: of[1].replace("-", "_"), known.help)
    text = re.sub(r"""'\{"(\w+)": (.*?)\}'""", r"{ \1 = \2 }", text)  # not JSON, but TOML
    meaning, _, default_text = text.partition("  [default: ")
    if known.type in (int, float):
        meaning += f" It must be {known.must_be.partition(', or None')[0]}."
    if default_text:
        meaning += f" If it is not given: {default_text.removesuffix(']')}."
    schema = {"description": meaning} | _TYPES.get(known.type, {})
    if known.choices is not None:
        choices = [choice for choice in known.choices if choice is not None]
        schema |= _values({"type": "string", "enum": choices})
    default = list(known.default) if isinstance(known.default, tuple) else known.default
    return schema | ({} if default is None else {"default": default})
