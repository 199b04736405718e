from .column_names import as_given, name_from_json, name_to_json, places_of
from .columns import select_columns
from .errors import TableError
from .files import (
    FileTable,
    Paths,
    TableFiles,
    find_files,
    is_paths,
    is_there,
    open_table,
    paths_in,
    shown_paths,
)
from .nominal import Nominal, checked_rows, read_nominal, take_rows
from .numeric import check_numeric, float_rows
from .origin import Origin
from .results import changed_rows, look_up, map_blocks, map_values, to_numpy
from .row_groups import READERS
from .table import Table, read_table, with_known_rows

__all__ = [
    "READERS",
    "FileTable",
    "Nominal",
    "Origin",
    "Paths",
    "Table",
    "TableError",
    "TableFiles",
    "as_given",
    "changed_rows",
    "check_numeric",
    "checked_rows",
    "find_files",
    "float_rows",
    "is_paths",
    "is_there",
    "look_up",
    "map_blocks",
    "map_values",
    "name_from_json",
    "name_to_json",
    "open_table",
    "paths_in",
    "places_of",
    "read_nominal",
    "read_table",
    "select_columns",
    "shown_paths",
    "take_rows",
    "to_numpy",
    "with_known_rows",
]
