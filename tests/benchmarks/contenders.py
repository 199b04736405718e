"""The one table of contenders, by the name that a case gives them."""

from __future__ import annotations

from benchmarks.ours import OURS
from benchmarks.peers import PEERS

CONTENDERS = OURS | PEERS
