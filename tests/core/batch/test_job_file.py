"""Job files: what they become, what is refused and how, and that nothing else happens."""

import dataclasses
import datetime
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dask.utils import parse_bytes
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import LPE
from lpe_dask.batch.job import (
    DEFAULTS,
    KEYS,
    ClusterSection,
    DriftSection,
    Job,
    ModelSection,
    NominalSection,
    ScoreSection,
    Source,
)
from lpe_dask.batch.job_file import read_job
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.tasks import Workers

ROOT = Path(__file__).parents[3]
JOBS = sorted((ROOT / "jobs").glob("*.toml"))
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]

#: Jobs, or sections of one, that pages show, with the page.
SHOWN = [
    (page.stem, text)
    for page in PAGES
    for text in re.findall(
        r"^```toml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE
    )
]
DAY = datetime.date(2026, 11, 20)

EXAMPLE = """
[nominal]                          # leave out to score with a model that exists
data = "nominal/*.parquet"         # Parquet or CSV; file, folder, glob; local or any URL
columns = ["src_bytes", "dst_bytes"]
missing = "error"                  # or "drop"
[model]
path = "models/kdd"                # fitted and saved there when absent
refit = false
scale = "standard"                 # any argument of LPE
n_neighbors = 20
[score]
data = "in/{date}/*.parquet"       # or a list
keep = ["id", "ts"]                # columns of the input to carry over; default all
output = "out/{date}"
alpha = 0.05
fdr = 0.1                          # optional
[cluster]                          # leave out for a local cluster sized to the machine
scheduler = "tcp://10.0.0.1:8786"
"""
SCORE = '[score]\ndata = "in"\noutput = "out"\n'
NOMINAL = '[nominal]\ndata = "nominal"\n'
OUTPUT = "[score]\noutput='o'\n"
CLUSTER = f"{SCORE}[cluster]\n"


# What a job file becomes


def test_read_job__takes_the_example(read):
    job = read(EXAMPLE)

    assert job == Job(
        nominal=NominalSection(
            data=(Source("nominal/*.parquet"),), columns=("src_bytes", "dst_bytes")
        ),
        model=ModelSection(
            path="models/kdd", n_neighbors=20, scale="standard", refit=False
        ),
        score=ScoreSection(
            data=(Source("in/2026-11-20/*.parquet"),),
            keep=("id", "ts"),
            output="out/2026-11-20",
            alpha=0.05,
            fdr=0.1,
        ),
        cluster=ClusterSection(scheduler="tcp://10.0.0.1:8786"),
        path=job.path,
        date=DAY,
        dated_output=job.dated_output,
    )
    assert job.path.endswith("job.toml")
    assert (job.dated_output.folder, job.dated_output.day) == ("out", DAY)
    assert job == read(EXAMPLE)


def test_read_job__leaves_out_what_is_not_there(read):
    job = read(SCORE)

    assert job.nominal is None
    assert job.cluster is None
    assert job.model == ModelSection()
    assert job.score == ScoreSection(data=(Source("in"),), output="out")
    assert (job.score.keep, job.score.alpha, job.score.fdr) == (None, None, None)
    assert job.lpe_arguments == {}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_read_job__takes_the_text_of_any_editor(read, mark, ending):
    text = mark + EXAMPLE.replace("\n", ending).encode()

    assert read(text) == read(EXAMPLE)


def test_read_job__takes_arguments_of_the_detector(read):
    text = """[model]
        path = "model"
        n_neighbors = 7
        metric = "mahalanobis"
        metric_params = { VI = [[2.0, 1], [1, 2.0]] }
        scale = "minmax"
        alpha = 0.2
        calibration = "conformal"
        missing = "drop"
        random_state = 5
        """

    job = read(NOMINAL + text)

    given = tomllib.loads(text)["model"]
    assert job.lpe_arguments | {"path": given["path"]} == given
    assert LPE(**job.lpe_arguments).alpha == 0.2


def test_defaults__are_those_of_the_detector():
    assert LPE().get_params() == DEFAULTS | {"anomaly_log_density": None}


