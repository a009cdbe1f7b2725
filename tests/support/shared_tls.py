"""One TLS context for all clients of httpx, and so of the SDKs, that trust the same authorities.

A context takes several milliseconds, and nearly all clients of tests open connections without TLS.
"""

import os
from functools import cache
from typing import Any

from httpx import _config
from httpx._transports import default

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def share() -> None:
    """Let clients in this process that choose no authorities or certificate of their own share a context."""
    default.create_ssl_context = create_ssl_context  # type: ignore[attr-defined]


def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
    if verify is not True or cert is not None:
        return _config.create_ssl_context(verify, cert, trust_env)
    return _default_context(trust_env, tuple(os.environ.get(name) for name in VARIABLES))


@cache
def _default_context(trust_env: bool, places: tuple[str | None, ...]) -> Any:
    return _config.create_ssl_context(trust_env=trust_env)
