"""Collect what is wrong with a job file, and say it with the line it stands on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: Most problems in one message.
MAX_PROBLEMS = 5

_HEADER = re.compile(r"\s*\[+\s*([A-Za-z_][\w.\- \t]*?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(?P<quote>[\"']?)(?P<name>[\w.\- \t]+?)(?P=quote)\s*=")


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with a file, by section and key: the first thing found of each.

    Attributes
    ----------
    path, text : str
        The file, and what it holds.
    """

    path: str
    text: str
    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, section: str, key: str, problem: str) -> None:
        """Note a problem; ``section`` and ``key`` are empty where it has none."""
        self.found.setdefault((section, key), problem)

    def raise_any(self) -> None:
        """Raise ValueError with the first problems, a line for each, if there are any."""
        if not self.found:
            return
        lines = {names: line_of(self.text, *names) for names in self.found}
        ordered = sorted(lines, key=lambda names: lines[names] or 0)
        message = [
            f"{self._place(lines[names], *names)}: {self.found[names]}"
            for names in ordered[:MAX_PROBLEMS]
        ]
        if n_more := len(ordered[MAX_PROBLEMS:]):
            message.append(f"{self.path}: there are {n_more} more of such problems.")
        raise ValueError("\n".join(message))

    def _place(self, line: int | None, section: str, key: str) -> str:
        place = self.path if line is None else f"{self.path}, line {line}"
        if not _is_plain(section):
            return place
        return f"{place}, [{section}]" + (f" {key}" if _is_plain(key) else "")


def _is_plain(name: str) -> bool:
    """Return whether a name can be printed as it is; others are quoted in the message."""
    return re.fullmatch(r"[\w-]{1,60}", name) is not None


def line_of(text: str, section: str, key: str) -> int | None:
    r"""Return the number of the line where a key, or else its section, begins.

    None where that is not known: names in quotes that need them are not looked for, and in
    a text over several lines anything may look like a key.

    Examples
    --------
    >>> line_of('[score]\noutput = "out"', "score", "output")
    2
    >>> line_of('[score]\noutput = "out"', "score", "data")
    1
    """
    if '"""' in text or "'''" in text:
        return None
    addresses = list(_addresses(text))
    for wanted in filter(None, (f"{section}.{key}", section)):
        for number, address in enumerate(addresses, 1):
            if address == wanted or address.startswith(f"{wanted}."):
                return number
    return None


def _addresses(text: str) -> Iterator[str]:
    """Yield for each line the dotted name that it begins; "" where it begins none."""
    section = ""
    for line in text.split("\n"):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = re.sub(r"\s", "", header[1])
            yield section
        else:
            name = re.sub(r"\s", "", key["name"]) if key else ""
            yield f"{section}.{name}" if section and name else name


def shown(value: Any) -> str:
    """Return a value of the file for a message, shortened."""
    return cut(repr(value), 80)


def cut(text: str, length: int) -> str:
    """Return ``text``, without its middle if it is longer than ``length``."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ... {text[-half:]}"
