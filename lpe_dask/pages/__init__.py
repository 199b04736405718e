"""HTML pages, from values of JSON alone.

Public names: the page about a run. Nothing here computes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
