"""Turn dataclasses into what JSON knows, and back, the same to the last bit.

    Space --to_json--> what JSON knows --a field of type `checked_type(Space)`--> Space

The annotations of a dataclass say what its fields are, and pydantic takes nothing else: no
field more or less, no text for a number, no NaN. What they cannot say is up to a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    create_model,
)

#: How values are taken: as they are, and nothing that JSON does not know.
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

#: What the values of an array are in JSON: those of a vector, or of each row of a matrix.
_NUMBERS: dict[Any, TypeAdapter[Any]] = {
    np.float64: TypeAdapter(list[float] | list[list[float]], config=STRICT),
    np.int64: TypeAdapter(
        list[Annotated[int, Field(ge=-(2**63), lt=2**63)]], config=STRICT
    ),
}


class Section(BaseModel):
    """A part of a file that may hold nothing but its fields."""

    model_config = STRICT


def to_json(value: Any) -> Any:
    """Return a value as what JSON knows: dataclasses as dict, arrays as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(to_json, value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def checked_type(kind: type, checks: Mapping[type, Callable[[Any], None]]) -> Any:
    """Return a type for pydantic, which makes a dataclass of what `to_json` gives.

    Parameters
    ----------
    kind : type
        A dataclass whose fields are numbers, text, arrays, tuples of any length of such,
        or such dataclasses.
    checks : dict of type to callable
        For each dataclass, what raises ValueError for an instance that cannot be used.
    """
    hints = get_type_hints(kind)
    types: dict[str, Any] = {
        field.name: (_checked(hints[field.name], checks), ...) for field in fields(kind)
    }
    section = create_model(kind.__name__, __base__=Section, **types)

    def build(values: BaseModel) -> Any:
        built = kind(**dict(values))
        checks[kind](built)
        return built

    return Annotated[section, AfterValidator(build)]


def _checked(hint: Any, checks: Mapping[type, Callable[[Any], None]]) -> Any:
    """Return the same of an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return checked_type(hint, checks)  # type: ignore[arg-type]
    if origin in (Union, UnionType):
        return Union[tuple(_checked(argument, checks) for argument in arguments)]  # noqa: UP007
    if origin is tuple:  # of any length
        return Annotated[list[_checked(arguments[0], checks)], AfterValidator(tuple)]  # type: ignore[misc]
    if origin is np.ndarray:
        (dtype,) = get_args(arguments[1])
        return Annotated[Any, PlainValidator(lambda values: _array(values, dtype))]
    return hint


def _array(values: Any, dtype: Any) -> NDArray[Any]:
    try:
        return np.array(_NUMBERS[dtype].validate_python(values), dtype)
    except ValueError:
        raise ValueError(f"it is no array of finite {dtype.__name__}") from None
