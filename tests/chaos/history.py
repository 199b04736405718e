"""What was done and seen in a run: a JSON object a line, with seconds since its start."""

import json
import time
from dataclasses import asdict

from chaos.schedule import Schedule


class History:
    """A file of events, and the events; each is seen in the file as soon as it happened."""

    def __init__(self, path):
        self.path = path
        self.events = []
        self._start = time.monotonic()
        self._file = open(path, "w")  # noqa: SIM115 - closed with this context

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def now(self):
        return round(time.monotonic() - self._start, 2)

    def add(self, event, **details):
        said = {"at": self.now(), "event": event, **details}
        self.events.append(said)
        print(json.dumps(said, default=asdict), file=self._file, flush=True)

    def of(self, event):
        return [said for said in self.events if said["event"] == event]


def read(path):
    """Return the events of a history."""
    with open(path) as file:
        return [json.loads(line) for line in file]


def read_first(path):
    """Return the schedule that a history begins with."""
    with open(path) as file:
        return Schedule.from_json(json.loads(file.readline())["schedule"])