@pytest.mark.parametrize("name", ["missing", "alpha"])
@pytest.mark.parametrize("place", ["section", "model", "both"])
def test_read_job__takes_alpha_and_missing_from_either_section(read, name, place):
    key = {"missing": 'missing = "drop"\n', "alpha": "alpha = 0.2\n"}[name]
    value = {"missing": "drop", "alpha": 0.2}[name]
    here, there = (key if place in (p, "both") else "" for p in ("section", "model"))
    nominal, score = (here, "") if name == "missing" else ("", here)

    job = read(f"{NOMINAL}{nominal}[model]\n{there}{SCORE}{score}")

    assert job.lpe_arguments[name] == value
    assert job.model.arguments == ({name: value} if there else {})


GEODESIC = {"metric": "geodesic", "metric_params": {"n_neighbors": 4}}
TABLES = [
    "[model]\nmetric = 'geodesic'\nmetric_params = { n_neighbors = 4 }",
    "[model]\nmetric = 'geodesic'\nmetric_params.n_neighbors = 4",
    "[model]\nmetric = 'geodesic'\n[model.metric_params]\nn_neighbors = 4",
    "model = { metric = 'geodesic', metric_params = { n_neighbors = 4 } }",
]
AMOUNTS = ["'4GiB'", "'4 gib'", "'800MB'", "'1.5GB'", "'0.5Ti'", "'2G'", "'600000kB'"]
TIMES = {"'90s'": 90, "'30min'": 1800, "'1.5 h'": 5400, "45": 45, "0.5": 0.5}

#: Texts, a section of them, and what some of its keys become.
TAKEN = [
    (f"{SCORE}keep = []", "score", {"keep": ()}),
    *((f"{table}\n{SCORE}", "model", GEODESIC) for table in TABLES),
    (f"{CLUSTER}memory_limit=566231040", "cluster", {"memory_limit": Workers.MIN_BYTES}),
    *(
        (f"{CLUSTER}memory_limit={x}", "cluster", {"memory_limit": parse_bytes(x[1:-1])})
        for x in AMOUNTS
    ),
    *(
        (f"{CLUSTER}{key}={text}", "cluster", {key: seconds})
        for key in ("give_up_after", "finish_within")
        for text, seconds in TIMES.items()
    ),
]


@pytest.mark.parametrize(("text", "section", "values"), TAKEN)
def test_read_job__takes(read, text, section, values):
    found = getattr(read(text), section)

    assert {name: getattr(found, name) for name in values} == values


# What is refused, and how


