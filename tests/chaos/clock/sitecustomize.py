"""For hosts with a wrong clock: lets Python sleep there.

libfaketime 0.9.10 moves deadlines of the monotonic clock as well, which `time.sleep` uses:
the sleep fails, or takes an hour longer.
"""

import select
import time


def sleep(seconds):
    select.select([], [], [], seconds)


time.sleep = sleep
