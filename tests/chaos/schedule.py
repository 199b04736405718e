"""Which faults a run has, and when: drawn from a seed, the same for the same seed."""

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase

from chaos.faults import FAULTS

#: Faults of a run.
N_FAULTS = 4

#: How many parts are there when a fault happens; below 0, it happens in the fit.
MARKS = range(-6, 32)

#: Seconds that a fault waits after its mark, and after the start of the job.
DELAYS, DELAYS_IN_FIT = (0, 2), (2, 12)


@dataclass(frozen=True)
class Planned:
    """One fault of a schedule.

    Attributes
    ----------
    fault, host : str
    n_parts : int
        It happens when so many parts are there...
    delay : float
        ... and so many seconds have gone by.
    seconds : float, optional
        How long it lasts.
    """

    fault: str
    host: str
    n_parts: int
    delay: float
    seconds: float | None


@dataclass(frozen=True)
class Schedule:
    """A run.

    Attributes
    ----------
    seed : int
    storage : str
        "local" or "s3".
    faults : tuple of Planned
        In the order in which they happen.
    part_seconds : float, default=1.0
        How long a part takes to write.
    """

    seed: int
    storage: str
    faults: tuple[Planned, ...]
    part_seconds: float = 1.0

    @classmethod
    def from_json(cls, said):
        faults = tuple(Planned(**planned) for planned in said["faults"])
        return cls(**{**said, "faults": faults})


def draw(seed, patterns=()):
    """Return the schedule of a seed, of the faults that fit a pattern; of all for none.

    The first fault goes in turn from seed to seed, so that as many seeds in a row as there
    are faults have each of them.
    """
    patterns = patterns or ["*"]
    names = [name for name in FAULTS if any(fnmatchcase(name, p) for p in patterns)]
    rng = random.Random(seed)
    first = names[seed % len(names)]
    storage = FAULTS[first].storage or rng.choice(["local", "local", "s3"])
    fitting = [name for name in names if FAULTS[name].storage in (None, storage)]
    chosen = [first]
    while len(chosen) < N_FAULTS:
        further = [name for name in fitting if _may_follow(name, chosen)]
        if not further:
            break
        chosen.append(rng.choice(further))
    chosen.sort(key=lambda name: FAULTS[name].is_for_good)
    chosen.sort(key=lambda name: not FAULTS[name].is_before)
    marks = sorted(rng.sample(MARKS, len(chosen)))
    faults = map(_planned, [rng] * len(chosen), chosen, marks)
    return Schedule(seed, storage, tuple(faults))


def _may_follow(name, chosen):
    """At most one fault of a run is for good, and what lasts is not done twice at once."""
    fault = FAULTS[name]
    if fault.is_for_good and any(FAULTS[other].is_for_good for other in chosen):
        return False
    return name not in chosen or (fault.seconds is None and not fault.is_before)


def _planned(rng, name, mark):
    fault = FAULTS[name]
    seconds = None if fault.seconds is None else round(rng.uniform(*fault.seconds), 1)
    host = rng.choice(fault.hosts)
    delay = round(rng.uniform(*(DELAYS_IN_FIT if mark < 0 else DELAYS)), 1)
    return Planned(name, host, max(mark, 0), delay, seconds)
