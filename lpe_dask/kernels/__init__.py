"""Numerical kernels: NumPy arrays in, NumPy arrays out; nothing here knows of Dask.

Public names: `ALGORITHMS`, the table of search algorithms; blocks, indexes and neighbor
graphs; what is known of queries so far; `compiler`, which says what runs compiled. All
algorithms give the float64 definition, bit for bit.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
