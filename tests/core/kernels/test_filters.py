"""The filter in every form: compiled on this machine, whatever its registers are."""

import functools
import os
import subprocess
import sys

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from choosing import mostly_full
from compiling import said_by
from lpe_dask.kernels import numba_internals
from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.compiled import KERNEL_STATE
from lpe_dask.kernels.filters import build_filter
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, chosen_profile, profile_for

# Which form is taken


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ({"avx512f", "avx512bw", "avx2", "fma", "avx", "sse4.2"}, "avx512"),
        ({"avx512f", "avx512er", "avx2", "fma", "avx", "sse4.2"}, "avx2"),
        ({"avx2", "fma", "avx", "sse4.2"}, "avx2"),
        ({"avx", "sse4.2"}, "avx"),
        ({"avx2", "avx", "sse4.2"}, "avx"),  # without fused multiplication
        ({"sse2"}, "sse"),
        ({"neon", "fp-armv8"}, "neon"),
        (set(), "sse"),
    ],
)
def test_form_for__is_the_best_that_the_processor_has(features, name):
    assert profile_for(features) == name


def test_forms__cut_a_group_into_whole_vectors():
    assert all(LANES % form.width == 0 for form in SIMD_PROFILES.values())


def test_chosen_form__is_that_of_the_machine_unless_configured():
    with dask.config.set({"lpe-dask.vector-form": None}):
        assert chosen_profile() == profile_for(numba_internals.target_features())
    for name in SIMD_PROFILES:
        with dask.config.set({"lpe-dask.vector-form": name}):
            assert chosen_profile() == name


@pytest.mark.parametrize("given", ["avx1024", ["avx2"], {}, 512])
def test_chosen_form__says_which_forms_there_are(given):
    with (
        dask.config.set({"lpe-dask.vector-form": given}),
        pytest.raises(ValueError, match=r"vector-form is .*avx512, avx2, neon, avx, sse"),
    ):
        chosen_profile()


@pytest.mark.parametrize(
    ("features", "of_host", "machine", "name"),
    [
        ("+avx,+avx2,-avx512f,+fma", "+avx512f,+avx512vl", "x86_64", "avx2"),
        ("", "+avx2,+fma", "x86_64", "sse"),
        (None, "+avx,-avx2", "x86_64", "avx"),
        (None, "", "aarch64", "neon"),
        (None, "", "arm64", "neon"),
    ],
)
def test_target_features__are_those_that_numba_uses(
    monkeypatch, features, of_host, machine, name
):
    """As it was configured, or those of the host; all of ARM have neon."""
    monkeypatch.setattr("numba.config.CPU_FEATURES", features)
    monkeypatch.setattr(numba_internals, "get_host_cpu_features", lambda: of_host)
    monkeypatch.setattr("platform.machine", lambda: machine)

    assert profile_for(numba_internals.target_features()) == name


