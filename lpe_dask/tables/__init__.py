"""What users bring, as rows; and results in the kind that came in.

What leaves opens files, NumPy, pandas and Dask tables alike, checks their columns, and
counts and takes nominal rows.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
