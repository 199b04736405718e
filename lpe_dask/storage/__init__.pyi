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
from .folder import Folder, whole_file
from .json_values import package_versions, plain
from .lock import Lock, LockedError, check_token, hold, is_dead, is_held, lease, reserved
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
    "reserved",
    "retried",
    "retried_until_seen",
    "whole_file",
    "write_arrays",
    "write_columns",
]
