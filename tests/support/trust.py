"""HTTP clients of the tests without the certificates of public authorities.

Every client of httpx and of the SDKs reads the whole bundle when it is made, some 20 ms of work, even for an address
without TLS. Nothing here calls a public host: what speaks TLS brings a certificate of its own.
"""

import ssl
from typing import Any

import certifi


def without_public_authorities() -> None:
    """From now on the bundles of certifi and of the system count as empty in this process."""
    paths = ssl.get_default_verify_paths()
    public = {certifi.where(), paths.openssl_cafile, paths.cafile, "/etc/ssl/certs/ca-certificates.crt"} - {None}
    load = ssl.SSLContext.load_verify_locations

    def load_own(self: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if cafile not in public or cadata is not None:
            load(self, cafile, capath, cadata)

    ssl.SSLContext.load_verify_locations = load_own  # type: ignore[method-assign]
