"""What `python -m build` makes: what is in it, and that it works in an empty environment.

There is no compiler, no checkout, and no package but those that pip takes from its index.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from lpe_dask import __version__
from recipes import ROOT

pytestmark = pytest.mark.timeout(600)

#: Scores by the distance to the nearest row, counted by hand: those of the nominal rows
#: are 1, 1, 2, 4 and 8, along their graph as well. Walks along a graph are compiled.
SCORE = """
import dask.array as da
import numpy as np
import lpe_dask

nominal = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
rows = da.from_array(np.array([[0.5], [17.0], [20.0], [99.0]]), chunks=2)
for metric in ("euclidean", "geodesic"):
    model = lpe_dask.LPE(1, metric=metric, calibration="loo").fit(nominal)
    print(model.score_samples(rows).compute().tolist())
print(lpe_dask.__file__)
"""

CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text())
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
VERSIONS = re.findall(r"Python :: (3\.\d+)", " ".join(CONTENT["project"]["classifiers"]))

#: Variables by which pip finds its index and its cache.
KEPT = re.compile(r"HOME|LANG|PIP_.*|SSL_.*|REQUESTS_CA_BUNDLE|(?i:\w+_proxy)")


def run(*command, path="", **options):
    """Run a command where no compiler is found, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    no_compiler = {"CC": "/bin/false", "CXX": "/bin/false", "PATH": str(path)}
    done = subprocess.run(
        command, env=kept | no_compiler, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def files():
    """Paths of what git knows, or would add."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in names.stdout.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(files, tmp_path_factory):
    """The wheel and the sdist of a copy: setuptools writes into what it builds."""
    folder = tmp_path_factory.mktemp("built")
    needed = CONTENT["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps"]
    pip += ["--dest", folder / "needed", *needed]
    found = subprocess.run(pip, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"pip reaches no index: {found.stderr.strip().splitlines()[-1]}")
    for name in files:
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--outdir", folder, folder / "source", cwd=folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return SimpleNamespace(wheel=wheel, sdist=sdist)


def interpreter(version):
    """Return a Python of a version that runs, from PATH or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    folders = [*os.get_exec_path(), *pyenv.glob(f"versions/{version}.*/bin")]
    for program in (Path(folder) / f"python{version}" for folder in folders):
        show = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if program.exists() and subprocess.run(show, capture_output=True).returncode == 0:
            return program
    pytest.skip(f"there is no Python {version} on PATH, nor among the versions of pyenv")


def environment(python, folder):
    """Make an environment with nothing in it, and return its folder of programs."""
    subprocess.run([python, "-m", "venv", folder], check=True, capture_output=True)
    return folder / "bin"


def install(programs, *arguments):
    """Install wheels: a dependency that is not there as one would have to be compiled."""
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    run(*pip, *arguments, path=programs)


@pytest.fixture(scope="module")
def programs(built, tmp_path_factory):
    """The programs of an environment where the wheel is installed."""
    programs = environment(sys.executable, tmp_path_factory.mktemp("environment"))
    install(programs, "--only-binary", ":all:", built.wheel)
    return programs


def assert_works(programs, folder):
    """Do what a user would do first, far from the checkout."""
    command = programs / "lpe-dask"
    assert run(command, "--version", path=programs) == f"lpe-dask, version {__version__}\n"
    demo = run(command, "demo", "--output", "demo", path=programs, cwd=folder)
    assert "Found: 6 of 6 malignant tumors." in demo
    assert (folder / "demo" / "scores" / "_report.html").exists()
    scored = run(programs / "python", "-c", SCORE, path=programs, cwd=folder)
    *p_values, where = scored.splitlines()
    assert p_values == 2 * ["[1.0, 0.6, 0.2, 0.0]"]
    assert Path(where).is_relative_to(programs.parent)
    assert [*programs.parent.rglob("lpe_dask/**/*.nbc")]  # what Numba has compiled


def installed(programs):
    """Return the digests of the installed files, by name."""
    [record] = programs.parent.glob("lib/*/site-packages/lpe_dask-*/RECORD")
    lines = csv.reader(record.read_text().splitlines())
    return {name: digest for name, digest, _ in lines if name.startswith("lpe_dask/")}


def test_wheel__has_the_package_and_nothing_else(built, files):
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    package = {name for name in names if ".dist-info/" not in name}

    assert package == {name for name in files if name.startswith("lpe_dask/")}
    assert {Path(name).suffix or Path(name).name for name in package} == {
        ".css", ".jinja", ".py", ".pyi", ".typed", ".yaml",
    }  # fmt: skip
    assert f"lpe_dask-{__version__}.dist-info/licenses/LICENSE" in names


def test_sdist__has_the_package_and_what_says_whose_it_is(built, files):
    with tarfile.open(built.sdist) as sdist:
        names = {of.name.partition("/")[2] for of in sdist.getmembers() if of.isfile()}
    made = {"PKG-INFO", "setup.cfg"} | {
        n for n in names if n.startswith("lpe_dask.egg-info/")
    }
    others = "CHANGELOG.md CITATION.cff LICENSE MANIFEST.in README.md pyproject.toml"

    assert names - made == {n for n in files if n.startswith("lpe_dask/")} | {
        *others.split()
    }


def test_wheel__works_in_an_empty_environment(programs, tmp_path):
    assert_works(programs, tmp_path)


def test_sdist__installs_the_same(built, programs, tmp_path):
    of_wheel = installed(programs)

    install(programs, "--no-deps", "--force-reinstall", built.sdist)

    assert installed(programs) == of_wheel
    assert_works(programs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != THIS])
def test_wheel__works_with_other_versions_of_python(built, version, tmp_path):
    programs = environment(interpreter(version), tmp_path / "environment")

    install(programs, "--only-binary", ":all:", built.wheel)

    assert_works(programs, tmp_path)
