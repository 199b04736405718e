"""Encryption between command, scheduler and workers."""

from __future__ import annotations

import re
import ssl

from distributed.security import Security


def check_address(address: str) -> None:
    """Raise if the address of a scheduler needs what the configuration does not have.

    `distributed` would find that out while it connects, and then wait for 20 seconds.

    Raises
    ------
    ValueError
        Names the keys of the configuration.
    """
    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the certificates of Dask's configuration (distributed.comm.tls) cannot be "
            f"read: {error}. Name PEM files that this user can read."
        ) from error
    if address.startswith("tls://") and context is None:
        raise ValueError(
            f"the scheduler {address} needs a certificate, but Dask's configuration has "
            f"none. Name PEM files there, as distributed.comm.tls.ca-file, client.cert and "
            f"client.key, or as DASK_DISTRIBUTED__COMM__TLS__CA_FILE and so on."
        )


def is_of_certificates(error: BaseException | None) -> bool:
    """Return whether an error of connecting came from certificates that do not match."""
    while error is not None:
        # Of some, only the text is left.
        if isinstance(error, ssl.SSLError) or re.search("SSL|TLS cert", str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def of_local_cluster() -> Security:
    """Return the security of a cluster on this machine that is about to start.

    By the certificates of the configuration, if it has them for all roles, or else by one
    that is made for this cluster and is known to its processes only.
    """
    security = Security(require_encryption=True)
    roles = ("client", "scheduler", "worker")
    contexts = [security.get_listen_args(role)["ssl_context"] for role in roles]
    return Security.temporary() if None in contexts else security
