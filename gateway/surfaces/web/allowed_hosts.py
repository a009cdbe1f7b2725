"""The host names that the gateway accepts. They protect against DNS rebinding, where a page points its own name at this
address."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from gateway.errors import GatewayError, InvalidRequest
from gateway.telemetry.finished import PROBE_PATHS

WILDCARD_PREFIX = "*."


class Hosts:
    """The names in `allowed` (`*.example.com` covers all subdomains) and that of `public_url`; any name when `allowed`
    is empty."""

    def __init__(self, allowed: Iterable[str] = (), public_url: str = "") -> None:
        names = {name.strip().lower() for name in allowed}
        self._any = not names or "*" in names
        self._below = tuple(name[1:] for name in names if name.startswith(WILDCARD_PREFIX))
        self._names = names | {urlsplit(public_url).hostname or ""} - {""}

    def allows(self, host: str, path: str) -> bool:
        """Return whether a request for `path` with the Host header `host` is accepted."""
        if self._any or path in PROBE_PATHS:  # load balancers request these under any address
            return True
        name = host.strip().lower()
        name = name.partition("]")[0].lstrip("[") if name.startswith("[") else name.partition(":")[0]
        return name in self._names or (bool(self._below) and name.endswith(self._below))


def refuse_host() -> GatewayError:
    """Return the error for a request with a host name that is not allowed."""
    return InvalidRequest(
        "This host name is not allowed; the operator lists allowed host names in GATEWAY_ALLOWED_HOSTS.",
        code="host_not_allowed",
        status=421,
    )
