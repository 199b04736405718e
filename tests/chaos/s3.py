"""An S3 server whose every twentieth request goes wrong, while a file says how.

python -m chaos.s3 10.88.0.5 FILE
"""

import itertools
import logging
import socket
import sys
import threading
from pathlib import Path

from chaos.network import OBSERVER
from storages import Faults

PORT = 5000

#: One of so many requests goes wrong.
ONE_IN = 20


class Failing:
    """A WSGI application before that of a server.

    The file holds "errors" (the server answers 503, and does nothing) or "lost" (it does
    what it was asked for, and the connection ends without an answer).
    """

    def __init__(self, app, file):
        self.app, self.file = app, file
        self.refusing = Faults(app)
        self.refusing.answer = lambda method, path: 503
        self.numbers = itertools.count(1)

    def __call__(self, environ, start_response):
        kind = self.file.read_text() if self.file.exists() else ""
        is_observed = environ["REMOTE_ADDR"] == OBSERVER
        if not kind or is_observed or next(self.numbers) % ONE_IN:
            return self.app(environ, start_response)
        print(kind, environ["REQUEST_METHOD"], environ["PATH_INFO"], flush=True)
        if kind == "errors":
            return self.refusing(environ, start_response)
        list(self.app(environ, lambda *answer: None))
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError


def main(address, file):
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    server = ThreadedMotoServer(address, PORT, verbose=False)
    server.start()
    server._server.app = Failing(server._server.app, Path(file))
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
