"""Neighbors of rows among nominal rows, on Dask.

Public names: `Reference`, which packs nominal rows into blocks and gives lazy statistics of
other rows, and the plan of a search in whole numbers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
