"""Wait for what happens soon, but not at once."""

import time


def eventually(condition, seconds=20.0):
    """Return whether a condition holds within some seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
