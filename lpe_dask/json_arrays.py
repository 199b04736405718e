"""Arrays as fields of dataclasses that pydantic writes to JSON and reads, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class _AsLists:
    """What pydantic has to know: lists of finite numbers, or lists of such lists."""

    dtype: type

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as schemas  # not for workers

        number: Any = schemas.float_schema(strict=True, allow_inf_nan=False)
        if self.dtype is np.int64:
            number = schemas.int_schema(strict=True, ge=-(2**63), lt=2**63)
        vector = schemas.list_schema(number)
        return schemas.no_info_after_validator_function(
            lambda values: np.array(values, self.dtype),
            schemas.union_schema([vector, schemas.list_schema(vector)]),
            serialization=schemas.plain_serializer_function_ser_schema(np.ndarray.tolist),
        )


#: Arrays of one or two dimensions.
Floats = Annotated[NDArray[np.float64], _AsLists(np.float64)]
Wholes = Annotated[NDArray[np.int64], _AsLists(np.int64)]


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """What pydantic has to know of a field that is written elsewhere."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as schemas  # not for workers

        return schemas.with_default_schema(
            schemas.no_info_plain_validator_function(
                lambda _: None,  # whatever a stranger has put there
                serialization=schemas.plain_serializer_function_ser_schema(lambda _: None),
            ),
            default=None,
        )


#: What JSON has not, and readers get as None.
LEFT_OUT = _LeftOut()
Elsewhere = Annotated[Any, LEFT_OUT]
