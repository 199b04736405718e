"""The groups of a model on disk: files of numbers, however many groups there are.

    groups.parquet             a row a group: its values, rows, K or radius
    group-values-<i>.parquet   its values in a column of text
    group-reasons.parquet      why groups are small
    group-<array>.parquet      what was learned of each group by itself
    group-codes.parquet        the group of each statistic, where groups share a calibration

The manifest says of which columns and kinds they are. The statistics of
calibration.parquet are those of one group after the other, as many as ``n_statistics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from lpe_dask.model.calibration_split import GroupedSize
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.groups import FittedGroups
from lpe_dask.model.persistence.group_arrays import LearnedArrays
from lpe_dask.model.persistence.group_columns import (
    StoredColumn,
    are_ascending,
    values_of,
    words_of,
)
from lpe_dask.pvalues import GroupStatistics
from lpe_dask.search import SearchGroups, Space, Statistic
from lpe_dask.storage import StoredFile
from lpe_dask.tables import Categories, GroupLevels
from lpe_dask.tasks import LocalValue

_GROUPS, _REASONS = "groups.parquet", "group-reasons.parquet"
_CODES = "group-codes.parquet"

#: Columns of numbers that all models have of each group: nominal rows, those in use, those
#: that are measured, and which reason it is small for.
_COUNTS = ("n_nominal", "n_rows", "n_calibration", "reason")


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The section of a manifest about groups.

    Attributes
    ----------
    by : list
        The columns that divide rows into groups, when the model was fitted.
    columns : list of StoredColumn
        How the values of each are stored.
    n_groups : int
    own : list of str
        What each group has for itself, when the model was fitted.
    n_reason_words : int
        Numbers of the JSON that lists why groups are small.
    learned : LearnedArrays, optional
        What was learned of each group by itself.
    refuses_unknown : bool, default=False
        Whether rows of other groups are an error.
    """

    by: list[str | int]
    columns: list[StoredColumn]
    n_groups: Annotated[int, Field(ge=1, le=2**24)]
    own: list[Literal["scale", "neighbors", "calibration"]]
    n_reason_words: Annotated[int, Field(ge=1, lt=2**31)]
    learned: LearnedArrays | None
    refuses_unknown: bool = False

    @classmethod
    def of(cls, fitted: Fitted) -> tuple[StoredGroups, dict[str, dict[str, NDArray[Any]]]]:
        """Return the section of a model with groups, and the columns of each file."""
        groups, categories = fitted.groups, fitted.categories
        assert groups is not None
        assert categories is not None
        levels: GroupLevels = categories.groups
        table: dict[str, NDArray[Any]] = {}
        files: dict[str, dict[str, NDArray[Any]]] = {_GROUPS: table}
        columns = []
        for i, kind in enumerate(levels.kinds):
            column, numbers = StoredColumn.of(kind, levels.values.iloc[:, i])
            if column.n_words is None:
                table[f"by{i}"] = numbers
            else:
                files[_values_name(i)] = {"word": numbers}
            columns.append(column)
        reasons, numbers = np.unique(groups.why_small.astype(str), return_inverse=True)
        words = words_of(reasons.tolist())
        files[_REASONS] = {"word": words}
        counts = (levels.n_rows, groups.n_rows, groups.n_calibration, numbers)
        table |= {
            name: of.astype(np.int64) for name, of in zip(_COUNTS, counts, strict=True)
        }
        if groups.n_neighbors is not None:
            table["n_neighbors"] = groups.n_neighbors
        if groups.radii is not None:
            table["radius"] = groups.radii
        if fitted.calibration.groups is not None:
            table["n_statistics"] = fitted.calibration.groups.value.known.sizes
        if groups.calibration_codes is not None:
            files[_CODES] = {"code": groups.calibration_codes.astype(np.int64)}
        preparations, learned = fitted.reference.space.preparation.groups, None
        if preparations is not None:
            learned, of_arrays = LearnedArrays.of(preparations)
            files |= of_arrays
            table["is_known"] = preparations.is_known.astype(np.int64)
            if preparations.knots is not None:
                table["n_sampled"] = preparations.knots.n_sampled.astype(np.int64)
        own: Any = sorted(groups.own)
        by = [name if isinstance(name, str) else int(name) for name in groups.by]
        section = cls(
            by, columns, len(levels), own, len(words), learned, levels.refuses_unknown
        )
        return section, files

    @property
    def has_statistics(self) -> bool:
        """Whether p-values of a row compare with those of its group."""
        return "calibration" in self.own

    def file_names(self) -> set[str]:
        """Return the names of all files."""
        listed = [i for i, of in enumerate(self.columns) if of.n_words is not None]
        of_arrays = set() if self.learned is None else self.learned.file_names()
        of_codes = set() if self.has_statistics else {_CODES}
        return {_GROUPS, _REASONS, *map(_values_name, listed)} | of_arrays | of_codes

    def problems(self, space: Space) -> Iterator[tuple[bool, str]]:
        """Yield whether something is wrong beside the rest of a manifest, and what."""
        is_named = 1 <= len({*self.by}) == len(self.by) == len(self.columns)
        yield not is_named, "the columns of groups have not as many different names"
        are_known = all(column.is_known for column in self.columns)
        yield not are_known, "the values of groups are of no known kind"
        is_part = 1 <= len({*self.own}) == len(self.own)
        yield not is_part, "groups have nothing of their own, or something twice"
        separates = "neighbors" in self.own and self.n_groups > 1
        both = space.preparation.separates, space.basis.separates
        yield both != (separates, separates), "groups are searched each by itself, or not"
        drops = self.learned is None and not separates
        is_right = space.preparation.drops_group == drops
        yield not is_right, "the numbers of groups are searched, or are not"
        if self.learned is not None:
            yield "scale" not in self.own, "groups have no scale of their own"
            yield from self.learned.problems(space)

    def load(
        self,
        files: Mapping[str, StoredFile],
        division: GroupedSize,
        statistic: Statistic,
        space: Space,
        n_columns: int,
    ) -> LoadedGroups:
        """Return the groups of a model, read from its files.

        Parameters
        ----------
        files : mapping of str to StoredFile
            By name; all of `file_names`.
        division, statistic, space
            Of the manifest.
        n_columns : int
            Of rows, with the numbers of groups.

        Raises
        ------
        FileNotFoundError, ValueError
            Naming the file that is missing, or holds what cannot be.
        """
        file = files[_GROUPS]
        table = file.columns(self._table_columns(statistic), self.n_groups)
        levels = self._levels(files, table)
        for is_wrong, problem in _problems(table, division, statistic):
            if is_wrong:
                raise ValueError(f"{file.url} has {problem}")
        of_reasons = files[_REASONS]
        words = of_reasons.columns({"word": np.int64}, self.n_reason_words)["word"]
        with _named(of_reasons):
            reasons = np.array(values_of(words, str, None), object)
        is_listed = (table["reason"] >= 0) & (table["reason"] < len(reasons))
        if not is_listed.all():
            raise ValueError(f"{file.url} has reasons that {of_reasons.url} does not list")
        why_small = reasons[table["reason"]]
        learned, codes = None, self._codes(files, division.n_calibration)
        if self.learned is not None:
            is_known, n_sampled = table["is_known"] == 1, table.get("n_sampled")
            learned = self.learned.load(files, space, n_columns, is_known, n_sampled)
        return LoadedGroups(
            levels,
            FittedGroups(
                self.by, division.kind, frozenset(self.own), table["n_rows"],
                table["n_calibration"], table.get("n_neighbors"), table.get("radius"),
                why_small, LocalValue(np.asarray(why_small != ""), "lpe-small-groups"),
                codes,
            ),
            learned,
            table.get("n_statistics"),
        )  # fmt: skip

    def _codes(
        self, files: Mapping[str, StoredFile], n_calibration: int
    ) -> NDArray[np.int32] | None:
        """Return the group of each statistic; None where each group has its own."""
        if self.has_statistics:
            return None
        file = files[_CODES]
        codes = file.columns({"code": np.int64}, n_calibration)["code"]
        if not ((codes >= 0) & (codes < self.n_groups)).all():
            raise ValueError(f"{file.url} has numbers of groups that there are not")
        return codes.astype(np.int32)

    def _table_columns(self, statistic: Statistic) -> dict[str, Any]:
        """Return the columns of the file of groups, and the types of their numbers."""
        numbers = [f"by{i}" for i, of in enumerate(self.columns) if of.n_words is None]
        columns: dict[str, Any] = dict.fromkeys([*numbers, *_COUNTS], np.int64)
        if "neighbors" in self.own and statistic.radius is None:
            columns["n_neighbors"] = np.int64
        elif "neighbors" in self.own:
            columns["radius"] = np.float64
        if self.has_statistics:
            columns["n_statistics"] = np.int64
        if self.learned is not None:
            columns["is_known"] = np.int64
            if self.learned.n_knots is not None:
                columns["n_sampled"] = np.int64
        return columns

    def _levels(
        self, files: Mapping[str, StoredFile], table: Mapping[str, NDArray[Any]]
    ) -> GroupLevels:
        """Return the values of groups, and how many nominal rows each has."""
        values = {}
        for i, column in enumerate(self.columns):
            file, numbers = files[_GROUPS], table.get(f"by{i}")
            if numbers is None:
                file = files[_values_name(i)]
                numbers = file.columns({"word": np.int64}, column.n_words)["word"]
            with _named(file):
                values[i] = column.values(numbers, self.n_groups)
        frame = pd.DataFrame(values)
        frame.columns = pd.Index([*values], dtype=object)  # as a fit has it
        if not are_ascending(frame):
            raise ValueError(f"{files[_GROUPS].url} has groups that are not ascending")
        kinds = tuple(column.level_kind for column in self.columns)
        return GroupLevels(kinds, frame, table["n_nominal"], self.refuses_unknown)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedGroups:
    """What the files of a model say of its groups.

    Attributes
    ----------
    levels : GroupLevels
    fitted : FittedGroups
    learned : GroupPreparations, optional
    n_statistics : ndarray of shape (n_groups,), optional
        How many statistics each group compares with, where these are its own.
    """

    levels: GroupLevels
    fitted: FittedGroups
    learned: Any
    n_statistics: NDArray[np.int64] | None

    def in_categories(self, categories: Categories | None) -> Categories:
        """Return the categorical columns of a manifest, with groups."""
        return replace(categories or Categories(), groups=self.levels)

    def in_space(self, space: Space) -> Space:
        """Return the space of a manifest, with groups."""
        groups = self.fitted
        if space.preparation.separates:
            space = replace(space, groups=SearchGroups(groups.n_neighbors, groups.radii))
        if self.learned is None:
            return space
        preparation, basis = replace(space.preparation, groups=self.learned), space.basis
        if preparation.separates:
            basis = replace(basis, groups=self.learned.points())
        return replace(space, preparation=preparation, basis=basis)

    def statistics(
        self, file: StoredFile, values: NDArray[np.float64]
    ) -> GroupStatistics | None:
        """Return the statistics of each group, of those of all; None: they are one.

        Raises
        ------
        ValueError
            If there are not as many as the groups have, or these are not ascending.
        """
        if self.n_statistics is None:
            return None
        starts = np.append(0, np.cumsum(self.n_statistics))
        if starts[-1] != len(values):
            raise ValueError(
                f"{file.url} holds {len(values)} statistics instead of {starts[-1]}"
            )
        return GroupStatistics(values, starts)


