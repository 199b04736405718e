"""A preload of workers: takes too much memory, once the file CHAOS_TAKE-<name> is there."""

import os
from contextlib import suppress

import numpy as np
from tornado.ioloop import PeriodicCallback

taken = []


def dask_setup(worker):
    path = f"{os.environ['CHAOS_TAKE']}-{worker.name}"

    def look():
        with suppress(FileNotFoundError):
            os.remove(path)
            taken.append(np.ones(int(1.2 * worker.memory_manager.memory_limit), np.int8))

    PeriodicCallback(look, 200).start()
