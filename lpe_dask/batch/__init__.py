"""From files to files: jobs, and runs that resume where they were interrupted.

What leaves reads a job, prepares what it asks for, and runs it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
