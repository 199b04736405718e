"""docs/reliability.md names each fault."""

import re
from pathlib import Path

from chaos.faults import FAULTS

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()

#: What is said to prove each promise.
PROOFS = [line.split("|")[-2] for line in PAGE.splitlines() if line.count("|") == 5]


def test_reliability__names_all_faults_and_no_others():
    named = {name for of in PROOFS for name in re.findall("`([a-z0-9-]+)`", of)}

    assert named == set(FAULTS)
