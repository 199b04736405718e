"""Options of storages: what they may be, which URLs they are for, and that none shows."""

import copy
import json
import pickle

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from dask.base import tokenize

from lpe_dask.storage import (
    Folder,
    RefusedError,
    StoredFile,
    Url,
    checked_options,
    child_url,
    filesystem_of,
    like,
    opening_key,
    redact,
    redact_and_hash,
    retried,
    secrets_of,
    sibling_url,
    with_options,
)
from lpe_dask.storage.urls import options_for

KEYS = {"key": "marked-key", "secret": "marked/secret+=", "client_kwargs": {"verify": True}}
PLACE = "s3://bucket/folder"


# What they may be


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("marked-key", TypeError, "must be a dict, and is a str"),
        ([("key", "marked-key")], TypeError, "must be a dict, and is a list"),
        ({1: "marked-key"}, ValueError, "the name of an option must be a text"),
        ({"s3": {1: "marked-key"}}, ValueError, r"s3\.1: the name of an option"),
        ({"key": ["marked-key"]}, ValueError, "key: the value is a list. It must be"),
        ({"key": None}, ValueError, "key: the value is a NoneType"),
        ({"s3": {"key": b"marked-key"}}, ValueError, r"s3\.key: the value is a bytes"),
        ({"client_kwargs": {"a": {"b": {1}}}}, ValueError, r"client_kwargs\.a\.b: the"),
        ({"s4": {"key": "marked-key"}}, ValueError, "s4: it is a table, but neither"),
        ({"htttp": {"key": "marked-key"}}, ValueError, "Did you mean http"),
    ],
)
def test_checked_options__refuses(given, kind, message):
    with pytest.raises(kind, match=message) as raised:
        checked_options(given)
    assert "marked" not in str(raised.value)


def test_checked_options__is_a_copy():
    given = copy.deepcopy(KEYS)
    checked = checked_options(given)
    given["client_kwargs"]["verify"] = False
    assert checked == KEYS
    assert checked_options(None) == {}


def test_secrets_of__all_texts_but_harmless_ones():
    options = {
        "s3": {"key": "A" * 20, "endpoint_url": "http://host:9", "token": "short"},
        "gs": {"token": {"private_key": "-----BEGIN\nline-1\nline-2\n", "number": 10**9}},
        "anon": False, "region_name": "eu-west-1", "profile": "default",
    }  # fmt: skip
    assert [*secrets_of(options)] == ["A" * 20, "-----BEGIN", "line-1", "line-2"]


# Which URLs they are for


@pytest.mark.parametrize(
    ("url", "options", "chosen"),
    [
        (PLACE, KEYS, {"s3": KEYS}),
        (PLACE, {"s3": KEYS, "gs": {"token": "t"}}, {"s3": KEYS}),
        ("s3a://bucket/x", {"s3": KEYS}, {"s3a": KEYS}),
        ("https://host/x", {"http": {"block_size": 1}}, {"https": {"block_size": 1}}),
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
    ],
)
def test_recorded_url__sends_keys_to_no_other_server(folder, text, is_same):
    assert isinstance(sibling_url(Url(folder, KEYS), text), Url) == is_same


# None shows


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
    # What tells inputs apart must not depend on who looks.
    assert redact_and_hash("s3://marked-key/x") == "s3://marked-key/x"


# Wrong ones


def answer(status, code):
    response = {
        "Error": {"Code": code, "Message": "Not marked-key."},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "GetObject")


@pytest.mark.parametrize(
    "cause",
    [answer(403, "403"), answer(401, "?"), answer(400, "ExpiredToken"), answer(400, "400")],
)
def test_retried__a_storage_that_refuses(cause, caplog):
    @retried
    def read(url):
        calls.append(url)
        raise OSError("Not marked-key.") from cause

    calls, outer = [], retried(lambda url: read(url))
    with pytest.raises(RefusedError) as raised:
        outer(Url(PLACE, KEYS))

    said = str(raised.value)
    assert said.startswith(f"access to {PLACE} is refused: OSError: Not")
    assert "Check the keys (storage_options=, or the section [storage] of a job;" in said
    assert "marked" not in said
    assert (calls, caplog.messages) == ([PLACE], [])


def test_retried__no_keys():
    @retried
    def exists(folder):
        raise NoCredentialsError

    with pytest.raises(RefusedError, match=f"to {PLACE} .*: Unable to locate credentials"):
        exists(Folder(PLACE))


def test_folder__an_option_that_the_filesystem_does_not_know():
    message = f"^{PLACE} cannot be opened with these options: .*'secrte'.* Correct their"
    with pytest.raises(TypeError, match=message) as raised:
        Folder(Url(PLACE, {"secrte": "marked-word"})).exists()
    assert "marked" not in str(raised.value)