def test_compiled_forms__are_told_apart():
    program = "from lpe_dask.kernels.compiled import KERNEL_STATE; print(KERNEL_STATE)"

    def state(form):
        (printed,), _ = said_by(program, None, DASK_LPE_DASK__VECTOR_FORM=form)
        return printed

    assert state("sse") != state("avx2")
    assert state(chosen_profile()) == KERNEL_STATE


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", SIMD_PROFILES)
def test_searches__have_the_bits_of_the_definition_in_every_form(form, tmp_path):
    """The tests of kernels and searches pass, whatever registers the processor has."""
    environment = {
        **os.environ,
        "DASK_LPE_DASK__VECTOR_FORM": form,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    core = os.path.dirname(os.path.dirname(__file__))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not lifetimes"]

    run = subprocess.run(
        [*command, "kernels", "search"], cwd=core, env=environment, text=True,
        capture_output=True, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]


# Each form compiled


#: To compile one takes more than a second: make test has that of this machine.
FEW_FORMS = mostly_full(SIMD_PROFILES, [chosen_profile()])


# Not cached on disk: numba would not notice that what it calls has changed.
@functools.cache
def _compiled(form):
    """Return a function that sums all features at once, or part after part."""
    sum_part = build_filter(SIMD_PROFILES[form])

    @njit
    def filtered(queries, codes, listed, group, code_group, weights, norms, scales, step,
                 limits, spans, roundings, sums, masks, parts):  # fmt: skip
        k, near = 0, np.uint64(0)
        for i, part in enumerate(parts):
            near = sum_part(
                queries, k, listed, 1, group, k * LANES, part, codes, code_group, 0,
                weights, norms, 0, scales, step, limits, spans, np.float32(0.5), roundings,
                np.float32(2.0), sums, 0, masks, i == 0, i == len(parts) - 1,
            )  # fmt: skip
            k += part
        return near

    return filtered


def _filtered(form, points, rows, norms, limits, parts, codes=(), weights=(), scale=1.0):
    """Return sums of shape (n_queries, 64), their masks as bits, and what was returned.

    Queries are taken from anywhere, in the order of a list; ``codes`` are those of queries
    and of rows. To each limit 3 is added for what rounding may be off.
    """
    n_queries = len(points)
    listed = np.random.default_rng(n_queries).permutation(2 * n_queries)[:n_queries]
    of_queries, of_rows = codes or (np.empty((n_queries, 0)), np.empty((LANES, 0)))

    def spread(values, dtype):
        values = np.asarray(values)
        other = np.full((2 * n_queries, *values.shape[1:]), 77, dtype)
        other[listed] = values
        return other

    n_stored = 2 * sum(parts) + 2
    padded = np.zeros((n_queries, n_stored), np.int16)
    padded[:, : points.shape[1]] = points
    group = np.zeros((LANES, 2 * sum(parts)), np.int16)
    group[:, : rows.shape[1]] = rows
    group = np.ascontiguousarray(group.reshape(LANES, -1, 2).swapaxes(0, 1)).ravel()
    code_group = np.ascontiguousarray(of_rows.T, np.float32).ravel()
    sums, masks = np.full(n_queries * LANES, np.nan, np.float32), np.zeros(n_queries, "u8")
    ones = np.ones(n_queries)
    near = _compiled(form)(
        spread(padded, np.int16), spread(of_queries, np.float32), np.append(-1, listed),
        group, code_group, np.array(weights, np.float32), norms,
        spread(scale * ones, np.float32), np.float32(0.25), spread(limits, np.float32),
        spread(2 * ones, np.float32), spread(ones, np.float32), sums, masks,
        np.array(parts),
    )  # fmt: skip
    bits = (masks[:, None] >> np.arange(LANES, dtype=np.uint64)) & np.uint64(1)
    return sums.reshape(n_queries, LANES), bits.astype(bool), int(near)


@pytest.mark.parametrize("form", FEW_FORMS)
@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    step=st.sampled_from([1.0, 0.5, 0.125]),
    n_codes=st.integers(0, 3),
)
def test_filter__compares_sums_with_limits(form, seed, parts, step, n_codes):
    """Sums of small whole numbers are exact, and often equal to the limit."""
    rng = np.random.default_rng(seed)
    n_features, n_queries = 2 * sum(parts) - rng.integers(2), SIMD_PROFILES[form].queries
    points = rng.integers(-9, 10, (n_queries, n_features))
    rows = rng.integers(-9, 10, (LANES, n_features))
    norms = rng.integers(0, 20, LANES).astype(np.float32)
    norms[rng.random(LANES) < 0.1] = np.nan
    norms[rng.random(LANES) < 0.1] = -np.inf
    expected = norms + step * 0.25 * (points @ rows.T)
    weights = rng.integers(0, 9, n_codes).astype(np.float32)
    codes = rng.integers(-1, 3, (n_queries, n_codes)), rng.integers(0, 3, (LANES, n_codes))
    for j, weight in enumerate(weights):
        expected = expected + weight * (codes[0][:, j, None] != codes[1][:, j])
    limits = rng.choice(expected[np.isfinite(expected)], n_queries).astype(np.float32)
    limits[rng.random(n_queries) < 0.2] = np.inf
    limits[rng.random(n_queries) < 0.2] = np.nan
    limits[rng.random(n_queries) < 0.2] = -np.inf

    sums, masks, near = _filtered(
        form, points, rows, norms, limits - 3, parts, codes, weights, step
    )

    within = expected <= limits[:, None]
    assert [bool(near >> q & 1) for q in range(n_queries)] == within.any(axis=1).tolist()
    if near:
        np.testing.assert_array_equal(masks, within)
    np.testing.assert_array_equal(sums[within], expected[within])


@pytest.mark.parametrize("form", FEW_FORMS)
@pytest.mark.parametrize("n_features", [1, 7, 62, 300])
def test_filter__multiplies_the_largest_numbers(form, n_features):
    """Sums of their products are exact in 32 bits as long as points are no longer."""
    rng = np.random.default_rng(n_features)
    n_queries = SIMD_PROFILES[form].queries
    largest = int(32767 / np.sqrt(n_features))
    points = largest * rng.choice([-1, 1], (n_queries, n_features))
    rows = largest * rng.choice([-1, 1], (LANES, n_features))
    rows[:n_queries] = points
    norms, limits = np.zeros(LANES, np.float32), np.full(n_queries, np.inf, np.float32)
    n_pairs = -(-n_features // 2)

    for parts in ([n_pairs], [1, n_pairs - 1]):
        if min(parts) > 0:
            sums, _, _ = _filtered(form, points, rows, norms, limits, parts, scale=4.0)
            exact = (points @ rows.T).astype(np.float32)
            np.testing.assert_allclose(sums, exact, rtol=2.0**-22, atol=2**8)


@pytest.mark.parametrize("form", FEW_FORMS)
def test_filter__touches_nothing_where_no_row_is_near(form):
    n_queries = SIMD_PROFILES[form].queries
    points, rows = np.ones((n_queries, 3)), np.ones((LANES, 3))
    limits = np.full(n_queries, -3, np.float32)

    sums, masks, near = _filtered(
        form, points, rows, np.ones(LANES, np.float32), limits, [2]
    )

    assert near == 0
    assert np.isnan(sums).all()
    assert not masks.any()