#: A problem of each kind: where it is, and what is said of it.
DAILY = "refit='every 1 day'"
MODEL, SAVED = f"{SCORE}[model]\n", "[model]\npath='m'"
THREADS, DENSITY = f"{CLUSTER}scheduler='threads'\n", "anomaly_log_density"
NO_TOML = " is not TOML in UTF-8"
PROBLEMS = [
    # sections and keys
    ("", "", "there is neither [nominal], rows to fit, nor [score]"),
    (f"{SCORE}[socre]", "[socre]", "'socre' is unknown in a job. Did you mean score?"),
    (f"data = 5\n{SCORE}", "[data]", "'data' is unknown in a job. Known are nominal,"),
    ("score = 5", "[score]", "must be a table of keys. Begin it with the line [score]"),
    ("[[score]]", "[score]", "it must be a table of keys"),
    (f"{SCORE}outptu = 1", "[score] outptu", "Did you mean output? Known are columns,"),
    (f'{SCORE}"a\\nb" = 1', "[score] a b", r"'a\nb' is unknown in [score]"),
    (f"{MODEL}beta = 1", "[model] beta", "'beta' is unknown in [model]"),
    ("[score]\ndata = 'a'", "[score] output", "output is missing, a path"),
    # values
    (f"{OUTPUT}data=5", "[score] data", "data=5 must be a path or a"),
    (f"{OUTPUT}data=[]", "[score] data", "data=[] must be"),
    (f"{OUTPUT}data=['']", "[score] data", "data=[''] must be"),
    (f"{OUTPUT}data=['a', 1]", "[score] data", "data=['a', 1] must"),
    (f"{OUTPUT}data=['a', 'a']", "[score] data", "none twice"),
    (f"{OUTPUT}data='${{ODD}}'", "[score] data", "data='${ODD}' must"),
    ("[score]\ndata='i'\noutput=''", "[score] output", "output='' must be a"),
    (f"{SCORE}keep=['a', 'a']", "[score] keep", "none twice"),
    (f"{SCORE}keep=[true]", "[score] keep", "keep=[True] must be"),
    (f"{SCORE}alpha=1", "[score] alpha", "alpha=1 must be a number between"),
    (f"{SCORE}alpha='0.1'", "[score] alpha", "alpha='0.1' must be"),
    (f"{SCORE}fdr=inf", "[score] fdr", "fdr=inf must be"),
    (f"{SCORE}exclude=[]", "[score] exclude", "at least one"),
    (f"{NOMINAL}columns=[]", "[nominal] columns", "at least one"),
    (f"{NOMINAL}missing='no'", "[nominal] missing", '"error", "drop" or "measure"'),
    (f"{MODEL}refit=1", "[model] refit", "refit=1 must be true, false, "),
    (f"{MODEL}{DENSITY}='f'", f"[model] {DENSITY}", "must be a function, which only LPE"),
    # contradictions
    (NOMINAL, "[nominal]", "the model is not saved. Add [score], or a path to [model]"),
    (f"{NOMINAL}{SCORE}columns=['a']", "[score] columns", "Give columns there"),
    (
        f"{NOMINAL}{SCORE}exclude=['a']",
        "[score] exclude",
        "is said in [nominal]. Give excl",
    ),
    (
        f"{NOMINAL}columns=['a']\nexclude=['b']",
        "[nominal] exclude",
        "what is measured, too",
    ),
    (f"{SCORE}exclude=['a']\n{SAVED}", "[score] exclude", "measure are those of the model"),
    *(
        (f"{NOMINAL}{MODEL}path='m'\nrefit={text}", "[model] refit", f"refit={text} must")
        for text in ("'daily'", "'every 0 days'", "'every 1 week'", "'On drift'", "30")
    ),
    (f"{NOMINAL}{MODEL}{DAILY}", "[model] refit", "replaces a saved model. Add path"),
    (
        f"{NOMINAL}[model]\npath='m'\n{DAILY}",
        "[model] refit",
        "by the rows of [score]. Add it, or give refit=true",
    ),
    (f"{NOMINAL}{MODEL}path='{{date}}'\n{DAILY}", "[model] refit", "each day has its own"),
    (f"{MODEL}path='m'\n{DAILY}", "[model] refit", "there is no [nominal] to fit"),
    (f"{MODEL}refit=true", "[model] refit", "there is no [nominal] to fit"),
    (f"{SCORE}{SAVED}\nscale='minmax'", "[model] scale", "has this. Leave it out, or add"),
    (f"{SCORE}alpha=0.1\n[model]\nalpha=0.2", "[score] alpha", "0.1, but [model] has 0.2"),
    (f"{NOMINAL}{MODEL}refit=true\n[drift]", "[drift]", "each run has a model of its own"),
    (f"{SCORE}[csv]\ndecimal=','\nthousands=','", "[csv] thousands", "decimal point"),
    # ranges of days
    ("[score]\ndata='i'\noutput='{date..date}'", "[score] output", "allowed in data only"),
    (f"{SCORE}keep=['{{date..date}}']", "[score] keep", "allowed in data only"),
    (f"{MODEL}path='{{date..date}}'", "[model] path", "range of days is allowed in data"),
    (f"{CLUSTER}scheduler='{{date..date}}'", "[cluster] scheduler", "allowed in data only"),
    # no job at all
    ("[score", NO_TOML, "Expected ']' at the end of a table declaration (at end of"),
    ("a = 1\n\n[score]\nx =", NO_TOML, "Invalid value (at end of document)"),
    ("a = 1\na = 2", NO_TOML, "Cannot overwrite a value (at"),
    ("a = 1" + "0" * 5000, NO_TOML, "Exceeds the limit"),
    ("a = " + "[" * 9000, NO_TOML, "recursion"),
    (b"a = 1\nb = '\xff'", NO_TOML, "can't decode byte 0xff"),
    # [notify]
    *(
        (f"{SCORE}[notify]\ncommand={value}", "[notify] command", "a list of texts")
        for value in ("[]", "''", "'mail'", "['']", "['mail', '']", "[1]", "true", "{}")
    ),
    (f"{SCORE}[notify]", "[notify] command", "command is missing, a list of texts"),
    (
        f"{SCORE}[notify]\ncommand=['m', '{{sumary}}']",
        "[notify] command",
        "are {summary}",
    ),
    (f"{SCORE}[notify]\ncommand=['{{']", "[notify] command", "for placeholders, {summary"),
    (f"{SCORE}[notify]\ncommand=['m', '{{date..date}}']", "[notify] command", "data only"),
    ("[score]\ndata='{summary}'\noutput='o'", "[score] data", "placeholder {summary}"),
    # [cluster]
    (f"{CLUSTER}workers=0", "[cluster] workers", "at least 1"),
    (f"{CLUSTER}threads=1.0", "[cluster] threads", "threads=1.0 must"),
    (f"{CLUSTER}scheduler='t'", "[cluster] scheduler", 'or "threads"'),
    *(
        (f"{CLUSTER}memory_limit={value}", "[cluster] memory_limit", "of at least 540MiB")
        for value in ("1", "'4 apples'", "''", "true", "'GB'", "'1e999GB'", "'1e30GB'")
    ),
    *(
        (f"{CLUSTER}{key}={value}", f"[cluster] {key}", "a time above 0, as")
        for key in ("give_up_after", "finish_within")
        for value in ("0", "'30 parsecs'", "true")
    ),
    (f"{THREADS}workers=2\nthreads=1", "[cluster] scheduler", "workers, threads would"),
    (f"{THREADS}dashboard=true", "[cluster] scheduler", "dashboard would describe workers"),
    (f"{THREADS}scheduler_file='s'", "[cluster] scheduler_file", "and scheduler_file name"),
]


