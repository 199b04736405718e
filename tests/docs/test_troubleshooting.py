"""The page about symptoms quotes messages that the package has, and explains every line."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lpe_dask"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
LINES = PAGE.partition("\n## What each log line means\n")[2]

#: What stands for a value, in templates of the package.
VALUE = "\0"

#: Lines whose text is made elsewhere, by file and expression -> how the page's line begins.
MADE_ELSEWHERE = {
    "cli/backfill.py ''": None,  # for machines only: nothing to do
    "cli/backfill.py '\\n'.join(self._lines())": None,  # the result of a range of days
    "batch/drift_log.py fork_warning": "this run forks its series",
    "batch/findings.py doubt": "fdr=",
    "batch/refit.py section['text']": "the new model was rejected",
    "batch/scoring_plan.py Fitted.FITTED_ROWS_WARNING": "some of these rows were fitted",
    "cli/cluster.py self.reason": "running in this process",
    "cli/commands.py list_text(confirm)": None,  # a result, which says what to do with it
    "cli/commands.py patterns_note(found)": None,  # what the table above it leaves out
    "cli/commands.py summary_lines(summary, job.place)": None,  # the result of a run
    "cli/commands.py ''": None,  # for machines only: run started
    "cli/messages.py sanitize(text)": None,  # `notice`, whose calls are here
    "cli/outcome.py ''.join(traceback.format_exception(error)).rstrip()": None,  # --debug
    "cli/outcome.py failure.text": None,  # an error: exit codes
    "cli/progress.py describe(computation, seconds)": "scored",
    "model/audit.py certificate": "with probability 1 - ",
    "model/calibration_warnings.py text": "no row can be flagged",
    "model/detector.py fitted.FITTED_ROWS_WARNING": "some of these rows were fitted",
    "tasks/notices.py text": "compiling ",  # `compiler.announce`
}

#: The page has at least this share of the fixed characters of a text, so that ``...:``
#: stands for no other line.
LEAST_SHARE = 0.3

LEVELS = {"debug", "info", "warning", "error"}


def template(node):
    """The text of an expression, with VALUE for what is filled in; None if it has none."""
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("%%", "%")
        case ast.JoinedStr(values=values):
            return "".join(
                v.value if isinstance(v, ast.Constant) else VALUE for v in values
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (template(left) or VALUE) + (template(right) or VALUE)
    return None


def as_line(text):
    """A template in one line."""
    return re.sub(r"%[.\d]*[a-z]", VALUE, " ".join(text.split()))


def trees():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def logged(call):
    """The level and the text of a call that shows a line, and its values; else None."""
    level, arguments = None, call.args
    match call.func:
        case ast.Attribute(value=ast.Name(id="logger"), attr=name) if name in LEVELS:
            level = name
        case ast.Attribute(value=ast.Name(id="logger"), attr="log"):
            level, arguments = "any", arguments[1:]
        case ast.Attribute(value=ast.Name(id="warnings"), attr="warn"):
            level = "warning"
        case ast.Attribute(value=ast.Name(id="compiler"), attr="announce"):
            level = "warning"
        case ast.Name(id="notice"):
            given = {k.arg: ast.unparse(k.value) for k in call.keywords}
            level = given.get("level", "logging.INFO").rpartition(".")[2].lower()
    return None if level is None else (level, arguments[0], arguments[1:])


def log_calls():
    """Yield each line of the package: its file, level, template and expression."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or (found := logged(node)) is None:
                continue
            level, text, values = found
            if template(text) == "%s":  # of one value, which is the text
                text = values[0]
            made = template(text)
            yield path, level, made and as_line(made), ast.unparse(text)


CALLS = list(log_calls())

#: All texts of the package.
TEXTS = [
    as_line(text)
    for _, tree in trees()
    for node in ast.walk(tree)
    if (text := template(node))
]


def explained():
    """The lines of the tables, and their levels."""
    return re.findall(r"^\| `(.+?)` \| (\w+) \|", LINES, re.MULTILINE)


def quoted():
    """Messages of blocks of text, in which they are wrapped."""
    blocks = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    messages = [message for block in blocks for message in block.strip().split("\n\n")]
    return [" ".join(message.split()) for message in messages]


def is_of(line, text):
    """Whether a line, with ... for anything, is a part of a template."""
    parts = [re.escape(part) for part in line.split("...")]
    return re.search(".*".join(parts), text) is not None


@pytest.mark.parametrize("line", [line for line, _ in explained()] + quoted())
def test_messages__of_the_page_are_in_the_package(line):
    assert any(is_of(line, text) for text in TEXTS)


@pytest.mark.parametrize(
    ("path", "level", "text", "expression"),
    CALLS,
    ids=[f"{c[0]} {c[3][:40]}" for c in CALLS],
)
def test_lines__of_the_package_are_on_the_page(path, level, text, expression):
    if not text:
        begins = MADE_ELSEWHERE[f"{path} {expression}"]
        assert begins is None or any(line.startswith(begins) for line, _ in explained())
        return
    n_fixed = len(text.replace(VALUE, ""))
    matching = {
        of
        for line, of in explained()
        if is_of(line, text) and len(line.replace("...", "")) >= LEAST_SHARE * n_fixed
    }
    assert level in matching


def test_lines__of_others_are_still_logged():
    logs = {f"{path} {expression}" for path, _, text, expression in CALLS if not text}

    assert logs == set(MADE_ELSEWHERE)


def test_page__answers_each_symptom_that_it_lists():
    listed = PAGE.partition("\n## ")[0]
    anchors = re.findall(r"\]\(#([\w-]+)\)", listed)
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)

    assert anchors == [
        re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings
    ]
