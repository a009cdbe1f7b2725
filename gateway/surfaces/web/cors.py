"""CORS (Fetch standard): lets pages of other origins call the routes that take API keys.

An API key is sent by the page's own code and never by the browser itself, so any origin may be allowed: there are no
ambient credentials that a foreign page could abuse. Routes that accept a cookie are excluded for that reason.
"""

from collections.abc import Iterable, Mapping

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