@pytest.mark.parametrize(("text", "place", "message"), PROBLEMS)
def test_read_job__says_where_and_what_to_do(refusal, text, place, message):
    lines = refusal(text)

    (line,) = [line for line in lines if message in line]
    assert line.startswith(f", {place}: " if place.startswith("[") else f"{place}: ")
    assert line.endswith(".")
    assert len(line) < 500


def test_read_job__tells_several_problems(refusal):
    lines = refusal(
        "[model]\nrefit = 2\nn = 0\n[score]\noutput = '{x}'\nkeep = 1\ndata = 2\n"
        "[cluster]\nworkers = 0\nthreads = 0\n"
    )

    assert [line.partition(":")[0] for line in lines] == [
        ", [score] output",
        ", [model] refit",
        ", [model] n",
        ", [score] data",
        ", [score] keep",
        "",
    ]
    assert lines[-1] == ": there are 2 more such problems."


def test_read_job__tells_of_all_combinations(refusal):
    lines = refusal(
        f"{SCORE}alpha=0.1\n[model]\npath='m'\nrefit=true\nalpha=0.2\nscale='a'"
    )

    places = [line.partition(":")[0] for line in lines]
    assert places == [", [model] refit", ", [model] scale", ", [score] alpha"]


@pytest.mark.parametrize("command", ["'marked'", "['curl', 'marked', 3]"])
def test_read_job__repeats_no_argument_of_a_command(refusal, command):
    [line] = refusal(f"{SCORE}[notify]\ncommand = {command}")
    assert "command must be a list of texts" in line
    assert "marked" not in line


def test_read_job__cuts_what_is_long(refusal):
    long = "x" * 100_000

    lines = refusal(
        f"{SCORE}{long} = 1\nkeep = '{long}'\n[{long}]\n[cluster]\nworkers='{long}'"
    )

    assert len(lines) == 4
    assert all(len(line) < 900 for line in lines)


def test_read_job__of_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"none\.toml cannot be read: .* Give the path"
    ):
        read_job(tmp_path / "none.toml")
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} cannot be read: IsADirectory"):
        read_job(tmp_path)


def test_drift__has_the_defaults_that_it_has_in_python():
    assert DriftSection().model_dump() == dataclasses.asdict(DriftConfig())


# What options of a command stand for


