"""From statistics to p-values, and from p-values to decisions.

Public names: compare statistics with those of nominal rows, and flag rows at a false
discovery rate.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
