"""A preload of workers: parts that take long, and a memory that can be exceeded.

Each part takes CHAOS_SECONDS to write, without the processor, and is then a line in the
file CHAOS_WRITES. A worker that has started makes the file CHAOS_READY, and takes too much
memory once there is a file CHAOS_TAKE-<name>.
"""

import json
import os
import time
from contextlib import suppress

import numpy as np
from tornado.ioloop import PeriodicCallback

from lpe_dask.batch import parts

fast = parts._write_part
taken = []


def _write_part(*arguments):
    time.sleep(float(os.environ["CHAOS_SECONDS"]))
    counts = fast(*arguments)
    said = {"part": arguments[-1], "host": os.uname().nodename, "time": time.time()}
    with open(os.environ["CHAOS_WRITES"], "a") as file:
        file.write(json.dumps(said) + "\n")
    return counts


def dask_setup(worker):
    parts._write_part = _write_part
    path = f"{os.environ['CHAOS_TAKE']}-{worker.name}"

    def look():
        with suppress(FileNotFoundError):
            os.remove(path)
            taken.append(np.ones(int(1.2 * worker.memory_manager.memory_limit), np.int8))

    PeriodicCallback(look, 200).start()
    with open(os.environ["CHAOS_READY"], "w"):  # all is imported: its life begins
        pass
