"""The command line, `lpe-dask`.

Public name: `main`; commands, options, workers and progress are internal.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
