"""What was learned of each group by itself, in files: see `GroupPreparations`.

GroupPreparations --LearnedArrays.of--> arrays, by the names of their files
arrays --LearnedArrays.load--> checked as if a stranger had written them
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lpe_dask.search import GroupKnots, GroupPreparations, Space
from lpe_dask.storage import StoredFile

_KNOTS, _STARTS = "group-knots.parquet", "group-knot-starts.parquet"


@dataclass(frozen=True, slots=True)
class LearnedArrays:
    """Which arrays there are, of groups that have their own scale or metric.

    Attributes
    ----------
    vectors : list of str
        Those of `GroupPreparations`.
    has_matrix : bool
    n_knots : int, optional
        Knots of all columns of all groups.
    """

    vectors: list[Literal["shift", "factor", "divisor", "powers", "fill"]]
    has_matrix: bool
    n_knots: Annotated[int, Field(ge=1, lt=2**31)] | None

    @classmethod
    def of(
        cls, learned: GroupPreparations
    ) -> tuple[LearnedArrays, dict[str, dict[str, NDArray[Any]]]]:
        """Return which arrays there are, and the columns of each file of them."""
        arrays = dict(learned.vectors)
        arrays |= {"weights": learned.weights, "centers": learned.centers}
        if learned.matrix is not None:
            arrays["matrix"] = learned.matrix
        files: dict[str, dict[str, NDArray[Any]]] = {
            _file_name(name): {"value": of.ravel()} for name, of in arrays.items()
        }
        n_knots = None
        if learned.knots is not None:
            values, ranks = learned.knots.values, learned.knots.ranks
            files[_KNOTS], n_knots = {"value": values, "rank": ranks}, len(values)
            files[_STARTS] = {"start": learned.knots.starts.astype(np.int64)}
        vectors: Any = list(learned.vectors)
        return cls(vectors, learned.matrix is not None, n_knots), files

    @property
    def array_names(self) -> list[str]:
        """The names of all arrays of as many numbers for each group."""
        others = ["matrix"] if self.has_matrix else []
        return [*self.vectors, "weights", "centers", *others]

    def file_names(self) -> set[str]:
        """Return the names of all files."""
        of_knots = set() if self.n_knots is None else {_KNOTS, _STARTS}
        return {*map(_file_name, self.array_names), *of_knots}

    def problems(self, space: Space) -> Iterator[tuple[bool, str]]:
        """Yield whether something is wrong beside the rest of a manifest, and what."""
        preparation = space.preparation
        is_double = len({*self.vectors}) < len(self.vectors)
        yield is_double, "an array of groups is named twice"
        scaling, factor = preparation.scaling, preparation.factor
        of_all = scaling.shift, scaling.factor, scaling.divisor, scaling.knots
        is_other = any(part is not None for part in of_all)
        if preparation.separates:  # else the metric is that of all rows
            is_other |= preparation.matrix is not None
            is_other |= factor is not None and not np.isin(factor, (0.0, 1.0)).all()
        yield is_other, "scale or metric is that of all rows, and of groups"
        yield scaling.has_both and self.n_knots is None, "both forms need knots"
        fills = "fill" in self.vectors
        yield fills != (preparation.fill is not None), "gaps of groups are filled, or not"
        yield fills and self.has_matrix, "gaps are filled before a matrix"
        is_mixed = "powers" in self.vectors and self.has_matrix
        yield is_mixed, "groups have a matrix and powers"

    def load(
        self,
        files: Mapping[str, StoredFile],
        space: Space,
        n_columns: int,
        is_known: NDArray[np.bool_],
        n_sampled: NDArray[np.int64] | None,
    ) -> GroupPreparations:
        """Return what was learned again.

        Parameters
        ----------
        files : mapping of str to StoredFile
            By name; all of `file_names`.
        space : Space
            Of the rows, as the manifest has it.
        n_columns : int
            Of the rows, with the numbers of groups.
        is_known : ndarray of shape (n_groups,)
            Of which groups anything was learned.
        n_sampled : ndarray of shape (n_groups,), optional
            Rows that knots were learned from.

        Raises
        ------
        ValueError
            Naming the file that holds what cannot be.
        """
        preparation = space.preparation
        n_given = n_columns - len(preparation.categorical)
        n_scaled = preparation.scaling.n_scaled(n_given)
        n_left = max(1, n_scaled)
        if preparation.separates:
            n_left = preparation.n_numbers(n_columns)
        shapes = {
            "powers": (n_scaled,), "weights": (n_left,), "centers": (n_left,),
            "matrix": (n_scaled, n_scaled),
        }  # fmt: skip
        arrays = {}
        for name in self.array_names:
            shape, file = shapes.get(name, (n_given,)), files[_file_name(name)]
            values = file.columns({"value": np.float64}, len(is_known) * math.prod(shape))[
                "value"
            ]
            arrays[name] = values.reshape(len(is_known), *shape)
            for is_wrong, problem in _problems(name, arrays[name], is_known, space):
                if is_wrong:
                    raise ValueError(f"{file.url} has {problem}")
        knots = None
        if self.n_knots is not None:
            assert n_sampled is not None
            knots = self._knots(files, n_given, is_known, n_sampled)
        return GroupPreparations(
            is_known, preparation.scaling.has_both,
            {name: arrays[name] for name in self.vectors}, arrays["weights"],
            arrays.get("matrix"), knots, arrays["centers"],
        )  # fmt: skip

    def _knots(
        self,
        files: Mapping[str, StoredFile],
        n_given: int,
        is_known: NDArray[np.bool_],
        n_sampled: NDArray[np.int64],
    ) -> GroupKnots:
        file, n_runs = files[_KNOTS], len(is_known) * n_given
        columns = file.columns({"value": np.float64, "rank": np.int64}, self.n_knots)
        values, ranks = columns["value"], columns["rank"]
        starts = files[_STARTS].columns({"start": np.int64}, n_runs + 1)["start"]
        sizes = np.diff(starts)
        is_run = starts[0] == 0 and starts[-1] == len(values) and (sizes >= 0).all()
        if not is_run or (sizes.reshape(len(is_known), n_given)[is_known] == 0).any():
            raise ValueError(f"{files[_STARTS].url} begins no runs of {len(values)} knots")
        if not _are_usable(values, ranks, starts, np.repeat(n_sampled, n_given)):
            raise ValueError(
                f"{file.url} has knots or ranks that do not ascend, or are out of range"
            )
        return GroupKnots(values, ranks, starts, n_sampled)


def _file_name(array: str) -> str:
    return f"group-{array}.parquet"


def _problems(
    name: str, array: NDArray[np.float64], is_known: NDArray[np.bool_], space: Space
) -> Iterator[tuple[bool, str]]:
    """Yield whether an array of groups is wrong, and what is."""
    yield not np.isfinite(array).all(), "numbers that are not finite"
    known, factor = array[is_known], space.preparation.factor
    if name == "divisor":
        yield not known.all(), "a divisor of 0"
    if name == "powers":
        kept = np.ones(array.shape[1], bool) if factor is None else factor != 0
        yield not np.isin(np.frexp(known)[0], (0.0, 0.5)).all(), "factors of no powers of 2"
        yield ((known != 0) != kept).any(), "columns left out of some groups alone"
    if name == "weights":
        is_range = (known >= 1) & (known < 4)
        yield not is_range.all(), "weights that are not from 1 to 4"


def _are_usable(
    values: NDArray[np.float64],
    ranks: NDArray[np.int64],
    starts: NDArray[np.int64],
    n_sampled: NDArray[np.int64],
) -> bool:
    """Return whether the runs of knots are as those of `QuantileKnots`."""
    sizes = np.diff(starts)
    filled = sizes > 0
    run = np.repeat(np.arange(len(sizes)), sizes)
    is_same = run[1:] == run[:-1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ascends = ((np.diff(values) > 0) & (np.diff(ranks) > 0))[is_same].all()
        firsts, lasts = starts[:-1][filled], starts[1:][filled] - 1
        widths = (values[lasts] - values[firsts])[sizes[filled] > 1]
        is_wide = np.isfinite(widths).all() and np.isfinite(1 / widths).all()
    most = n_sampled[filled]
    is_range = ((most >= 1) & (most < 2**31)).all() and (ranks[firsts] >= 0).all()
    is_range = is_range and (ranks[lasts] <= 2 * most).all()
    return bool(np.isfinite(values).all() and ascends and is_wide and is_range)
