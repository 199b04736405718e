"""`dask.array`, imported when something of it is first used.

Modules that build graphs also hold what their tasks run, so workers import them; but no
task needs `dask.array`, which takes a quarter of a second and 20 MiB, or 60 with `sparse`.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    import dask.array

    return getattr(dask.array, name)
