"""Drift: whether the rows of one run or of several are distributed as nominal ones.

Public names: `drift`, `DriftMonitor` for the runs of a series, counts that both take.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
