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

#: First bytes of files that are no text -> what they are. Names of columns may begin with
#: those of Parquet.
_MAGIC = {
    b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip, or an Excel workbook", b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"PAR1\x15": "Parquet", b"\x89HDF": "HDF5", b"%PDF": "PDF",
}  # fmt: skip

#: Endings of the names of compressed files.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")

#: Errors of what decompresses.
_DAMAGED = (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error, RuntimeError)


@contextmanager
def opened(filesystem: Any, name: str) -> Iterator[Any]:
    """Open a file to read the bytes of its lines.

    Raises
    ------
    TableError
        If it is not compressed as its name says, cut short, or an archive of several files.
    """
    with filesystem.open(name, "rb") as file:
        ending = next((e for e in COMPRESSED if path_of(name).lower().endswith(e)), "")
        try:
            yield _lines_of(file, name, ending)
        except (*_DAMAGED, OSError) as error:
            # zipfile hides an error of the storage while it reads the directory.
            failure = error.__context__ if isinstance(error, zipfile.BadZipFile) else error
            if isinstance(failure, OSError) and (
                type(failure) is not OSError or failure.errno is not None
            ):
                raise failure  # noqa: B904 - it has its own cause
            if not ending:
                raise
            raise TableError(
                f"{name} is cut short or damaged, or not compressed as its name says: "
                f"{error}. Copy or download it again, or unpack what is left of it."
            ) from error


def check_text(name: str, beginning: bytes) -> None:
    """Raise TableError if the beginning of a file, unpacked, is no text."""
    found = next(
        (what for magic, what in _MAGIC.items() if beginning.startswith(magic)), None
    )
    if beginning[257:262] == b"ustar":
        found = "an archive (tar)"
    if found is not None:
        raise TableError(
            f"{name} holds another file ({found}), by its first bytes. Give it the ending "
            f"of its kind, or unpack it, and write it as CSV."
        )


def _lines_of(file: Any, name: str, ending: str) -> Any:
    if ending == ".xz":
        return lzma.LZMAFile(file)
    if ending == ".zip":
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
    if not ending:
        return file
    return pa.CompressedInputStream(file, pa.Codec.detect(f"x{ending}").name)
