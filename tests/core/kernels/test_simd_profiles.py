import os
import subprocess
import sys

import dask
import pytest

from compiling import said_by
from lpe_dask.kernels import numba_internals
from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.compiled import KERNEL_STATE
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, chosen_profile, profile_for


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ({"avx512f", "avx512vl", "avx2", "fma", "avx", "sse4.2"}, "avx512"),
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


def test_target_features__are_those_that_numba_was_told(monkeypatch):
    monkeypatch.setattr("numba.config.CPU_FEATURES", "+avx,+avx2,-avx512f,+fma")

    assert numba_internals.target_features() == {"avx", "avx2", "fma"}


def test_target_features__are_none_where_numba_was_told_none(monkeypatch):
    monkeypatch.setattr("numba.config.CPU_FEATURES", "")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    assert profile_for(numba_internals.target_features()) == "sse"


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_target_features__of_arm_have_neon(machine, monkeypatch):
    monkeypatch.setattr("numba.config.CPU_FEATURES", None)
    monkeypatch.setattr(numba_internals, "get_host_cpu_features", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: machine)

    assert profile_for(numba_internals.target_features()) == "neon"


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
