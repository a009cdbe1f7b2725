"""Where a request may come from: the caller's address behind proxies, the accepted host names, and CORS for pages of
other origins."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from gateway.configuration.settings import Server
from gateway.errors import GatewayError, InvalidRequest
from gateway.telemetry.request_observers import PROBE_PATHS

ANY_PROXY = "*"
CACHE_SIZE = 4096


class Proxies:
    """The trusted proxies. `header` (lower case, "" = none) is where each proxy appends the address that it saw, `hops`
    the number of proxies in a row: entries further to the left are the caller's own claims."""

    def __init__(self, header: str = "", networks: Iterable[str] = (), hops: int = 1) -> None:
        self._header = header.lower()
        self.named = bool(header)
        self._hops = max(1, hops)
        given = tuple(networks)
        self._open = ANY_PROXY in given
        self._networks = tuple(ip_network(network, strict=False) for network in given if network != ANY_PROXY)
        self.trusts = lru_cache(CACHE_SIZE)(self._trusts)

    def caller(self, peer: str, headers: Mapping[str, str]) -> str:
        """Return the caller's address; "" if it cannot be determined, which fails every rule on addresses. `peer` is
        the socket's address: the caller itself, unless it is a trusted proxy that reports another one."""
        named = headers.get(self._header) if self._header else None
        if named is None or not self.trusts(peer):
            return peer
        entries = named.split(",")
        if len(entries) >= self._hops:
            return read_address(entries[-self._hops])
        return ""

    def _trusts(self, peer: str) -> bool:
        """Return whether `peer` is a trusted proxy. A Unix socket has no address and is trusted."""
        if self._open or not peer:
            return True
        text = read_address(peer)
        if not text:
            return False
        address = ip_address(text)
        return any(address in network for network in self._networks)


def make_proxies(server: Server) -> Proxies:
    """Return the trusted proxies from the settings."""
    return Proxies(server.client_ip_header, server.trusted_proxies, server.proxy_hops)


def read_address(text: str) -> str:
    """Return an address without port, brackets or zone, an IPv4-mapped IPv6 address as IPv4; "" for any other text."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


# The host names that the gateway accepts. They protect against DNS rebinding, where a page points its own name at this
# address.

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


# CORS (Fetch standard): lets pages of other origins call the routes that take API keys.
#
# An API key is sent by the page's own code and never by the browser itself, so any origin may be allowed: there are no
# ambient credentials that a foreign page could abuse. Routes that accept a cookie are excluded for that reason.

Headers = list[tuple[str, str]]

KEY_ROUTES = ("/v1/", "/v1beta/", "/v3/ai/", "/v4/ai/")
TOOLS = "/mcp"
# Applications in a page call these without browser credentials: their codes and secrets are in the body.
APPLICATIONS = ("/oauth/register", "/oauth/token", "/oauth/revoke")
DOCUMENTS = ("/.well-known/", f"{TOOLS}/.well-known/")
ANY_ORIGIN = "*"
VARY = ("Vary", "Origin")
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
# Longer than any browser accepts; each has its own cap (Fetch, 4.9).
REMEMBER = ("Access-Control-Max-Age", "86400")
ASKED_HEADERS = "access-control-request-headers"
# "*" covers every header but this one (Fetch, 4.8). It is added for clients that request none by name.
ALL_HEADERS = "*, Authorization"


class Browsers:
    """The allowed origins: all with "*", none when empty."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.rstrip("/") for origin in origins)
        self._open = ANY_ORIGIN in self._origins

    def headers(self, origin: str) -> Headers:
        """Return the CORS headers of a response to a page of `origin`."""
        if self._open:
            allowed = ANY_ORIGIN
        elif origin in self._origins:
            allowed = origin
        else:
            return [VARY]
        return [("Access-Control-Allow-Origin", allowed), ("Access-Control-Expose-Headers", ANY_ORIGIN), VARY]

    def preflight(self, request_headers: Mapping[str, str]) -> Headers:
        """Return the headers of the response to a preflight request with the headers `request_headers`."""
        headers = self.headers(request_headers.get("origin", ""))
        if headers == [VARY]:
            return headers
        allowed = ("Access-Control-Allow-Headers", request_headers.get(ASKED_HEADERS, "") or ALL_HEADERS)
        return [*headers, ("Access-Control-Allow-Methods", METHODS), allowed, REMEMBER]


def takes_keys(path: str) -> bool:
    """Return whether a path is called with API keys, with tokens that replace them, or without credentials."""
    return path.startswith(KEY_ROUTES) or path == TOOLS or path in APPLICATIONS or is_document(path)


def is_document(path: str) -> bool:
    """Return whether the path is a public discovery document."""
    return path.startswith(DOCUMENTS)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers
