from .arrays import ArrayFile, write_arrays
from .columns import (
    FLOAT64,
    FLOATS,
    INT32,
    INT64,
    StoredFile,
    columns_of,
    parquet_of,
    write_columns,
)
from .folder import Folder
from .json_values import package_versions, plain
from .lock import Lock, LockedError, check_token, hold, is_dead, is_held, lease
from .messages import brief
from .retries import is_passing, retried, retried_until_seen

__all__ = [
    "FLOAT64",
    "FLOATS",
    "INT32",
    "INT64",
    "ArrayFile",
    "Folder",
    "Lock",
    "LockedError",
    "StoredFile",
    "brief",
    "check_token",
    "columns_of",
    "hold",
    "is_dead",
    "is_held",
    "is_passing",
    "lease",
    "package_versions",
    "parquet_of",
    "plain",
    "retried",
    "retried_until_seen",
    "write_arrays",
    "write_columns",
]
