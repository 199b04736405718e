"""What a run would need, before anything is run: tasks, memory, seconds.

Public names: `plan` for tables, models and jobs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
