"""Dask: what a graph carries, what it leaves on storage, and the workers that run it.

What leaves brings values into graphs once, keeps them for as long as a task needs them, and
says how many threads and bytes there are. Private parts of Dask are used here only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
