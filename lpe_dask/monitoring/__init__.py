"""Drift: whether the rows of one run or of several are distributed as nominal ones.

Public names: `drift`, the state of a series and its update, and the counts that they take.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
