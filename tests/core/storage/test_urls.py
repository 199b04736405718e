"""URLs: what is shown of them, of text that a terminal would obey, and whose they are."""

import copy
import gc
import json
import logging
import pickle
import socket
import traceback
from functools import partial
from unittest.mock import Mock
from urllib.parse import quote

import dask
import fsspec
import pytest
from dask.base import tokenize
from fsspec.implementations.ftp import FTPFileSystem

from lpe_dask.storage import (
    MASK,
    Folder,
    StoredFile,
    Url,
    child_url,
    filesystem_of,
    filesystems,
    like,
    opening_key,
    options_for,
    printable,
    redact,
    redact_and_hash,
    redact_errors,
    redact_url,
    short_message,
    sibling_url,
    single_line,
    with_options,
)
from lpe_dask.tables import TableError, resolve_path

# The filesystem of a URL, or what is wrong with it


# That of fsspec takes for granted that it is connected.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*FTPFileSystem.__del__:pytest.PytestUnraisableExceptionWarning"
)

KEYS = {"key": "marked-key", "secret": "marked/secret+=", "client_kwargs": {"verify": True}}
PLACE = "s3://bucket/folder"
USES = [filesystem_of, Folder, resolve_path]


@pytest.fixture
def new_connections():
    FTPFileSystem.clear_instance_cache()
    pauses = {"attempts": 2, "first-pause": 0.01, "longest-pause": 0.1}
    with dask.config.set({f"lpe-dask.retries.{name}": of for name, of in pauses.items()}):
        yield
    gc.collect()


@pytest.mark.usefixtures("new_connections")
@pytest.mark.parametrize("use", USES)
def test_filesystem_of__a_server_that_is_down(use, caplog):
    with socket.socket() as closed, caplog.at_level(logging.WARNING):
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConnectionError) as raised:
            use(f"ftp://me:secret@127.0.0.1:{port}/p.parquet")

    said = str(raised.value)
    assert f"ftp://***@127.0.0.1:{port}/p.parquet cannot be opened" in said
    assert "2 attempts" in said
    assert "Check its address, the network" in said
    assert "secret" not in said + caplog.text
    assert f"127.0.0.1:{port}" in caplog.text


@pytest.mark.usefixtures("new_connections")
@pytest.mark.parametrize("use", USES)
def test_filesystem_of__a_server_that_refuses(use, monkeypatch):
    refusal = RuntimeError("530 Login incorrect")  # ftplib's is no OSError either
    monkeypatch.setattr(FTPFileSystem, "_connect", Mock(side_effect=refusal))

    with pytest.raises(
        OSError, match=r"ftp://\*\*\*@there/p cannot be opened: .*530 Login"
    ):
        use("ftp://me:secret@there/p")


def test_filesystem_of__what_is_no_filesystem():
    with pytest.raises(ValueError, match="Protocol not known: nonsense"):
        filesystem_of("nonsense://p.parquet")


def test_filesystem_of__a_path_is_what_fsspec_finds(tmp_path):
    assert filesystem_of(str(tmp_path)) == fsspec.core.url_to_fs(str(tmp_path))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("key", ["id:secret", "id:secr/secret", ":secret"])
def test_filesystem_of__a_bucket_with_a_key_is_refused(use, key):
    with pytest.raises(
        ValueError, match=r"has a key where the name of the bucket"
    ) as raised:
        use(f"s3://{key}@bucket/p.parquet")

    assert "secret" not in str(raised.value)


def test_filesystem_of__other_buckets_are_not():
    pattern = filesystems._KEYS
    arn = "s3://arn:aws:s3:eu-west-1:1:accesspoint/mine/a@b.csv"
    for url in ("s3://bucket/a:b@c.csv", arn, "data/s3://a", "s3://bucket/p.csv"):
        assert not pattern.search(url)


# What is shown


@pytest.mark.parametrize(
    ("url", "shorter"),
    [
        ("http://me:SECRET@host/p.parquet?sig=SECRET", "http://***@host/p.parquet?***"),
        ("https://SECRET@host:8080/p.csv#t=SECRET", "https://***@host:8080/p.csv#***"),
        ("ftp://me:SECR@SECRET@host/out", "ftp://***@host/out"),
        ("sftp://me:SECRET/SECRET@host:22/out", "sftp://***@host:22/out"),
        ("filecache::https://host/p?X=SECRET", "filecache::https://host/p?***"),
        ("s3://id:SECRET@bucket/day", "s3://***@bucket/day"),
        ("abfs://box@a.net/p.csv?sv=1&sig=SECRET", "abfs://box@a.net/p.csv?***"),
        ("HTTPS://host/p?SECRET", "HTTPS://host/p?***"),
    ],
)
def test_redact__shows_no_secret_in_any_sentence(url, shorter):
    for text in ("{}", "no table at {}.", "({}), and", "url='{}', and", '"{}": 1'):
        assert redact(text.format(url)) == text.format(shorter)


