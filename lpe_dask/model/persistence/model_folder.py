"""The folder of a saved model: who may write to it, which model is there, the model itself.

Fitted --save--> MODEL --load--> Fitted
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike

from lpe_dask.model.arguments import LogDensity
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.lpe_parameters import check_parameters
from lpe_dask.model.persistence.loading import (
    read_latest,
    source_of,
    with_log_density,
    with_remedy,
)
from lpe_dask.model.persistence.manifest import MANIFEST_NAME, Manifest, read_manifest
from lpe_dask.model.persistence.saving import check_place, write_model
from lpe_dask.storage import Folder, Lock
from lpe_dask.tasks import eager_scope


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The folder of a saved model, or of one that is to be saved.

    Attributes
    ----------
    path : str or path
        As the user gave it.
    """

    path: str | PathLike[str]

    @property
    def url(self) -> str:
        """Its URL, the same from wherever it is looked at."""
        return Folder(self.path).full_url()

    def source(self) -> str | None:
        """Return an identifier of the model that is there; None if there is none.

        Models that a run has fitted are identified by files and parameters, others by their
        folder of files, which has a new name each time.

        Raises
        ------
        ValueError
            If the manifest was cut short or altered, or is of another format.
        """
        with with_remedy(self.path):
            try:
                return source_of(read_manifest(self.url))
            except FileNotFoundError:
                return None

    def checksum(self) -> str:
        """Return the checksum of the model that is there; raises as `load`."""
        with with_remedy(self.path):
            return read_manifest(self.url).checksum

    def load(self, anomaly_log_density: LogDensity | None = None) -> Fitted:
        """Return the model; computes nothing, and reads no blocks.

        Its ``source`` is what `source` says, of one reading: others may be replacing the
        model at the same time.

        Raises
        ------
        FileNotFoundError, ValueError, OSError
            As `lpe_dask.load`.
        """
        with with_remedy(self.path):
            manifest, fitted = read_latest(self.url)
        return with_log_density(fitted, manifest, self.path, anomaly_log_density)

    def inspect(self) -> tuple[Manifest, Fitted]:
        """Return what is known of the model that is there; reads no blocks.

        Without the function of a model with ``anomaly_log_density``. That all files are
        there is checked by their sizes.

        Raises
        ------
        FileNotFoundError, ValueError, OSError
            As `lpe_dask.load`.
        """
        with with_remedy(self.path):
            return read_latest(self.url, sizes_only=True)

    def lock(self) -> AbstractContextManager[Lock]:
        """Make the folder and lock it; remove it again if the work fails.

        Raises
        ------
        FileExistsError
            If something else is there.
        OSError
            If nothing can be written there, or another run holds the lock.
        """
        folder = Folder(self.url)
        existed = folder.exists()
        if existed:
            check_place(folder)
        refusal = "no model can be written to {url}"
        return Lock(folder.url).hold("save a model", refusal, is_ours=not existed)

    def save(self, fitted: Fitted, *, overwrite: bool) -> None:
        """Write a model to it, as `LPE.save` does; computes."""
        with self.lock() as lock:
            if Folder(lock.url).exists(MANIFEST_NAME) and not overwrite:
                raise FileExistsError(
                    f"there is a model at {lock.url}. Give another folder, or replace it "
                    f"(overwrite=True)."
                )
            self.write(fitted, lock)

    @eager_scope()
    def write(self, fitted: Fitted, lock: Lock) -> Fitted:
        """Write a model to it while it is locked, in the place of another; computes.

        Returns it with its checksum.

        Raises
        ------
        ValueError
            For parameters that were changed after the fit, to what could not be loaded.
        OSError
            If it cannot be written, or this process does not see what the workers wrote.
        """
        check_parameters(fitted.parameters)
        return write_model(fitted, lock)
