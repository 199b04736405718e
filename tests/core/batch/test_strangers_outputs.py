"""Outputs that others can write to: what they have put there neither hangs nor grows."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostile import ATTACKS, limited
from lpe_dask.model.persistence.checkpoint import Checkpoint
from lpe_dask.storage import StoredFile, check_footer

READ = """
import sys
from lpe_dask.batch.explanations import stored_reasons
from lpe_dask.batch.fingerprint import read_fingerprint
from lpe_dask.batch.output import reserved_output
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.summary import read_summary
from lpe_dask.model.persistence.checkpoint import Checkpoint
from lpe_dask.storage import Lock

def lock_owner(url):
    Lock(url).owner()

def reserve(url):
    with reserved_output(url):
        pass

def stats(url):
    return PartFolder(url, 1, Lock(url, "token")).read_stats(["run"])

def known(url):
    return Checkpoint(url).known(3)

for way, folder in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        print(globals()[way](folder), flush=True)
    except (OSError, ValueError) as error:
        print(error, flush=True)
"""

#: What reads a file of a name that everybody knows.
READERS = {
    "read_summary": "_summary.json", "read_fingerprint": "_run.json",
    "stored_reasons": "_reasons.pqt", "lock_owner": "_lock.json", "reserve": "_lock.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each reader says where somebody has put something else; one process does all.

    That a folder refuses whatever is no regular file is tested in test_regular_files.
    """
    around = tmp_path_factory.mktemp("strange")
    cases = [(way, "pipe") for way in READERS]
    cases += [("known", "pipe"), ("known", "huge"), ("stats", "pipe"), ("stats", "footer")]
    names = READERS | {"known": "rows-1.parquet", "stats": "part-00000.parquet"}
    folders = {}
    for way, attack in cases:
        folder = folders[way, attack] = around / f"{way}-{attack}"
        folder.mkdir()
        (ATTACKS | {"footer": huge_footer})[attack](folder / names[way])
    arguments = [argument for (way, _), at in folders.items() for argument in (way, at)]
    lines = limited(READ, *arguments).splitlines()
    return dict(zip(folders, lines, strict=True))


def huge_footer(path):
    """Make a file, of which no place is taken, whose footer has almost all of 4 GiB."""
    with open(path, "wb") as file:
        file.write(b"PAR1")
        file.truncate(2**32)
        file.seek(2**32 - 8)
        file.write((2**32 - 256).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("way", READERS)
def test_output__with_something_else_is_refused_with_the_name(answers, way):
    said = answers[way, "pipe"]

    refused = "is a named pipe, and only a regular file is read"
    assert re.search(rf"/{way}-pipe/{READERS[way]} {refused}", said), said
    assert "remove it if it is not yours" in said


@pytest.mark.parametrize("attack", ["pipe", "huge"])
def test_checkpoint__of_something_else_is_not_known(answers, attack):
    assert answers["known", attack] == "[nan nan nan]"


@pytest.mark.parametrize("attack", ["pipe", "footer"])
def test_read_stats__knows_no_part_that_is_something_else(answers, attack):
    assert answers["stats", attack] == "{}"


def test_check_footer__takes_what_arrow_writes(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(10**5)}), path, row_group_size=100)

    with open(path, "rb") as file:
        check_footer(file)
        assert pq.read_metadata(file).num_rows == 10**5


@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_checkpoint__of_rows_that_are_not_there_is_not_known(tmp_path, caplog, number):
    values = {"number": np.array([0, number]), "statistic": np.array([1.0, 2.0])}
    StoredFile.write(str(tmp_path / "rows-1.parquet"), values)

    assert np.isnan(Checkpoint(str(tmp_path)).known(3)).all()
    assert "has numbers of no rows" in caplog.text
