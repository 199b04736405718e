"""From files to files: jobs, and runs that resume where they were interrupted.

Public names: to read a job, to prepare it, and to run it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
