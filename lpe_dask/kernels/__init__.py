"""Numerical kernels: NumPy arrays in, NumPy arrays out; nothing here knows of Dask.

`ALGORITHMS` is the one table of how rows can be ordered; blocks, states and walks are what
tasks are made of, and all algorithms give the float64 definition, bit for bit.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
