"""Dask: what a graph carries, what it leaves on storage, and the workers that run it.

Public names: put values into graphs once, keep them for as long as a task needs them, and
find how many threads and bytes the workers have. Private parts of Dask are used here only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
