"""The documents run: examples print what they say, and commands are all started."""

import datetime
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from lpe_dask.cli.commands import cli

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / name / "README.md" for name in ("jobs", "cluster")]

#: Pages whose commands are run by tests of their own: of one recipe each, and the overview,
#: which has what these tests do first.
RECIPES = ["index"] + [
    path.name
    for path in sorted((ROOT / "cluster").iterdir())
    if path.is_dir() and not path.name.startswith("_")
]
RECIPE_PAGES = [ROOT / "docs" / "howto" / f"{name}.md" for name in RECIPES]
PAGES = [
    page
    for page in (README, ROOT / "CONTRIBUTING.md", *DOCS, *OTHERS)
    if page not in RECIPE_PAGES
]

JOBS = sorted((ROOT / "jobs").glob("*.toml"))

#: What blocks may be, beside directives: a command hides in no other.
LANGUAGES = {"console", "python", "text", "toml"}

#: Directives that pages may have. Code is in none, but for that of other libraries: it
#: needs them, and tests/benchmarks/test_by_hand.py runs it where they are.
DIRECTIVES = {"eval-rst", "image", "include", "literalinclude", "toctree"}
OF_OTHERS = {"coming_from.md": "{code-block} python"}

#: Commands that take long, need a network or leave this folder -> what starts them: a make
#: target, a test, or a script of the project that is run for each change.
ELSEWHERE = {
    "pip install .": "make test",
    'pip install ".[dashboard]"': "make test",
    'pip install ".[ml]"': "make test",
    'pip install ".[plot]"': "make test",
    'pip install ".[plot,s3]"': "make test",
    "lpe-dask fit NOMINAL --model MODEL --check-calibration": (
        "tests/core/model/test_calibration_check.py"
    ),
    "lpe-dask --version": "tests/tools/test_package.py",
    "lpe-dask demo": "tests/core/cli/test_demo.py",
    "lpe-dask compile": "tests/core/cli/test_commands.py",
    "python -m build": "tests/tools/test_package.py",
    "python -m lpe_dask": "tests/core/cli/test_commands.py",
    "PYTHONPATH=tests python -m benchmarks.categories": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.coming_from": (
        "tests/benchmarks/test_by_hand.py"
    ),
    "PYTHONPATH=tests python -m benchmarks.confirmed": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.first_minute": (
        "tests/benchmarks/test_by_hand.py"
    ),
    "PYTHONPATH=tests python -m benchmarks.forest": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.gaps": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.scales": "tests/benchmarks/test_scales.py",
    "PYTHONPATH=tests python -m benchmarks.service": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.sites": "tests/benchmarks/test_by_hand.py",
    "PYTHONPATH=tests python -m benchmarks.forecasts --folder FOLDER": (
        "tests/benchmarks/test_by_hand.py"
    ),
    ".ci/run": ".ci/run",
    ".venv/bin/pre-commit install": "tests/core/test_readme.py",
    ".venv/bin/python tests/saved_models.py": "tests/core/model/test_saved_models.py",
    "lpe-dask schema > job.schema.json": "tests/core/batch/test_json_schema.py",
    "lpe-dask inspect benign": "tests/core/batch/test_inspection.py",
    "lpe-dask run job.toml --date 2026-11-01..2026-11-10": (
        "tests/core/cli/test_backfill.py"
    ),
    "lpe-dask run jobs/nightly-scoring.toml --date 2026-11-01..2026-11-10 --keep-going": (
        "tests/core/cli/test_backfill.py"
    ),
}

#: How a command begins, where it stands within a sentence.
_PROGRAMS = r"make|lpe-dask|pip|\.ci/|\.venv/|(?:\w+=\S+ )*python"


def blocks(page, language):
    fenced = rf"^```{language}\n(.*?)^```$"
    return re.findall(fenced, page.read_text(), re.MULTILINE | re.DOTALL)


def console_commands(page):
    """The commands of a document's console blocks, in order, without comments."""
    lines = "".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    commands = [re.sub(r"\s+#.*", "", line[2:]) for line in lines if line.startswith("$ ")]
    return [" ".join(command.split()) for command in commands]


def named_commands(page):
    """The commands that a document names within sentences and comments."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", text)
    spans += re.findall(r"^#   (?:\w+=\S+ )?(lpe-dask .*)$", text, re.MULTILINE)
    commands = [" ".join(span.split()) for span in spans]
    return [c for c in commands if re.match(rf"(?:{_PROGRAMS})\b.* |\.ci/", c)]


def is_made(command):
    """Whether it is a target of the Makefile."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return command.startswith("make ") and command.split()[1] in targets


def to_run(page):
    return [c for c in console_commands(page) if c not in ELSEWHERE and not is_made(c)]


RUNNABLE = [page for page in PAGES if to_run(page)]
STARTED = {c.split()[1] for page in PAGES for c in console_commands(page) if " " in c}


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.full
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=name_of
)
def test_python_blocks__print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where their pictures go
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    names = {}

    for number, block in enumerate(blocks(page, "python")):
        test = parser.get_doctest(block, names, f"{page.name} {number}", str(page), 0)
        assert test.examples, f"block {number} has no line that begins with >>>"
        runner.run(test, clear_globs=False)
        names = test.globs

    assert runner.tries > 3
    assert runner.failures == 0


