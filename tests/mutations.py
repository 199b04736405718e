"""Put faults into the package, one at a time, and tell which the tests notice.

    python tests/mutations.py --seed 14 --count 40 build/mutations.csv
    python tests/mutations.py --seed 14 --tests ../older/tests --count 40 build/older.csv

A fault is a changed operator, comparison, truth value or number, or a dropped statement, at
a place that is drawn at random, as many in each package. Each is judged in a copy of this
checkout by the tests that run its lines, those of its own file first, and then by all files
that import its package, as tests start processes, too; until one fails or the time is over.
First those of `make test` judge, and where these see nothing, those of `make test-full`. A
fault that only the latter see is a case that the former lack. The same seed draws the same
faults, so that two suites can be compared.

Which tests run which lines is measured once, for as long as neither changes: that takes
about as long as these tests.
"""

import argparse
import ast
import csv
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]

#: Packages that get faults.
PACKAGES = ("search", "pvalues", "model", "batch", "storage", "monitoring")

#: What is neither slow nor takes hours.
IN_MINUTES = "not slow and not lifetimes"

#: Folders of tests, and which of these count, by the target that runs them.
TIERS = {
    "make test": (["core"], f"not full and {IN_MINUTES}"),
    "make test-full": (["core"], f"full and {IN_MINUTES}"),
    "make test-full, all else": (["full", "system"], IN_MINUTES),
}

#: Tests of a fault from which on two processes are faster than one.
MANY_TESTS = 100

#: As `make test` uses them.
TWO_PROCESSES = [
    "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0"
]  # fmt: skip

#: Seconds for the tests of a fault, of each tier.
PATIENCE = 300

#: What pytest says of a test that failed.
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """Some text of a file, and what takes its place.

    Attributes
    ----------
    file : str
        Relative to the root.
    line : int
    lines : range
        Of the statement, without those in its body; empty outside of functions, where it
        runs when the module is imported.
    start, stop : int
        Bytes in the file.
    before, after : str
    """

    file: str
    line: int
    lines: range
    start: int
    stop: int
    before: str
    after: str


def faults_in(path):
    """Return all faults that a file can have."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    skipped = {id(node) for node in _not_run(tree)}
    lines = _lines_in_functions(tree)
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped or not hasattr(node, "lineno"):
            continue
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        before = source[start:stop].decode()
        name = str(path.relative_to(ROOT))
        found += [
            Fault(
                name, node.lineno, lines.get(id(node), range(0)), start, stop, before, after
            )
            for after in _changed(node)
        ]
    return sorted(found, key=lambda fault: (fault.start, fault.stop, fault.after))


def _lines_in_functions(tree):
    """Return the lines of the statement that each node within a function is in."""
    found = {}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for statement in (
        node for one in functions for body in one.body for node in ast.walk(body)
    ):
        if isinstance(statement, ast.stmt):
            inner = [
                node
                for node in ast.iter_child_nodes(statement)
                if isinstance(node, ast.stmt)
            ]
            stop = inner[0].lineno if inner else statement.end_lineno + 1
            lines = range(statement.lineno, max(stop, statement.lineno + 1))
            for node in [statement, *_expressions_of(statement)]:
                found[id(node)] = lines
    return found


def _expressions_of(statement):
    """Yield all nodes of a statement that are in no statement within it."""
    for node in ast.iter_child_nodes(statement):
        if not isinstance(node, ast.stmt):
            yield node
            yield from _expressions_of(node)


def _not_run(tree):
    """Yield what has no effect: types, docstrings, texts, imports and declarations."""
    for node in ast.walk(tree):
        dead = []
        if isinstance(node, ast.FunctionDef):
            dead = [node.returns, node.args]
        elif isinstance(node, ast.AnnAssign):
            dead = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            dead = [*node.decorator_list, *node.bases]
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
            dead = list(ast.iter_child_nodes(node))  # the words of a message
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            dead = [node]
        for part in dead:
            if part is not None:
                yield from ast.walk(part)


def _changed(node):
    """Yield what can stand in the place of a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARISONS[type(node.ops[0])]()
        yield ast.unparse(ast.Compare(node.left, [other], node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        other = OPERATORS[type(node.op)]()
        yield f"({ast.unparse(ast.BinOp(node.left, other, node.right))})"
    elif isinstance(node, ast.BoolOp):
        yield f"({ast.unparse(ast.BoolOp(OPERATORS[type(node.op)](), node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value)
        elif isinstance(node.value, int | float):
            yield repr(node.value + 1)
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Raise):
        yield "pass"


def drawn(seed, count):
    """Return faults, as many in each package, but for a rest in the first ones."""
    rng = random.Random(seed)
    faults = []
    for i, package in enumerate(PACKAGES):
        files = sorted((ROOT / "lpe_dask" / package).rglob("*.py"))
        there = [fault for file in files for fault in faults_in(file)]
        faults += rng.sample(there, len(range(i, count, len(PACKAGES))))
    return faults


def files_that_test(tests, folders, module):
    """Return the test files that import the package of a module, the nearest first."""
    package = module.relative_to(tests.parent / "lpe_dask").parts[0]
    imports = re.compile(rf"^\s*(from|import) lpe_dask\.{package}\b", re.MULTILINE)
    files = sorted(file for name in folders for file in (tests / name).rglob("test_*.py"))
    own = [file for file in files if file.parent.name == package]
    own.sort(key=lambda file: file.name != f"test_{module.name}")
    return own + [
        file for file in files if file not in own and imports.search(file.read_text())
    ]


def measured_lines(checkout, folder):
    """Return which tests run which lines, and which fail without a fault, in a checkout.

    Measured if the package or its tests have changed.
    """
    sources = {
        path for name in ("lpe_dask", "tests") for path in (checkout / name).rglob("*.py")
    }
    content = b"".join(
        path.read_bytes() for path in sorted(sources - {checkout / "tests/mutations.py"})
    )
    stem = folder / f"lines-{hashlib.sha256(content).hexdigest()[:12]}"
    lines, failures = stem.with_suffix(".coverage"), stem.with_suffix(".failures")
    if not failures.exists():
        settings = folder.absolute() / "lines.coveragerc"
        settings.touch()  # neither branches nor other processes
        output = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-m", IN_MINUTES, *TWO_PROCESSES,
                "--cov=lpe_dask", "--cov-context=test", "--cov-report=",
                f"--cov-config={settings}", "tests/core",
            ],
            cwd=checkout, env=_environment(checkout), capture_output=True, text=True,
            check=False,
        ).stdout  # fmt: skip
        shutil.move(checkout / ".coverage", lines)
        failures.write_text("\n".join(FAILED.findall(output)))
    data = CoverageData(lines)
    data.read()
    return data, failures.read_text().splitlines()


