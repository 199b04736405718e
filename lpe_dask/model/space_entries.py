"""Turn the space of a search into what a manifest says of it, and back.

    Space --entry_of_space--> what JSON knows --SpaceEntry--> checked
    SpaceEntry --space_of_entry--> Space, the same to the last bit

The names in a manifest are those of the classes here, but for `_SAVED_AS`: a new name
there is a new format.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Basis
from lpe_dask.model.manifest import KnotsEntry, SpaceEntry
from lpe_dask.search import Knots, LinearMap, Preparation, Scaling, Space, Split

#: Fields that a manifest names otherwise, as format 1 did.
_SAVED_AS = {"basis": "frame"}


def entry_of_space(space: Space) -> dict[str, Any]:
    """Return the fields of a space, as plain values: those of a `SpaceEntry`."""
    fields = asdict(space, dict_factory=_plain)
    del fields["algorithm"]  # a manifest has it beside the space
    return fields


def space_of_entry(entry: SpaceEntry, algorithm: str) -> Space:
    """Return the space that an entry describes, to be searched by an algorithm."""
    scaled, mapped = entry.preparation.scaling, entry.preparation.linear_map
    scaling = Scaling(
        _array(scaled.shift), _array(scaled.factor), _array(scaled.divisor),
        _knots(scaled.knots),
    )  # fmt: skip
    linear_map = LinearMap(**_arrays(mapped, "factor", "divisor", "matrix"))
    basis = Basis(
        np.array(entry.frame.center, np.float64),
        entry.frame.exponent,
        _array(entry.frame.rotation),
        np.array(entry.frame.weights, np.float64),
        np.array(entry.frame.steps, np.float64),
    )
    split = None
    if (tree := entry.split) is not None:
        split = Split(tuple(tree.axes), tuple(tree.thresholds), tuple(tree.children))
    preparation = Preparation(
        scaling, linear_map, tuple(entry.preparation.categorical),
        np.array(entry.preparation.weights, np.float64),
    )  # fmt: skip
    return Space(algorithm, preparation, basis, split, entry.with_samples)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_SAVED_AS.get(name, name): _listed(value) for name, value in items}


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(_listed, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


def _knots(entry: KnotsEntry | None) -> Knots | None:
    if entry is None:
        return None
    values = tuple(np.array(column, np.float64) for column in entry.values)
    ranks = tuple(np.array(column, np.int64) for column in entry.ranks)
    return Knots(values, ranks, entry.n_sampled)


def _arrays(section: Any, *names: str) -> dict[str, NDArray[np.float64] | None]:
    return {name: _array(getattr(section, name)) for name in names}


def _array(values: list[Any] | None) -> NDArray[np.float64] | None:
    return None if values is None else np.array(values, dtype=np.float64)
