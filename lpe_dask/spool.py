"""Keep prepared blocks where tasks run: in the cluster's memory, or in this process's."""

from __future__ import annotations

from typing import Any

import dask
from dask.delayed import Delayed

from lpe_dask.literals import enter
from lpe_dask.resources import active_client


class HeldBlocks:
    """Blocks that stay in memory while this object, or a graph made from it, lives.

    With an active client they stay on its workers, which can make them again from their
    tasks; otherwise in this process.

    Parameters
    ----------
    blocks : list of Delayed
        Computed at once.
    """

    def __init__(self, blocks: list[Delayed]) -> None:
        self._on_cluster = active_client() is not None
        if self._on_cluster:
            self._held: list[Any] = list(dask.persist(*blocks))
        else:
            self._held = list(dask.compute(*blocks))

    def tasks(self) -> list[Delayed]:
        """Return one task a block, for the scheduler that is active now.

        Raises
        ------
        RuntimeError
            If the blocks were left on a cluster that is no longer active.
        """
        if not self._on_cluster:
            return [enter(block, "lpe-block") for block in self._held]
        if active_client() is None:
            raise RuntimeError(
                "the nominal rows of this model are on the workers of the cluster that "
                "fitted it, and no client is active. Score while its client is, or fit "
                "again."
            )
        return self._held

    def __getstate__(self) -> dict[str, Any]:
        """Bring the blocks along: a copy of a model does not depend on the cluster."""
        held = list(dask.compute(*self.tasks())) if self._on_cluster else self._held
        return {"_on_cluster": False, "_held": held}
