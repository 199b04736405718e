"""The JSON Schema of job files: it allows what is read, and the page and the file agree."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.json_schema import job_schema
from lpe_dask.cli.commands import cli

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "schemas" / "job.json"
PAGE = ROOT / "docs" / "reference" / "job_file.md"
JOBS = [*(ROOT / "jobs").glob("*.toml"), *(ROOT / "cluster").glob("**/*.toml")]

SCHEMA = job_schema()
SECTIONS = {
    name: section
    for name, section in SCHEMA["properties"].items()
    if "properties" in section
}
KEYS = [(name, key) for name, section in SECTIONS.items() for key in section["properties"]]

SCORE = '[score]\ndata = "in.parquet"\noutput = "out"\n'


def problems(text):
    validator = jsonschema.Draft7Validator(SCHEMA)
    return [of.message for of in validator.iter_errors(tomllib.loads(text))]


def test_schema__is_one_and_describes_each_key():
    jsonschema.Draft7Validator.check_schema(SCHEMA)

    assert all(SECTIONS[name]["properties"][key]["description"] for name, key in KEYS)
    assert "None" not in json.dumps(SCHEMA)


def test_command__prints_the_published_file():
    result = CliRunner().invoke(cli, ["schema"])

    assert result.exit_code == 0
    assert result.stdout == PUBLISHED.read_text()
    assert json.loads(result.stdout) == SCHEMA


@pytest.mark.parametrize("path", JOBS, ids=lambda path: str(path.relative_to(ROOT)))
def test_ready_jobs__are_valid(path):
    assert problems(path.read_text()) == []


def test_jobs_of_the_page__are_valid():
    jobs = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

    assert jobs
    for job in jobs:
        more = "" if "[score]" in job else SCORE
        assert problems(job + more) == []


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_examples__are_valid(section, key):
    of = SECTIONS[section]["properties"][key]

    for example in of.get("examples", []):
        jsonschema.validate(example, of)


@pytest.mark.parametrize(
    "text",
    [
        '[score]\ndata = ["a.csv", "b.csv"]\noutput = "out"\nkeep = []\nfdr = 0.1',
        f'{SCORE}rows = "${{ROWS}}"\nformat = "csv"',
        f"{SCORE}columns = [1, 2]",
        f"{SCORE}[cluster]\nworkers = 2\nmemory_limit = 1000000000\ngive_up_after = 90",
        f'{SCORE}[cluster]\nmemory_limit = "2GiB"\ngive_up_after = "30min"',
        f'{SCORE}[cluster]\nscheduler = "${{SCHEDULER}}"',
        f'{SCORE}[cluster]\nscheduler = "threads"',
        f'{SCORE}[csv]\nseparator = "tab"\nquote = ""\nna_values = -200\nskip_rows = 2',
        f'{SCORE}[csv]\nseparator = ", "\nthousands = " "\nna_values = [-200, "?"]',
        f'{SCORE}[csv]\nseparator = "\\\\t"\nthousands = "space"\nquote = "\\""',
        f'{SCORE}[csv]\nseparator = "${{MARK}}"\nthousands = "\u202f"',
        f'{SCORE}[csv]\nskip_rows = [1, 3]\nnames = ["a"]\nheader = false',
        f"{SCORE}[drift]\ntolerance = 0\nshift = 0.1",
        f'{SCORE}[notify]\ncommand = ["tell", "{{summary}}"]',
        f'{SCORE}[storage]\nkey = "k"\n[storage.s3]\nanon = true',
        f'{SCORE}[model]\nby = "site"\nradius = 1\ngraph = "radius"\nrandom_state = 0',
        f'{SCORE}[model]\ncategorical = "auto"\nmetric_params = {{ w = [1, 0.5] }}',
        f'{SCORE}[model]\ncategorical = ["a", 1]\nown = ["scale"]\nscale = "standard"',
        f'{SCORE}[nominal]\ndata = "n"\n[model]\npath = "m"\nrefit = "every 1 day"',
        '[nominal]\ndata = "n"\nmissing = "drop"\n[model]\npath = "m"\nrefit = true',
    ],
)
def test_what_is_read__is_valid(text, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(text)
    given = {"ROWS": "flagged", "SCHEDULER": "tcp://10.0.0.1:1", "MARK": ";"}
    read_job(path, environment=given)

    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SCORE}alfa = 0.1", "'alfa' was unexpected"),
        (f"{SCORE}[modell]", "'modell' was unexpected"),
        (f"{SCORE}[model]\nn_neighbours = 3", "'n_neighbours' was unexpected"),
        (f'{SCORE}[model]\nn_neighbors = "3"', "'3' is not of type 'integer'"),
        (f'{SCORE}[model]\ngraph = "net"', "'net' is not valid"),
        (f'{SCORE}alpha = "0.1"', "'0.1' is not of type 'number'"),
        (f"{SCORE}fdr = 1.5", "1.5 is greater than or equal to the maximum of 1"),
        (f'{SCORE}report = "no"', "'no' is not of type 'boolean'"),
        (f'{SCORE}keep = ["a", "a"]', "has non-unique elements"),
        (f'{SCORE}rows = "some"', "'some' is not valid"),
        ('[score]\ndata = "in.parquet"', "'output' is a required property"),
        ('[score]\ndata = []\noutput = "o"', "[] is not valid"),
        (f"{SCORE}[cluster]\nworkers = 0", "0 is less than the minimum of 1"),
        (f'{SCORE}[cluster]\nscheduler = "here"', "'here' does not match"),
        (f'{SCORE}[notify]\ncommand = "tell"', "'tell' is not of type 'array'"),
        (f"{SCORE}[csv]\nskip_rows = -1", "-1 is not valid"),
        (f'{SCORE}[csv]\nnames = ["a", "a"]', "has non-unique elements"),
        (f'{SCORE}[csv]\nthousands = "x"', "'x' does not match"),
        (f'{SCORE}[csv]\nseparator = "ab"', "'ab' does not match"),
        (f'{SCORE}[csv]\nquote = "é"', "'é' does not match"),
        ('[model]\npath = "m"', "is not valid under any of the given schemas"),
    ],
)
def test_mistakes__are_reported(text, problem):
    assert any(problem in of for of in problems(text))


# The page


def rows_of_page():
    """Return the rows of all tables of keys, by section and key."""
    sections = re.split(r"^### (\w+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        for row in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE):
            cells = re.split(r"(?<!\\)\|", row[1])
            yield (name, row[0]), tuple(cell.strip() for cell in cells)


def kind_of(schema):
    """Return what the page says of the values of a key."""
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [kind_of(of) for of in schema["anyOf"] if set(of) != {"pattern"}]
        return " or ".join(dict.fromkeys(kinds))
    words = {
        "string": "text", "integer": "whole number", "number": "number",
        "boolean": "true or false", "object": "table", "array": "list",
    }  # fmt: skip
    types = schema["type"]
    return " or ".join(words[of] for of in ([types] if isinstance(types, str) else types))


def test_page__has_each_key_with_its_values_and_default():
    expected = {}
    for name, key in KEYS:
        of = SECTIONS[name]["properties"][key]
        default = f"`{json.dumps(of['default'])}`" if "default" in of else ""
        is_required = key in SECTIONS[name].get("required", [])
        expected[name, key] = (kind_of(of), "required" if is_required else default)

    found = dict(rows_of_page())

    assert {names: row[:2] for names, row in found.items()} == expected
    assert all(meaning.strip() for _, _, meaning in found.values())
    assert "### storage\n" in PAGE.read_text()
