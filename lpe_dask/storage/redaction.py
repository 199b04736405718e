"""Show text of others: without the secrets in URLs, and with nothing that a terminal obeys.

    redact      http://me:password@host/p.parquet?sig=1 --> http://***@host/p.parquet?***
                a secret of storage_options             --> ***
    printable   what is no printable character --> ?, and white space --> a space

All URLs that are written into files or messages, and all errors that leave a public
function, pass through here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from urllib.parse import quote

#: Most errors of which each caused the next: they may form a ring.
_MAX_CAUSES = 50

#: Stands for what is not shown.
MASK = "***"

#: Protocols whose queries are secret as a whole; in other URLs a ``?`` may be a wildcard.
_WEB = ("http", "https")

#: Protocols that have the name of a container where others have that of a user.
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")

#: Protocols that have neither users nor queries, but names of files with any character.
_WITHOUT_SECRETS = ("file", "local", "memory")

#: A URL in a text, up to the next white space. A password may have an @ and, against the
#: rules, a slash, if that is not behind a port. Texts of others may be of any length, so
#: nothing is looked at more than a few times.
_URL = re.compile(
    r"(?P<protocol>[A-Za-z0-9+.-]{1,24}+)://"
    r"(?:(?P<user>[^\s/?#]*|[^\s/@:\[]+:(?!\d+(?:/|$))[^\s@]*)@)?"
    r"(?P<path>[^\s?#]*)"
    r"(?P<query>[?#]\S*)?"
)

#: What a sentence may have behind a URL.
_BEHIND = "\"')]}>.,:;"

#: A query with a value, such as ``?sig=1``, as opposed to a wildcard.
_VALUES = re.compile(r"\?[^/]*=")


#: Secrets that this process was given, as they may occur in a text.
_secrets: frozenset[str] = frozenset()


def register_secrets(secrets: Iterable[str]) -> None:
    """Have texts masked from now on in all messages of this process."""
    global _secrets
    given = {form for secret in secrets for form in _forms(secret)}
    if not given <= _secrets:
        _secrets |= given


def _forms(secret: str) -> tuple[str, ...]:
    """Return a secret as it is in a text, and in a URL, Python or JSON in it."""
    quoted = quote(secret, safe=""), quote(secret)
    return secret, *quoted, repr(secret)[1:-1], json.dumps(secret)[1:-1]


def redact(text: str) -> str:
    """Return a URL, or a text with URLs, without users, passwords and queries.

    And without the secrets that this process was given for storages.

    Examples
    --------
    >>> redact("there is no table at https://me:word@host/p.parquet?sig=1.")
    'there is no table at https://***@host/p.parquet?***.'
    >>> redact("s3://bucket/day-?.parquet"), redact("abfs://box@account.net/p.csv?sv=1")
    ('s3://bucket/day-?.parquet', 'abfs://box@account.net/p.csv?***')
    """
    for secret in sorted(_secrets, key=len, reverse=True):  # one may contain another
        text = text.replace(secret, MASK)
    return redact_url(text)


def redact_url(text: str) -> str:
    """Return a URL, or a text with URLs, without users, passwords and queries alone.

    For names in files of ours: options of the process that writes them must not change
    them, and a later one opens what they name.
    """
    return _URL.sub(_masked_url, text) if "://" in text else str(text)


def _masked_url(found: re.Match[str]) -> str:
    protocol, user, query = found["protocol"].lower(), found["user"], found["query"] or ""
    if protocol in _WITHOUT_SECRETS:
        return found[0]
    if user is not None and (protocol not in _CONTAINERS or ":" in user):
        user = MASK
    if query and (protocol.endswith(_WEB) or _VALUES.match(query)):
        query = query[0] + MASK + query[len(query.rstrip(_BEHIND)) :]
    place = f"{user}@" if user is not None else ""
    return f"{found['protocol']}://{place}{found['path']}{query}"


def redact_and_hash(url: str) -> str:
    """Return a URL for a file of ours: redacted, with a hash of the query, if it has one.

    Examples
    --------
    >>> redact_and_hash("https://me:word@host/p.parquet?sig=1")
    'https://***@host/p.parquet?***#b2e57c96eb980935'
    """
    # By the URL alone: who resumes a run may open it with other options.
    found, shorter = _URL.search(url), redact_url(url)
    query = "" if found is None else found["query"] or ""
    if not query or query in shorter:
        return shorter
    return f"{shorter}#{sha256(query.encode()).hexdigest()[:16]}"


def printable(text: str) -> str:
    r"""Return a text on one line, of characters that can be seen.

    Others could clear a terminal, set its title or reverse the direction of what follows.

    Examples
    --------
    >>> printable("a\tb\x1b[2J\u202e")
    'a b?[2J?'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


@contextmanager
def redact_errors() -> Iterator[None]:
    """Mask the URLs in errors that leave the context, and in what has caused them.

    Also a decorator of functions.
    """
    try:
        yield
    except Exception as error:
        if not _mask(error):
            raise OSError(redact(f"{type(error).__name__}: {error}")) from None
        raise


def _mask(error: BaseException, n_above: int = 0) -> bool:
    """Mask an error and what caused it; return False if it words its text itself."""
    _mask_arguments(error)
    cause = error.__cause__ or error.__context__  # what a traceback shows
    if cause is not None and (n_above == _MAX_CAUSES or not _mask(cause, n_above + 1)):
        error.__cause__ = error.__context__ = None
    return redact(str(error)) == str(error)


def _mask_arguments(error: BaseException) -> None:
    error.args = tuple(redact(of) if isinstance(of, str) else of for of in error.args)
    if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = redact(error.filename)
    if notes := getattr(error, "__notes__", None):
        notes[:] = map(redact, notes)
