"""cluster/tls/: a cluster that nobody joins without a certificate."""

import shutil
import subprocess

import pytest

from digests import parts_in
from lpe_dask.cli.outcome import INVALID_INPUT
from recipes import CLUSTER, DAY, commands_of, local_places, parts_by_threads, terminal

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")


def make_certificates(folder):
    subprocess.run(
        ["bash", CLUSTER / "tls" / "certificates.sh", folder],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


@pytest.mark.cluster
def test_page__gives_the_bits_of_threads_and_strangers_get_nothing(
    tmp_path, logs, monkeypatch
):
    monkeypatch.setenv("LPE_DATA", str(logs))
    expected = parts_by_threads(CLUSTER / "local" / "nightly.toml", tmp_path / "expected")
    places = {"/srv/logs": str(logs), "/srv/tls": str(tmp_path / "tls")}

    with terminal(tmp_path, places | local_places()) as opened:
        opened.type_all("tls")
        assert parts_in(logs / "out" / str(DAY)) == expected

        run = commands_of("tls")[-1].replace(str(DAY), "2026-11-21")
        shutil.copytree(logs / "in" / str(DAY), logs / "in" / "2026-11-21")
        del opened.environment["DASK_CONFIG"]
        without = opened.type(run)
        make_certificates(tmp_path / "others")
        others = (CLUSTER / "tls" / "dask.yaml").read_text()
        others = others.replace("/srv/tls", str(tmp_path / "others"))
        (tmp_path / "others.yaml").write_text(others)
        opened.environment["DASK_CONFIG"] = str(tmp_path / "others.yaml")
        of_others = opened.type(run)

    assert without.returncode == INVALID_INPUT, without.stderr
    assert of_others.returncode == INVALID_INPUT, of_others.stderr
    assert [path.name for path in (logs / "out").glob("2*")] == [str(DAY)]


@pytest.mark.parametrize(
    ("role", "is_server"), [("scheduler", True), ("worker", True), ("client", False)]
)
def test_certificates__of_clients_are_for_clients_only(tmp_path, role, is_server):
    make_certificates(tmp_path)

    def is_good_for(purpose):
        command = ["openssl", "verify", "-CAfile", "ca.pem", "-purpose", purpose]
        done = subprocess.run([*command, f"{role}.pem"], cwd=tmp_path, capture_output=True)
        return done.returncode == 0

    assert is_good_for("sslclient")
    assert is_good_for("sslserver") == is_server


def test_certificates__keep_their_keys_to_their_owner(tmp_path):
    make_certificates(tmp_path)

    keys = list(tmp_path.glob("*.key"))
    assert len(keys) == 4
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
