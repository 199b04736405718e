"""Options of storages: what they may be, and which of their texts are secrets."""

import copy

import pytest

from lpe_dask.storage import checked_options, secret_values, secrets_of

KEYS = {"key": "marked-key", "secret": "marked/secret+=", "client_kwargs": {"verify": True}}


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
        ({"s3": "marked-key"}, ValueError, "s3: it is a protocol: give a table of its"),
        ({"key": "marked\n"}, ValueError, "key: the text begins or ends with white space"),
        ({"s3": {"key": " marked"}}, ValueError, r"s3\.key: the text begins or ends"),
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
    checked_options(options)
    assert [*secrets_of(options)] == ["A" * 20, "-----BEGIN", "line-1", "line-2"]
    assert len([*secret_values(options)]) == 3


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {"connection_string": "AccountName=myself;AccountKey=abcdef==;x=short"},
            ["AccountKey=abcdef==", "abcdef=="],
        ),
        ({"sas_token": "sv=2020-01&sig=abcdef"}, ["2020-01", "sig=abcdef", "abcdef"]),
        ({"headers": {"Authorization": "Bearer abcdef"}}, ["abcdef"]),
        ({"proxy": "http://me:abcdef@host:1"}, ["abcdef"]),
        ({"proxy": "http://[no url"}, ["http://[no"]),
    ],
)
def test_secrets_of__parts_of_a_text(options, parts):
    assert {*parts} <= {*secrets_of(options)}


def test_secrets_of__words_that_are_in_paths_are_none():
    harmless = {
        "config_kwargs": {"user_agent": "nightly", "retries": {"mode": "standard"}},
        "s3_additional_kwargs": {"StorageClass": "STANDARD_IA"},
        "token": {"type": "service_account", "project_id": "my-logs"},
        "username": "nightly", "key_filename": "/home/nightly/.ssh/key",
    }  # fmt: skip
    assert [*secrets_of(harmless)] == []
