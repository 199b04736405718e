"""Our own files on any storage: whole whenever they can be seen, locked, and tried again.

What leaves is how files are written and read: locks, columns of numbers, arrays, retries.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
