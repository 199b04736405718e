"""`LPE`: fit, score, save and load.

Public names: the estimator, the table of its arguments, the folder of a saved model, and
the steps of a fit for the packages that run or plan one from files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