def tests_of(fault, data):
    """Return the tests that run the lines of a fault, those of its own file first.

    Where a fixture runs them, all tests of its file; none of lines that run when a module
    is imported.
    """
    files = [file for file in data.measured_files() if file.endswith(f"/{fault.file}")]
    tests = set()
    for context in {
        name
        for file in files
        for line, names in data.contexts_by_lineno(file).items()
        if line in fault.lines
        for name in names
    }:
        test, _, phase = context.rpartition("|")
        tests.add(test if phase == "run" else test.partition("::")[0])
    tests -= {""} | {test for test in tests if test.partition("::")[0] in tests - {test}}
    module = Path(fault.file)
    own = f"tests/core/{module.parts[1]}/"

    def distance(test):
        return f"/test_{module.name}" not in test, not test.startswith(own), test

    return sorted(tests, key=distance)


def judged(fault, checkout, data, failing):
    """Return which tier of the tests of a checkout notices a fault, and which test."""
    path = checkout / fault.file
    source = path.read_bytes()
    tests = tests_of(fault, data)
    path.write_bytes(source[: fault.start] + fault.after.encode() + source[fault.stop :])
    verdicts = []
    try:
        for tier, (folders, marks) in TIERS.items():
            files = files_that_test(checkout / "tests", folders, path)
            for chosen in [tests, files] if tests and folders == ["core"] else [files]:
                verdict, test = _first_failure(chosen, marks, checkout, failing)
                if verdict == "caught":
                    return f"{verdict} by {tier}", test
                verdicts.append(verdict)
    finally:
        path.write_bytes(source)
    return ", ".join(dict.fromkeys(verdicts)), ""


def _environment(checkout):
    return os.environ | {"PYTHONPATH": str(checkout)}


def _first_failure(tests, marks, checkout, failing):
    if not tests:
        return "survived", ""
    names = checkout / "chosen-tests.txt"
    deselected = [f"--deselect={test}" for test in failing]
    names.write_text("\n".join([*deselected, *map(str, tests)]))
    is_many = len(tests) >= MANY_TESTS or any("::" not in str(test) for test in tests)
    processes = TWO_PROCESSES if is_many else []
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", marks, *processes]
    process = subprocess.Popen(
        [*command, f"@{names}"], cwd=checkout, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=_environment(checkout),
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "not within the time", ""
    finally:
        with suppress(ProcessLookupError):  # what tests have started ends with them
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "survived", ""
    failed = FAILED.findall(output)
    return "caught", failed[0] if failed else output.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    options = parser.parse_args()
    if not (options.tests / "core").is_dir():
        parser.error(f"--tests {options.tests} has no folder core: its suite has no tiers")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, options.output.open("w") as file:
        checkout = Path(folder) / "checkout"
        caches = shutil.ignore_patterns(".*", "build")
        shutil.copytree(ROOT, checkout, ignore=caches)
        shutil.rmtree(checkout / "tests")
        shutil.copytree(options.tests, checkout / "tests")
        data, failing = measured_lines(checkout, options.output.parent)
        table = csv.writer(file)
        table.writerow(["file", "line", "before", "after", "verdict", "test"])
        for fault in drawn(options.seed, options.count):
            verdict, test = judged(fault, checkout, data, failing)
            shown = [" ".join(text.split()) for text in (fault.before, fault.after)]
            table.writerow([fault.file, fault.line, *shown, verdict, test])
            file.flush()
            print(fault.file, fault.line, *shown, verdict, test, sep="  ", flush=True)


if __name__ == "__main__":
    main()