def test_of_options__takes_texts_as_a_job_does():
    given = {"workers": 2, "memory_limit": "4GiB", "give_up_after": "30min"}

    assert ClusterSection.of_options(given) == ClusterSection(
        workers=2, memory_limit=2**32, give_up_after=1800.0
    )
    assert ClusterSection.of_options({}).given == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory_limit": "1MB"}, r"='1MB' must .* example: --memory-limit=\"4GiB\"\.$"),
        ({"give_up_after": "0s"}, "='0s' must be a time above 0"),
        ({"finish_within": "2"}, r"='2' must .* example: --finish-within=\"2h\"\.$"),
        ({"scheduler": "here"}, "='here' must be the address of a scheduler"),
        ({"scheduler_file": "a", "scheduler": "threads"}, " name one each"),
        ({"scheduler_file": "a.json", "workers": 2}, "='a.json' .*, but --workers would"),
    ],
)
def test_of_options__names_the_option(given, message):
    option = f"--{min(given).replace('_', '-')}"
    with pytest.raises(ValueError, match=rf"^{option}.*{message}"):
        ClusterSection.of_options(given)


# Nothing else ever happens


#: Characters, sections, keys and values.
SCRAPS = st.sampled_from(
    [
        *"[]{}=.,'\"#$-+\n\r\t\\0aé",
        *(f"[{name}]\n" for name in (*KEYS, "storage", "storage.s3")),
        *(f"{key} = " for keys in KEYS.values() for key in keys),
        "{date-7d..date}", "'${DATA}/x'", "'${ODD}'", "${", '"""', "2020-01-01", "nan",
        "-1", "1e999", "0x" + "f" * 99, "9223372036854775808", "'4GiB'", "true", "[[",
        "'geodesic'", "'threads'", "{ VI = [[1e308, -1e308], [1e308, 1]] }", "{ w = {} }",
        "'\\u0000'",
    ]
)  # fmt: skip


@st.composite
def mutations(draw):
    """The example with lines or characters dropped, doubled, exchanged or put in."""
    parts = EXAMPLE.splitlines(keepends=True) if draw(st.booleans()) else list(EXAMPLE)
    for _ in range(draw(st.integers(1, 4))):
        i, j = (draw(st.integers(0, len(parts) - 1)) for _ in range(2))
        what = draw(st.sampled_from(["drop", "double", "exchange", "replace", "insert"]))
        if what == "drop":
            parts[i] = ""
        elif what == "double":
            parts.insert(j, parts[i])
        elif what == "exchange":
            parts[i], parts[j] = parts[j], parts[i]
        elif what == "replace":
            parts[i] = draw(SCRAPS)
        else:
            parts.insert(i, draw(SCRAPS))
    return "".join(parts)


@given(mutations())
def test_read_job__of_any_mutation(read, text):
    try:
        job = read(text)
    except (ValueError, OSError) as error:
        message = str(error)
        assert all("job.toml" in line for line in message.split("\n"))
        assert len(message) < 6000
    else:
        assert job == read(text)
        assert isinstance(job, Job)
        LPE(**job.lpe_arguments)


# The jobs that come with the project


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_jobs__can_be_read_and_are_explained(path):
    job = read_job(path, DAY, {"LPE_DATA": "/srv/logs"})

    sections = [section for section in (job.nominal, job.score) if section is not None]
    assert all(
        s.path.startswith("/srv/logs/") for section in sections for s in section.data
    )
    assert f"({path.name})" in (path.parent / "README.md").read_text()


@pytest.mark.parametrize(("page", "text"), SHOWN)
def test_jobs__shown_on_pages_can_be_read(page, text, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(text if "[score]" in text else f"{SCORE}{text}")

    job = read_job(path, DAY, dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "value"))

    sections = set(tomllib.loads(text)) - {"storage"}
    assert [of for of in sections if getattr(job, of) is None] == []


def test_jobs__of_pages_are_found():
    pages = {"job_file", "drift", "refit", "credentials", "watching"}
    assert pages <= {page for page, _ in SHOWN}


def test_import__of_job_files_is_light():
    """A job is refused within a moment: no estimator and no cluster code is loaded."""
    program = (
        "import sys, lpe_dask.batch.job_file\n"
        "print(sorted({'sklearn', 'distributed', 'dask.dataframe'} & set(sys.modules)))\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"
