"""Open CSV files, also compressed ones, and say what a file is that is none.

The ending of a name says how a file is compressed; what its first bytes and its archive say
has to agree with that.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lpe_dask.tables.errors import TableError
from lpe_dask.tables.listing import path_of

#: First bytes of files that are no text -> what they are.
_MAGIC = {
    b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip", b"PAR1": "Parquet", b"ORC": "ORC", b"ARROW1": "Feather",
    b"\x89HDF": "HDF5", b"\xd0\xcf\x11\xe0": "an Excel workbook", b"%PDF": "PDF",
}  # fmt: skip

#: Those that a name of a column may begin with.
_WORDS = (b"PAR1", b"ORC", b"ARROW1")

#: Endings of the names of compressed files, and Arrow's name of those that it reads.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_ARROW = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}

#: Errors of what decompresses.
_DAMAGED = (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error, RuntimeError)

#: Where the name of its format is in an archive of tar.
_TAR = slice(257, 262)


@contextmanager
def opened(filesystem: Any, name: str, start: int = 0) -> Iterator[Any]:
    """Open a file to read the bytes of its lines, from a place on.

    Raises
    ------
    TableError
        If it is not compressed as its name says, cut short, or an archive of several files.
    """
    with filesystem.open(name, "rb") as file:
        ending = next((e for e in COMPRESSED if path_of(name).lower().endswith(e)), "")
        if start == 0:  # else the beginning of a remote file would be read for each block
            _check_kind(name, file.read(8), ending)
            file.seek(0)
        try:
            yield _lines_of(file, name, ending) if ending else file
        except _DAMAGED as error:
            raise _damaged(name, error) from error
        except OSError as error:
            if not ending or error.errno is not None or type(error) is not OSError:
                raise  # of the storage
            raise _damaged(name, error) from error


def check_text(name: str, beginning: bytes) -> None:
    """Raise TableError if the content of a file is an archive, or compressed again."""
    if beginning[_TAR] == b"ustar":
        raise TableError(
            f"{name} holds an archive (tar) rather than lines. Unpack it, and name its "
            f"files."
        )
    if (found := _kind_of(beginning)) is not None:
        raise TableError(
            f"{name} holds another file ({found}), by its first bytes. Unpack it."
        )


def _kind_of(beginning: bytes) -> str | None:
    """Return what a file is by its first bytes; None if it may be text."""
    for magic, what in _MAGIC.items():
        following = beginning[len(magic) : len(magic) + 1]
        # Names of columns begin like these: ORCID, PAR1_mean.
        is_name = magic in _WORDS and b" " <= following <= b"~"
        if beginning.startswith(magic) and not is_name:
            return what
    return None


def _check_kind(name: str, beginning: bytes, ending: str) -> None:
    found = _kind_of(beginning) or ""
    if found == ending or not beginning:
        return
    if found in COMPRESSED:
        what = f"is compressed as {found} files are"
        if found == ".zip":
            what += ", or an Excel workbook"
        remedy = f"Rename it so that its name ends in {found}, or unpack it"
    elif found:
        what, remedy = f"is {found}", "Give it its own ending, or write it as CSV"
    else:
        what = f"is not compressed as its name says ({ending})"
        remedy = f"Rename it without {ending}, or download it again"
    raise TableError(f"{name} {what}, by its first bytes. {remedy}.")


def _lines_of(file: Any, name: str, ending: str) -> Any:
    if ending == ".xz":
        return lzma.LZMAFile(file)
    if ending == ".zip":
        return _only_member(file, name)
    if not pa.Codec.is_available(_ARROW[ending]):
        raise TableError(
            f"{name} cannot be read: this build of pyarrow has no {_ARROW[ending]}. Unpack "
            f"the file, or compress it with gzip."
        )
    return pa.CompressedInputStream(file, _ARROW[ending])


def _only_member(file: Any, name: str) -> Any:
    archive = zipfile.ZipFile(file)
    members = [
        member
        for member in archive.namelist()
        if not member.endswith("/") and not member.startswith(("__MACOSX/", "."))
    ]
    if len(members) != 1:
        raise TableError(
            f"{name} is an archive of {len(members)} files ({', '.join(members[:3])}), "
            f"rather than of one. Unpack it, and name its files."
        )
    return archive.open(members[0])


def _damaged(name: str, error: Exception) -> TableError:
    return TableError(
        f"{name} is cut short or damaged: {error}. Copy or download it again, or unpack "
        f"what is left of it."
    )
