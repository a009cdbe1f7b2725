"""Creates HTTP clients in tests without the certificates of public authorities.

Every client of httpx and of the SDKs reads the whole bundle, which takes some 20 ms, even for a URL without TLS. The
tests call no public host, and tests with TLS use their own certificates.
"""

import ssl
from typing import Any

import certifi


def without_public_authorities() -> None:
    """Replace the bundles of certifi and of the system by empty ones in this process."""
    paths = ssl.get_default_verify_paths()
    public = {certifi.where(), paths.openssl_cafile, paths.cafile, "/etc/ssl/certs/ca-certificates.crt"} - {None}
    load = ssl.SSLContext.load_verify_locations

    def load_own(self: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if cafile not in public or cadata is not None:
            load(self, cafile, capath, cadata)

    ssl.SSLContext.load_verify_locations = load_own  # type: ignore[method-assign]
