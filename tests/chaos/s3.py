"""An S3 server whose every twentieth request goes wrong, while a file says how.

python -m chaos.s3 10.88.0.5 FILE

The file holds "errors" (the server answers 503, and does nothing) or "lost" (it does what
it was asked for, and the connection ends without an answer).
"""

import itertools
import logging
import sys
import threading
from pathlib import Path

from storages import Faults

PORT = 5000

#: One of so many requests goes wrong.
ONE_IN = 20


def main(address, path):
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    server = ThreadedMotoServer(address, PORT, verbose=False)
    server.start()
    faults = server._server.app = Faults(server._server.app)
    numbers, file = itertools.count(1), Path(path)

    def now_and_then(kind, status):
        def answer(method, path):
            is_so = file.exists() and file.read_text() == kind
            return status if is_so and next(numbers) % ONE_IN == 0 else None

        return answer

    faults.answer = now_and_then("errors", 503)
    faults.loses = now_and_then("lost", "connection")
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
