"""HTML pages and cards, from values of JSON alone.

Public names: the page about a run, and a card for notebooks. Nothing here computes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
