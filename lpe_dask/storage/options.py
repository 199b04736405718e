"""Check the options of storages, such as keys, and find the secrets in them.

No message repeats a value: the names of options say enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from fsspec.registry import known_implementations, registry

#: Options that are tables themselves, as opposed to those of a protocol.
_TABLES = {
    "client_kwargs", "client_options", "config_kwargs", "credential", "cert_kwargs",
    "headers", "extra_conf", "kerb_kwargs", "s3_additional_kwargs", "session_kwargs",
    "ssh_kwargs", "token",
}  # fmt: skip

#: Options whose values are no secrets, so that messages may show them.
_HARMLESS = {
    "access", "account_host", "account_name", "AccountName", "acl", "addressing_style",
    "anon", "auth_provider_x509_cert_url", "auth_uri", "cache_type", "client_email",
    "client_id", "client_x509_cert_url", "consistency", "default_acl",
    "default_cache_type", "DefaultEndpointsProtocol", "endpoint", "endpoint_url",
    "EndpointSuffix", "host", "key_filename", "location", "mode", "port", "profile",
    "profile_name", "project", "project_id", "protocol", "region", "region_name",
    "requester_pays", "ServerSideEncryption", "signature_version", "StorageClass",
    "token_uri", "type", "universe_domain", "use_ssl", "user_agent", "user_agent_extra",
    "user_project", "username", "verify",
}  # fmt: skip

#: Least characters of a secret: messages have shorter words by chance.
_MIN_CHARACTERS = 6


def checked_options(given: Any) -> dict[str, Any]:
    """Return options that a user gives as ``storage_options``; None: no options.

    Raises
    ------
    TypeError, ValueError
        If they are no table of names, texts, numbers, booleans and such tables.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"storage_options must be a dict, and is a {type(given).__name__}. Give for "
            f"example storage_options={{'key': ..., 'secret': ...}}, or "
            f"storage_options={{'s3': {{'key': ..., 'secret': ...}}}} for one protocol."
        )
    for name, problem in problems_of(given):
        raise ValueError(f"storage_options, {name}: {problem}")
    return _copied(given)


def problems_of(options: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of options that cannot be, and what is wrong with them."""
    known = sorted({*registry, *known_implementations})
    for name, value in options.items():
        if isinstance(name, str) and not isinstance(value, Mapping) and name in known:
            yield (
                name,
                "it is a protocol: give a table of its options, such as key and secret.",
            )
        elif not isinstance(name, str) or not isinstance(value, Mapping) or name in _TABLES:
            yield from _problems_of_value(str(name), name, value)
        elif name in known:
            for inner, of in value.items():
                yield from _problems_of_value(f"{name}.{inner}", inner, of)
        else:
            hint = "".join(f" Did you mean {of}?" for of in get_close_matches(name, known))
            yield (
                name,
                f"it is a table, but neither a protocol of fsspec, such as s3, gs or "
                f"https, nor an option that has a table "
                f"({', '.join(sorted(_TABLES))}).{hint} Correct it.",
            )


def _problems_of_value(path: str, name: Any, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str):
        yield path, "the name of an option must be a text."
    elif isinstance(value, Mapping):
        for inner, of in value.items():
            yield from _problems_of_value(f"{path}.{inner}", inner, of)
    elif not isinstance(value, str | int | float):  # a boolean is an int
        yield (
            path,
            f"the value is a {type(value).__name__}. It must be a text, a number, true or "
            f"false, or a table of these: processes of workers are sent it.",
        )
    elif isinstance(value, str) and _has_outer_space(value):
        yield (
            path,
            "the text begins or ends with white space, such as a line break. Give it "
            "without.",
        )


def _has_outer_space(text: str) -> bool:
    """Return whether a text of one line does; keys of several lines end with a break."""
    inner = text.strip()
    return inner != text and len(inner.splitlines()) <= 1


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in options.items()}


def secret_values(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts among options that nobody else may see."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secret_values(value)
        elif name not in _HARMLESS and isinstance(value, str):
            yield value


def secrets_of(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what texts may show of the `secret_values`, but for short parts."""
    for value in secret_values(options):
        parts = dict.fromkeys(_parts(value))  # each once, in order
        yield from (of for of in parts if len(of) >= _MIN_CHARACTERS)


def _parts(value: str) -> Iterator[str]:
    """Yield the words of a secret, and what is secret in them.

    An error may show one line of a key, the key in a connection string
    (``AccountName=a;AccountKey=b``), or the password in a URL.
    """
    for word in value.split():
        yield word
        for part in re.split("[;&]", word):
            name, _, of = part.partition("=")
            if name not in _HARMLESS:
                yield part
                yield of
        with suppress(ValueError):  # it is no URL
            yield urlsplit(word).password or ""
