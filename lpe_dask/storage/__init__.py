"""Our own files on any storage: written completely or not at all, with locks and retries.

Public names: folders, locks, files of columns, files of arrays, retries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
