"""What users bring, as rows; and results in the kind that came in.

Public names: open files and NumPy, pandas and Dask tables in the same way, check their
columns, count and choose nominal rows.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
