"""How many pairs are compared in registers at a time: as many as a processor has room for.

Beside its sums, ``queries`` times ``width`` of them, a filter needs registers for ``width``
reference rows and for two coordinates of a query. Sums that do not fit are stored and
loaded at each feature, which takes three times as long as the arithmetic. No result depends
on the form.
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
    lanes : int
        Sums of a register.
    product : str, optional
        What multiplies whole numbers of 16 bits and adds them up in twos, as LLVM names it;
        None: it has to find out itself.
    """

    features: frozenset[str]
    width: int
    queries: int
    lanes: int = 4
    product: str | None = None


#: By name, best first. "avx512" and "avx2" were timed with whole numbers of 16 bits, the
#: others not; "neon" was not run with them.
SIMD_PROFILES = {
    # 32 registers of 16 sums: 24 for these, 4 for rows. Where there is an instruction that
    # multiplies and adds up (VNNI), LLVM takes it.
    "avx512": SimdProfile(
        frozenset({"avx512f", "avx512bw"}), 64, 6, 16, "llvm.x86.avx512.pmaddw.d.512"
    ),
    # 16 registers of 8 sums: 12 for these, 2 for rows, 1 for a query, 1 for products.
    "avx2": SimdProfile(frozenset({"avx2", "fma"}), 16, 6, 8, "llvm.x86.avx2.pmadd.wd"),
    # 32 registers of 4 sums: 24 for these, 4 for rows.
    "neon": SimdProfile(frozenset({"neon"}), 16, 6),
    # 16 registers of 4 sums: 10 for these, 2 for rows, 1 for a query, 1 for products.
    "avx": SimdProfile(frozenset({"avx"}), 8, 5, product="llvm.x86.sse2.pmadd.wd"),
    # The same. Also what processors unknown to this table get.
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