@pytest.mark.parametrize("page", [*PAGES, *RECIPE_PAGES], ids=name_of)
def test_links__lead_to_files_and_headings_of_the_project(page):
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text())

    missing = []
    for path, anchor in links:
        target = source_of((page.parent / path).resolve()) if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []


def source_of(target):
    """The script of an example, whose page `make docs` makes; any other file is itself."""
    if target.parent != ROOT / "docs" / "gallery":
        return target
    name = "GALLERY_HEADER.rst" if target.stem == "index" else f"{target.stem}.py"
    return ROOT / "docs" / "gallery_examples" / name


def anchors_of(page):
    """The anchors of headings, as pages of Markdown are shown with."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", [*PAGES, *RECIPE_PAGES], ids=name_of)
def test_blocks__say_what_they_are(page):
    text = page.read_text()
    fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)

    others = set(fences[::2]) - LANGUAGES - {OF_OTHERS.get(page.name)}
    directives = {re.match(r"(?:\{([\w-]+)\})?", fence)[1] for fence in others}
    assert directives <= DIRECTIVES
    assert set(fences[1::2]) <= {""}
    assert not re.search(rf"^ {{4,}}(?:{_PROGRAMS})\b", prose, re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *JOBS], ids=name_of)
def test_commands__are_known_and_started(page):
    """Those in sentences leave out arguments: their subcommand is started in a block."""
    unknown = []
    for command in [*console_commands(page), *named_commands(page)]:
        if command in ELSEWHERE or is_made(command) or command in to_run(page):
            continue
        program, subcommand, *arguments = shlex.split(command)
        if program != "lpe-dask" or subcommand not in STARTED & set(cli.commands):
            unknown.append(command)
            continue
        known = {name for option in cli.commands[subcommand].params for name in option.opts}
        given = {argument for argument in arguments if argument.startswith("--")}
        unknown += [f"{command}: {name}" for name in given - known - {"--help"}]

    assert unknown == []


@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_recipes__have_a_test_and_are_listed(recipe):
    overview = RECIPE_PAGES[0].read_text()
    files = (ROOT / "cluster" / "README.md").read_text()

    assert (ROOT / "tests" / "tools" / f"test_recipes_{recipe}.py").is_file()
    assert f"]({recipe}.md)" in overview
    assert f"`{recipe}/`" in files
    assert f"](../docs/howto/{recipe}.md)" in files


@pytest.mark.parametrize("command", ELSEWHERE)
def test_elsewhere__names_what_there_is(command):
    starter = ELSEWHERE[command]

    assert is_made(starter) or (ROOT / starter).is_file()
    assert any(command in console_commands(p) + named_commands(p) for p in PAGES)


@pytest.mark.full
@pytest.mark.cluster
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_console_blocks__run_in_one_process(page, tmp_path, monkeypatch, cluster):
    """In one new folder, one after another, on workers that are there already."""
    monkeypatch.chdir(tmp_path)
    for line in prepared_script(page, tmp_path, cluster).splitlines():
        program, *arguments = shlex.split(line)
        if program == "export":
            monkeypatch.setenv(*arguments[0].split("=", 1))
            continue
        options = {name for p in cli.commands[arguments[0]].params for name in p.opts}
        if "--scheduler" in options and "--scheduler" not in arguments:
            arguments += ["--scheduler", cluster.scheduler_address]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, (line, done.output, done.exception)

    assert_scored(tmp_path)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_console_blocks__run_as_they_stand(page, tmp_path, cluster):
    """As one script, but for names of places."""
    script = prepared_script(page, tmp_path, cluster)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-eux", "-c", script], cwd=tmp_path, env=os.environ | {"PATH": path},
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert_scored(tmp_path)


def prepared_script(page, folder, cluster):
    """Return the commands of a page for a folder with what they read."""
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    write_logs(folder / "logs")
    script = "\n".join(to_run(page))
    script = script.replace("/srv/logs", str(folder / "logs"))
    return script.replace("tcp://10.0.0.1:8786", cluster.scheduler_address)


def assert_scored(folder):
    scored = list(folder.rglob("_summary.json"))
    assert scored
    assert all("p_value" in pd.read_parquet(path.parent).columns for path in scored)


def write_logs(folder):
    """Write logs as the ready jobs expect them, for their day and for today."""
    text = (ROOT / "jobs" / "first-fit.toml").read_text()
    columns = re.findall(r'^    "(\w+)",$', text, re.MULTILINE)
    rng = np.random.default_rng(0)
    today = datetime.datetime.now(datetime.UTC).astimezone().date()
    for place in ("nominal", "in/2026-11-20", f"in/{today}"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame(rng.standard_normal((200, len(columns))), columns=columns)
        table = table.assign(protocol_type="tcp", service="http", flag="SF")
        table.to_parquet(folder / place / "a.parquet")


def test_pre_commit__can_be_installed(tmp_path):
    shutil.copy(ROOT / ".pre-commit-config.yaml", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    program = Path(sys.executable).with_name("pre-commit")

    subprocess.run([program, "install"], cwd=tmp_path, check=True, capture_output=True)

    assert (tmp_path / ".git" / "hooks" / "pre-commit").exists()