@pytest.mark.parametrize(
    "text",
    [
        "data/p?.parquet", "file:///data/p?.parquet", "s3://bucket/p?.parquet",
        "s3://bucket/year=20?6/month=1/*.csv", "tcp://10.0.0.1:8786", "me@host.org",
        "http://host:8080/me@home/p.csv", "s3://bucket/me@home.csv", "at 10:30, a:b",
        "file:///data/day#id=3.csv", "file:///data/run 10:30@site?id=3.csv", "['a:b@c']",
        "s3://bucket/day#id=3.csv", "memory://me:you@there?x=1", "/data/run 10:30@site",
    ],
)  # fmt: skip
def test_redact__leaves_wildcards_and_other_text(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece",
    ["a", "@", "a@", "a:", "a.", "a://", "://", "?", "a?", "?'", "http://a:", "http://a?'"],
)
def test_redact__takes_no_longer_for_texts_of_others(piece):
    """Steps in the square of a million would take a day."""
    for text in (piece * (10**6 // len(piece)), piece * (10**6 // len(piece)) + " @ ://x"):
        redact(text)


def test_redact_and_hash__tells_queries_apart_and_no_passwords():
    one, other = (redact_and_hash(f"http://me:pw@host/p.csv?id={i}") for i in (1, 2))
    assert one != other
    one, other = (redact_and_hash(f"http://host/p.csv?id={i}.") for i in (1, 2))
    assert one != other
    assert redact_and_hash("http://a:b@host/p.csv") == redact_and_hash(
        "http://c@host/p.csv"
    )


def test_printable__terminals_obey_nothing_of_it():
    assert (
        printable("a\x1b]0;x\x07\x9b2J\0\u202e\ud800b\tc\n\u00e9") == "a?]0;x??2J???b c é"
    )


URL = "http://me:{0}@host/p?sig={0}".format("SECRET")  # not in the lines of a traceback


class _OfLibrary(Exception):
    """An error that words its text itself, as those of aiohttp do."""

    def __str__(self):
        return f"403, url={URL!r}"


@pytest.mark.parametrize(
    "error", [ValueError(URL), FileNotFoundError(2, "no file", URL), _OfLibrary()]
)
@pytest.mark.parametrize("way", ["raised", "noted", "caused"])
def test_redact_errors__in_errors_their_notes_and_causes(error, way):
    @redact_errors()
    def function():
        if way == "raised":
            raise error
        if way == "noted":
            new = KeyError("x")
            new.add_note(str(error))
            raise new
        try:
            raise error
        except Exception as cause:
            raise RuntimeError(URL) from cause

    with pytest.raises(Exception) as caught:  # noqa: PT011
        function()
    said = "".join(traceback.format_exception(caught.value))
    assert "SECRET" not in said
    assert "***" in said


def test_redact_errors__other_errors_stay_as_they_are():
    error = ValueError("data/p?.parquet", 3)
    with pytest.raises(ValueError, match="data/p") as caught, redact_errors():
        raise error
    assert caught.value is error
    assert error.args == ("data/p?.parquet", 3)


def test_errors_of_tasks__are_masked_where_they_are_made():
    error = TableError("http://me:SECRET@host/p.csv, line 3: x is no number")
    assert str(pickle.loads(pickle.dumps(error))) == (
        "http://***@host/p.csv, line 3: x is no number"
    )


@pytest.mark.parametrize("text", ["it ends", "it ends.", "it\nends.\n", " it  ends."])
def test_one_line__ends_without_a_full_stop(text):
    assert single_line(ValueError(text)) == "it ends"
    assert short_message(ValueError(text)) == "ValueError: it ends."


# The options of a URL


@pytest.mark.parametrize(
    ("url", "options", "chosen"),
    [
        (PLACE, KEYS, {"s3": KEYS}),
        (PLACE, {"s3": KEYS, "gs": {"token": "t"}}, {"s3": KEYS}),
        ("s3a://bucket/x", {"s3": KEYS}, {"s3a": KEYS}),
        ("https://host/x", {"http": {"block_size": 1}}, {}),
        ("http://host/x", {"https": {"headers": {"a": "b"}}}, {}),
        (
            "http://host/x",
            {"http": {"encoded": True}, "https": {"headers": {"a": "b"}}},
            {"http": {"encoded": True}},
        ),
        (PLACE, {"s3": {"key": "own"}, "s3a": {"key": "x"}}, {"s3": {"key": "own"}}),
        ("s3a://b", {"s3": {"key": "x"}, "s3a": {"key": "own"}}, {"s3a": {"key": "own"}}),
        ("s3", {"s3": KEYS}, {}),
        (PLACE, {"anon": True, "s3": {"anon": False}}, {"s3": {"anon": False}}),
        ("zip://a.csv::s3://bucket/x.zip", KEYS, {"s3": KEYS}),
        ("simplecache::s3://bucket/x.csv", KEYS, {"s3": KEYS}),
        ("https://host/x", {"s3": KEYS}, {}),
        ("file:///tmp/x", KEYS, {}),
        ("memory://x", KEYS, {}),
        ("/tmp/s3::x", KEYS, {}),
    ],
)
def test_options_for__the_protocols_of_a_url(url, options, chosen):
    assert options_for(Url(url, options)) == chosen
    assert options_for(url) == {}


def test_filesystem_of__opens_with_the_options():
    url = Url(PLACE, {"s3": KEYS})
    assert filesystem_of(url)[0].storage_options == KEYS
    assert filesystem_of(PLACE)[0].storage_options == {}
    folder = Folder(url)
    for child in (folder.full_url("x"), child_url(folder.url, "x"), like(url, f"{url}/x")):
        assert (child, child.options) == (f"{PLACE}/x", {"s3": KEYS})


def test_with_options__leaves_paths_of_this_machine_alone(tmp_path):
    assert type(with_options(tmp_path, KEYS)) is str
    assert type(with_options(PLACE, {})) is str
    assert type(with_options(PLACE, KEYS)) is Url
    assert like(PLACE, "x") == "x"


@pytest.mark.parametrize(
    ("folder", "text", "is_same"),
    [
        (PLACE, "s3://other/model", True),
        (PLACE, "https://host/model", False),
        (PLACE, "/model", False),
        ("https://host/out", "https://host/model", True),
        ("https://host/out", "https://host.other/model", False),
        ("https://host/out", "https://host@other/model", False),
        ("simplecache::https://host/out", "simplecache::https://other/model", False),
        ("sftp://host/out", "https://host/model", False),
        ("abfs://box@mine.net/out", "abfs://box@other.net/model", False),
        (PLACE, "https::s3://other/model", False),
        (PLACE, "reference::s3://other/model", False),
        ("simplecache::s3://b/out", "simplecache::s3://b/model", True),
        ("out", "s3://bucket/model", True),
        ("file:///out", "https://host/model", True),
        ("out", "model", False),
    ],
)
def test_sibling_url__sends_keys_to_no_other_server(folder, text, is_same):
    assert isinstance(sibling_url(Url(folder, KEYS), text), Url) == is_same


# No option shows


def test_url__is_its_text():
    url, file = Url(PLACE, KEYS), StoredFile(Url(PLACE, KEYS), 1, "")
    assert url == PLACE
    assert hash(url) == hash(PLACE)
    assert tokenize(url, file) == tokenize(PLACE, StoredFile(PLACE, 1, ""))
    texts = repr(url), str(url), f"{url}/x", json.dumps({url: url}), repr(file), f"{file}"
    assert "marked" not in "".join(texts)
    assert opening_key(url) != opening_key(PLACE)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_url__is_copied_with_its_options(copied):
    url = copied(Url(PLACE, KEYS))
    url = pickle.loads(url) if isinstance(url, bytes) else url
    assert (type(url), url, url.options) == (Url, PLACE, KEYS)


def test_redact__secrets_of_this_process():
    pickle.loads(pickle.dumps(Url(PLACE, KEYS)))  # as in a process of a worker
    shown = redact("keys marked-key and marked/secret+=, signed marked%2Fsecret%2B%3D")
    assert shown == "keys *** and ***, signed ***"
    # What files name must not depend on who writes it.
    for shorten in (redact_url, redact_and_hash):
        assert shorten("s3://marked-key/x") == "s3://marked-key/x"
    assert redact_url("https://me:word@host/x") == "https://***@host/x"


@pytest.mark.parametrize("write", [str, repr, json.dumps, quote, partial(quote, safe="")])
def test_redact__secrets_as_other_texts_write_them(write):
    secret = "mar'ked/\"\\\u00e9+"
    Url(PLACE, {"password": secret})
    assert redact(f"[{write(secret)}]").strip("[]'\"") == MASK
