"""The days of an option: one, or a range of them."""

from __future__ import annotations

import datetime
from typing import Any

import click


class DayRange(click.DateTime):
    """A day, or the first and the last day of a range: 2026-11-01..2026-11-10."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d"])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the day as a datetime, or a list of the days of a range, in order."""
        if not isinstance(value, str) or ".." not in value:
            return super().convert(value, param, ctx)
        try:
            first, last = (
                super(DayRange, self).convert(day, param, ctx).date()
                for day in value.split("..")
            )
        except (ValueError, click.BadParameter):
            self.fail(
                f"{value!r} is no range of days. Write its first and its last day, for "
                f"example 2026-11-01..2026-11-10.", param, ctx,
            )  # fmt: skip
        from lpe_dask.batch import MAX_RANGE_DAYS

        n_days = (last - first).days + 1
        if n_days < 1:
            self.fail(
                f"the range {value} ends before it begins. Write the earlier day first.",
                param, ctx,
            )  # fmt: skip
        if n_days > MAX_RANGE_DAYS:
            self.fail(
                f"the range {value} has {n_days} days; at most {MAX_RANGE_DAYS} are "
                f"allowed. Do a part of it first.", param, ctx,
            )  # fmt: skip
        return [first + datetime.timedelta(days=i) for i in range(n_days)]
