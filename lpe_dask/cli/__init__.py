"""The command line, `lpe-dask`.

What leaves is `main`; commands, options, workers and progress stay inside.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
