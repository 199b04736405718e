"""Encryption: certificates of the configuration, or one for a cluster on this machine."""

import ssl

import dask
import pytest

from lpe_dask.cli.security import check_address, is_of_certificates, of_local_cluster

REQUIRED = {"distributed.comm.require-encryption": True}
ADDRESS = "127.0.0.1:1"


def test_check_address__lets_plain_addresses_pass_where_nothing_is_required():
    check_address(f"tcp://{ADDRESS}")


@pytest.mark.parametrize(
    "raised",
    [
        OSError("TLS certificate does not match"),
        ssl.SSLEOFError("EOF"),
        OSError("in <TLSConnector>: SSLError: [SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert"),
    ],
)
def test_is_of_certificates__looks_at_all_causes(raised):
    try:
        try:
            raise raised
        except OSError as error:
            raise OSError("timed out") from error
    except OSError as error:
        outer = error

    assert is_of_certificates(outer)
    assert not is_of_certificates(OSError("timed out"))


def test_of_local_cluster__makes_a_certificate():
    made = of_local_cluster()

    assert made.require_encryption
    assert "BEGIN CERTIFICATE" in made.tls_scheduler_cert
    assert made.tls_scheduler_key != of_local_cluster().tls_scheduler_key


@pytest.mark.parametrize("required", [{}, REQUIRED])
def test_of_local_cluster__takes_certificates_that_are_configured(tmp_path, required):
    made = of_local_cluster()
    (tmp_path / "cert.pem").write_text(made.tls_scheduler_cert)
    (tmp_path / "key.pem").write_text(made.tls_scheduler_key)
    tls = {"distributed.comm.tls.ca-file": str(tmp_path / "cert.pem")}
    for role in ("client", "scheduler", "worker"):
        tls[f"distributed.comm.tls.{role}.cert"] = str(tmp_path / "cert.pem")
        tls[f"distributed.comm.tls.{role}.key"] = str(tmp_path / "key.pem")

    with dask.config.set(required | tls):
        taken = of_local_cluster()
        check_address(f"tls://{ADDRESS}")

    assert taken.tls_worker_cert == str(tmp_path / "cert.pem")
    assert taken.require_encryption


def test_of_local_cluster__makes_its_own_where_a_role_has_none(tmp_path):
    made = of_local_cluster()
    (tmp_path / "cert.pem").write_text(made.tls_scheduler_cert + made.tls_scheduler_key)
    tls = {
        "distributed.comm.tls.ca-file": str(tmp_path / "cert.pem"),
        "distributed.comm.tls.client.cert": str(tmp_path / "cert.pem"),
    }

    with dask.config.set(tls):
        assert "BEGIN CERTIFICATE" in of_local_cluster().tls_client_cert
