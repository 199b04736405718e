"""Plots of p-values, with Matplotlib.

Public names: one function for each plot. Each is in a file of its own; what they have in
common, colors, lines and markers, is in `style`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
