"""What was done and seen in a run: a JSON object a line, with seconds since its start."""

import json
import time


class History:
    """A file of events, and the events; each is seen in the file as soon as it happened."""

    def __init__(self, path):
        self.path = path
        self.events = []
        self._start = time.monotonic()
        self._file = open(path, "w")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def add(self, event, **details):
        said = {"at": round(time.monotonic() - self._start, 2), "event": event, **details}
        self.events.append(said)
        print(json.dumps(said), file=self._file, flush=True)

    def of(self, event):
        return [said for said in self.events if said["event"] == event]


def read(path):
    """Return the events of a history."""
    with open(path) as file:
        return [json.loads(line) for line in file]
