"""One run: the job on a cluster, the faults of a schedule, and the verdict."""

import math
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field

from chaos import checker
from chaos.cluster import Cluster
from chaos.faults import FAULTS
from chaos.history import History
from chaos.network import Network

#: Seconds in which a job that nothing disturbs is done, with the start of its cluster.
PATIENCE = 120.0

TICK = 0.1


@dataclass
class Verdict:
    """What came of a run."""

    seed: int
    history: str
    injected: Counter = field(default_factory=Counter)
    is_equal: bool = False
    errors: Counter = field(default_factory=Counter)  # by exit code
    n_again: int = 0  # parts that were written again
    seconds: float = 0.0
    problems: list = field(default_factory=list)  # what is not as promised


def run(schedule, folder, inputs, undisturbed):
    """Do a run in a folder that is made anew, and return the verdict."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        History(folder / "history.jsonl") as history,
        Network() as network,
        Cluster(network, folder, inputs, history, schedule) as cluster,
    ):
        history.add("schedule", schedule=schedule)
        verdict = Verdict(schedule.seed, str(history.path))
        watcher = checker.Watcher(folder / "output" / "out", undisturbed, history)
        actor = Actor(schedule, cluster, history)
        actor.do_all(watcher)
        verdict.injected.update(said["fault"] for said in history.of("injected"))
        _judge(verdict, cluster, undisturbed, history)
        verdict.problems += watcher.problems
        verdict.is_equal &= not watcher.problems
        verdict.seconds = history.now()
        history.add("verdict", **vars(verdict))
    if not verdict.problems:
        for path in folder.iterdir():
            if path != history.path:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return verdict


class Actor:
    """Does the faults of a schedule while the job runs."""

    def __init__(self, schedule, cluster, history):
        self.cluster, self.history = cluster, history
        self.waiting = [
            planned for planned in schedule.faults if FAULTS[planned.fault].is_possible()
        ]
        self.lasting = []  # pairs: when it ends, which
        self.since = None  # when the mark of the next one was reached
        self.deadline = time.monotonic() + PATIENCE

    def do_all(self, watcher):
        """Return when the job is done, or when it is not done in time."""
        while self.waiting and FAULTS[self.waiting[0].fault].is_before:
            self._do(self.waiting.pop(0))
        while self.cluster.exit_code is None and time.monotonic() < self.deadline:
            self.cluster.supervise()
            watcher.look()
            self._do_due()
            self._heal_due()
            time.sleep(TICK)
        for _, planned in self.lasting:
            self._heal(planned)

    def _do_due(self):
        if not self.waiting or self._n_parts() < self.waiting[0].n_parts:
            return
        now = time.monotonic()
        self.since = self.since or now
        if now >= self.since + self.waiting[0].delay and self._do(self.waiting[0]):
            del self.waiting[0]
            self.since = None

    def _do(self, planned):
        fault = FAULTS[planned.fault]
        if fault.do(self.cluster, planned.host) is False:
            return False
        self.history.add(
            "injected", fault=planned.fault, host=planned.host, parts=self._n_parts()
        )
        ends = time.monotonic() + (planned.seconds or 0)
        self.deadline = max(self.deadline, ends + fault.ends_within)
        if fault.heal is not None:
            self.lasting.append((math.inf if fault.is_for_good else ends, planned))
        return True

    def _heal_due(self):
        for entry in list(self.lasting):
            ends, planned = entry
            # What is there before the job starts goes when the job has said so.
            is_said = FAULTS[planned.fault].is_before and self.history.of("job ended")
            if is_said or ends <= time.monotonic():
                self.lasting.remove(entry)
                self._heal(planned)

    def _heal(self, planned):
        FAULTS[planned.fault].heal(self.cluster, planned.host)
        self.history.add("healed", fault=planned.fault, host=planned.host)

    def _n_parts(self):
        """Return how many parts have been written."""
        return checker.n_written(self.cluster)


def _judge(verdict, cluster, undisturbed, history):
    """Compare, count, and note what is wrong."""
    verdict.n_again = checker.written_again(cluster)
    n_at_most = checker.may_be_written_again(history)
    if verdict.n_again > n_at_most:
        verdict.problems.append(
            f"{verdict.n_again} parts written again, at most {n_at_most} may be"
        )
    ends = [end["code"] for end in history.of("job ended")]
    verdict.errors.update(code for code in ends if code in checker.CODES)
    verdict.problems += checker.problems_of_ends(history)
    if cluster.exit_code is None:
        log = cluster.job_log()
        said = log.read_text().strip().splitlines()[-3:] if log.exists() else []
        last = history.of("injected")[-1:] or [{"at": 0, "fault": "the start"}]
        verdict.problems.append(
            f"not done {history.now() - last[0]['at']:.0f} s or more after "
            f"{last[0]['fault']}: {checker.n_written(cluster)} parts; it said: {said}"
        )
        return
    wrong = checker.problems_that_stay(cluster, undisturbed)
    verdict.is_equal = not any("bits" in problem for problem in wrong)
    verdict.problems += wrong
    code, said = cluster.run_once("job.toml")
    if code != 0 or "nothing to do" not in said:
        verdict.problems.append(f"started once more: {code}, {said}")
    if checker.spools(cluster):  # of clients that were killed: the next one removes them
        code, said = cluster.run_once("next.toml")
        if left := checker.spools(cluster):
            verdict.problems.append(f"left in the spool: {left} (next job: {code}, {said})")
