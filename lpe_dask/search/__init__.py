"""Neighbors of rows among nominal rows, on Dask.

What leaves plans a search in whole numbers, packs nominal rows into blocks, and gives lazy
statistics of others: a `Reference` does all three.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
