"""The section [storage] of jobs: what it opens, what is refused, and that nothing shows."""

import datetime

import pytest

from lpe_dask.batch.job_file import read_job
from lpe_dask.storage import Url

JOB = """
[nominal]
data = ["s3://bucket/nominal", "nominal.parquet"]
without_rows = "s3://bucket/list.csv"
[model]
path = "s3://bucket/model"
[score]
data = "${PLACE}/in/{date-1d..date}"
output = "${PLACE}/out/{date}"
"""
DAY = datetime.date(2026, 11, 20)
ENVIRONMENT = {
    "PLACE": "s3://bucket", "KEY": "marked-{key}", "WORD": "marked-word",
    "BROKEN": "marked\n",
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Return the job with a section."""
    file = tmp_path / "job.toml"

    def read(section, mode=0o600):
        file.write_text(f"{JOB}{section}")
        file.chmod(mode)
        return read_job(file, DAY, ENVIRONMENT)

    return read


def test_read_job__all_urls_open_with_the_options(read):
    job = read('[storage]\nanon = false\n[storage.s3]\nkey = "${KEY}"\nsecret = "a${WORD}"')
    other_day = job.dated_output.on(DAY - datetime.timedelta(days=3))
    urls = [
        job.nominal.data[0].path, job.nominal.without_rows, job.model.path,
        *(source.path for source in job.score.data), job.score.output, other_day,
        job.dated_output.folder,
    ]  # fmt: skip
    assert other_day == "s3://bucket/out/2026-11-17"
    for url in urls:
        assert url.options == {
            "anon": False, "s3": {"key": "marked-{key}", "secret": "amarked-word"}
        }  # fmt: skip
    assert type(job.nominal.data[1].path) is str
    assert "marked" not in repr(job) + job.model_dump_json(exclude={"dated_output"})


def test_read_job__without_the_section(read):
    assert not isinstance(read("").score.output, Url)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "[storage]\nkey = 'marked'\nsecret = '${ODD}'",
            "secret: the environment variable",
        ),
        ("[storage.s3]\nsecret = '${ODD}'", r"s3\.secret: the environment variable ODD"),
        ("[storage.s4]\nkey = 'marked'", "s4: it is a table, but neither a protocol"),
        ("[storage]\nkey = ['marked']", "key: the value is a list"),
        ("[storage]\nkey = '${BROKEN}'", "key: the text begins or ends with white space"),
        ("[storage]\ns3 = 'marked'", "s3: it is a protocol: give a table"),
        ("[storage]\nkey = 2026-11-20", "key: the value is a date"),
        ("[[storage]]\nkey = 'marked'", "it must be a table of keys"),
        (
            "[storages]\nkey = 'marked'",
            r"'storages' is unknown in a job. Did you mean",
        ),
    ],
)
def test_read_job__refuses(read, section, message):
    with pytest.raises(ValueError, match=message) as raised:
        read(section)
    assert "marked" not in str(raised.value)


@pytest.mark.parametrize(
    ("section", "mode", "warns"),
    [
        ("[storage]\nkey = 'marked-key'", 0o644, True),
        ("[storage.s3]\nkey = 'marked-key'", 0o640, True),
        ("[storage]\nkey = 'marked-key'", 0o600, False),
        ("[storage]\nkey = '${KEY}'", 0o644, False),
        ("[storage.https]\nheaders = {A = 'Bearer ${WORD}'}", 0o644, False),
        ("[storage.s3]\nconfig_kwargs = {retries = {mode = 'standard'}}", 0o644, False),
        ("[storage]\nanon = true\nendpoint_url = 'http://host'", 0o644, False),
    ],
)
def test_read_job__keys_that_others_can_read(read, section, mode, warns, caplog):
    read(section, mode)
    read(section, mode)
    warned = [text for text in caplog.messages if "can be read by other users" in text]
    assert len(warned) == warns
    assert "marked" not in caplog.text