def _values_name(i: int) -> str:
    return f"group-values-{i}.parquet"


@contextmanager
def _named(file: StoredFile) -> Iterator[None]:
    """Name the file whose content is wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{file.url} {error}") from error


def _problems(
    table: Mapping[str, NDArray[Any]], division: GroupedSize, statistic: Statistic
) -> Iterator[tuple[bool, str]]:
    """Yield whether the file of groups is wrong, and what it has."""
    n_nominal, n_rows, n_calibration, _ = (table[name] for name in _COUNTS)
    is_part = (n_nominal >= 1) & (n_rows >= 0) & (n_rows <= n_nominal)
    yield not is_part.all(), "groups of no rows, or of more than there are"
    yield n_rows.sum() != division.n_rows, "other rows than the division"
    is_part = (n_calibration >= 0) & (n_calibration <= n_rows)
    is_part &= n_calibration.sum() <= division.n_calibration
    yield not is_part.all(), "more calibration rows than there are"
    if "n_neighbors" in table:
        k, most = table["n_neighbors"], statistic.n_neighbors or 0
        is_range = (k >= 0) & (k <= np.minimum(most, np.maximum(n_rows - 1, 0)))
        yield not is_range.all(), "an n_neighbors that is out of range"
    if "radius" in table:
        radii = table["radius"]
        is_range = np.isnan(radii) | ((radii >= 0) & (radii <= (statistic.radius or 0.0)))
        yield not is_range.all(), "a radius that is out of range"
    if "n_statistics" in table:
        n_statistics = table["n_statistics"]
        is_range = (n_statistics >= 0) & (n_statistics <= n_rows)
        yield not is_range.all(), "more statistics than rows"
    if "is_known" in table:
        yield (
            not np.isin(table["is_known"], (0, 1)).all(),
            "numbers that are no truth values",
        )
