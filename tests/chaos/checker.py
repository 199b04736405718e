"""Whether what a run gave is what it gives where nothing disturbs it, and nothing else."""

import json
import math
import re
import signal
import time
from collections import Counter

import fsspec

from chaos.cluster import WORKERS
from chaos.faults import FAULTS
from chaos.job import model_in
from digests import digest_of_table, parts_in, read_table

#: Exit codes with which a job may end that is to be started again.
CODES = (1, 2, 75)

#: Words by which a message says what to do.
ADVICE = re.compile(
    r"\b(start|started|give|try|wait|check|use|set|install|free|make|leave|remove)\b",
    re.IGNORECASE,
)


#: Seconds in which workers that nobody waited for have put away what they had begun.
LATE_SECONDS = 20.0


class Watcher:
    """Sees the parts of a local output as soon as they have their names."""

    def __init__(self, folder, undisturbed, history):
        self.folder, self.undisturbed, self.history = folder, undisturbed, history
        self.seen = {}
        self.problems = []

    def look(self):
        """Read each part that is new or was replaced; a whole one has the right bits."""
        if not self.folder.is_dir():
            return
        is_summed = (self.folder / "_summary.json").exists()
        names = {path.name: path.stat().st_ino for path in self.folder.glob("part-*")}
        for name, inode in names.items():
            if self.seen.get(name) == inode:
                continue
            again = {"again": True} if name in self.seen else {}
            self.history.add("part", name=name, **again)
            self.seen[name] = inode
            self._read(name)
        if is_summed and len(names) < len(self.undisturbed.parts):
            self.problems.append(f"a summary beside {len(names)} parts")

    def _read(self, name):
        try:
            table = read_table(fsspec.filesystem("file"), str(self.folder / name))
        except Exception as error:  # half a file, whatever reading it raises
            self.problems.append(f"{name} cannot be read: {error!r}")
            return
        if digest_of_table(table) != self.undisturbed.parts.get(name):
            self.problems.append(f"{name} has other bits when it is first seen")


def problems_that_stay(cluster, undisturbed):
    """List the faults of a run's files that remain some seconds after its end.

    A worker that was stopped in the middle of a part wakes up late, and removes it.
    """
    end = time.monotonic() + LATE_SECONDS
    while (problems := problems_of_result(cluster, undisturbed)) and time.monotonic() < end:
        time.sleep(1)
    return problems


def problems_of_result(cluster, undisturbed):
    """List the faults of the files of a run that is done."""
    try:
        return _problems_of_files(cluster, undisturbed)
    except Exception as error:  # what is missing or damaged, whatever reading it raises
        return [f"the bits of the result cannot be read: {error!r}"]


def _problems_of_files(cluster, undisturbed):
    out, model = f"{cluster.place.outputs}/out", f"{cluster.place.outputs}/model"
    problems = []
    if parts_in(out) != undisturbed.parts:
        problems.append("the parts have other bits")
    if model_in(model) != undisturbed.model:
        problems.append("the model has other bits")
    about = {"_metrics.prom", "_reasons.pqt", "_report.html", "_summary.json"}
    expected = {*undisturbed.parts, *about}
    if left := {*names_below(out)} - expected:
        problems.append(f"left in the output: {sorted(left)}")
    folders = {re.sub("-.*", "", name) for name in names_below(model)}
    if len(names_below(model)) != len(folders) or folders != {"data", "manifest.json"}:
        problems.append(f"left in the model: {names_below(model)}")
    return problems


def spools(cluster):
    """List the folder for spools."""
    return [path.name for path in (cluster.folder / "spool").iterdir()]


def names_below(url):
    filesystem, path = fsspec.url_to_fs(url)
    filesystem.invalidate_cache()
    return sorted(name.rpartition("/")[2] for name in filesystem.ls(path, detail=False))


def n_written(cluster):
    """Return how many parts were written."""
    return len(_writes(cluster))


def written_again(cluster):
    """Return how often a part was written that had been written before."""
    counts = _writes(cluster)
    return counts.total() - len(counts)


def _writes(cluster):
    lines = cluster.writes.read_text().splitlines() if cluster.writes.exists() else []
    return Counter(json.loads(line)["part"] for line in lines)


def may_be_written_again(history):
    """Return how many parts may be written twice.

    Of each lost worker that at hand; and those of which the client could not hear, because
    its link or that of the scheduler was cut, if a worker is lost before it is heard again.
    TCP is silent for up to twice as long as a link was cut: it doubles its pauses.
    """
    ends = [said for said in history.of("ended") if said["service"] in WORKERS]
    injected = history.of("injected")
    n_parts = len(ends) + sum(FAULTS[said["fault"]].n_lost for said in injected)
    for cut in injected:
        if not cut["fault"].startswith("link-cut") or cut["host"] in WORKERS:
            continue
        healed = [
            said["at"]
            for said in history.of("healed")
            if (said["fault"], said["host"]) == (cut["fault"], cut["host"])
        ]
        heard = cut["at"] + 2 * (max(healed, default=math.inf) - cut["at"])
        lost = [s["parts"] for s in injected if s["host"] in WORKERS and s["at"] <= heard]
        n_parts += max([0, *(parts - cut["parts"] for parts in lost)])
    return n_parts


def is_clear(said):
    """Return whether the end of a log is an error in words that says what to do."""
    last = said.strip().splitlines()[-1] if said.strip() else ""
    return last.startswith("Error: ") and bool(ADVICE.search(last))


def problems_of_ends(history):
    """Return which ends of the job were neither clear errors nor done to it."""
    problems = []
    for end in history.of("job ended"):
        code, said = end["code"], end["said"]
        if code in (0, -signal.SIGKILL):  # nothing but a fault kills it
            continue
        if code not in CODES:
            problems.append(f"the job ended with {code}: {said}")
        elif "Traceback" in said or not is_clear(said):
            problems.append(f"not a clear error (exit code {code}): {said}")
    return problems
