"""A preload of workers: each part takes CHAOS_SECONDS to write, without the processor.

Each part that was written is a line in the file CHAOS_WRITES. A worker that has started
makes the file CHAOS_READY.
"""

import json
import os
import time

from lpe_dask.batch import parts

fast = parts._write_part


def _write_part(*arguments):
    time.sleep(float(os.environ["CHAOS_SECONDS"]))
    counts = fast(*arguments)
    said = {"part": arguments[-1], "host": os.uname().nodename, "time": time.time()}
    with open(os.environ["CHAOS_WRITES"], "a") as file:
        file.write(json.dumps(said) + "\n")
    return counts


def dask_setup(worker):
    parts._write_part = _write_part
    with open(os.environ["CHAOS_READY"], "w"):  # all is imported: its life begins
        pass
