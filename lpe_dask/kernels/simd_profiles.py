"""How many pairs are compared in registers at a time: as many as a processor has room for.

Beside its sums, ``queries`` times ``width`` of them, a filter needs registers for ``width``
reference rows and for a coordinate of a query. Sums that do not fit are stored and loaded
at each feature, which takes three times as long as the arithmetic. No result depends on the
form.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import dask

from lpe_dask.kernels.numba_internals import target_features


@dataclass(frozen=True, slots=True)
class SimdProfile:
    """The shape of a filter, and the processors that it is for.

    Attributes
    ----------
    features : frozenset of str
        What the processor must have, by LLVM's names.
    width : int
        Reference rows that are compared at a time; a divisor of 64.
    queries : int
        Queries that they are compared with.
    """

    features: frozenset[str]
    width: int
    queries: int


#: By name, best first. All but "neon" were measured beside other widths and numbers of
#: queries; of "neon" only the assembly was looked at.
SIMD_PROFILES = {
    # 32 registers of 16 numbers: 24 for sums, 4 for rows. A coordinate needs none, as it is
    # repeated from memory by the instruction that multiplies it.
    "avx512": SimdProfile(frozenset({"avx512f"}), 64, 6),
    # 16 registers of 8 numbers: 12 for sums, 2 for rows, 1 for a coordinate.
    "avx2": SimdProfile(frozenset({"avx2", "fma"}), 16, 6),
    # 32 registers of 4 numbers: 24 for sums, 4 for rows, 2 for six coordinates, each of
    # which the instruction that multiplies picks for itself.
    "neon": SimdProfile(frozenset({"neon"}), 16, 6),
    # Without fused multiplication a product needs a register, too: 10 for sums.
    "avx": SimdProfile(frozenset({"avx"}), 16, 5),
    # The same with 4 numbers each. Also what processors unknown to this table get.
    "sse": SimdProfile(frozenset(), 8, 5),
}


def chosen_profile() -> str:
    """Return the name of the form to compile: as configured, or the best for this machine.

    Raises
    ------
    ValueError
        If ``lpe-dask.vector-form`` is not a name of `SIMD_PROFILES`.
    """
    name: Any = dask.config.get("lpe-dask.vector-form", None)
    if name is None:
        return profile_for(target_features())
    if not isinstance(name, str) or name not in SIMD_PROFILES:
        known = ", ".join(SIMD_PROFILES)
        raise ValueError(
            f"the configuration key lpe-dask.vector-form is {name!r}; it must be null or "
            f"one of {known}."
        )
    return name


def profile_for(features: Collection[str]) -> str:
    """Return the name of the best form for a processor with these features.

    Examples
    --------
    >>> profile_for({"sse4.2", "avx", "avx2", "fma"})
    'avx2'
    """
    return next(
        name for name, form in SIMD_PROFILES.items() if form.features <= set(features)
    )
