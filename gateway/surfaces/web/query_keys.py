"""Credentials at unusual places of a request: API keys in the address (`?key=`), as clients of Gemini's API may send
them, and tokens in headers that are logged, stored or relayed.

The key leaves the address before anything else sees the request, so that no log, trace, error or digest contains it.
"""

import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_plus

from gateway.secret_text import hide_tokens

NAME = "key"
HEADER_KEY = "HTTP_X_GOOG_API_KEY"
HEADER_START = "HTTP_"
GEMINI_PATHS = ("/v1beta/", "/v1/models")
SLASHES = re.compile("//+")
# Headers in which a token is a credential, and one that is compared with itself only.
CREDENTIALS = frozenset(
    (
        *("HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE", "HTTP_X_API_KEY", HEADER_KEY),
        *("HTTP_API_KEY", "HTTP_SEC_WEBSOCKET_PROTOCOL", "HTTP_IDEMPOTENCY_KEY"),
    )
)


def hide_credentials(environ: MutableMapping[str, Any]) -> None:
    """Remove a key from the query of a WSGI environ, whatever the path and the spelling. At paths of Gemini's API it
    becomes a header, unless there is one; elsewhere a key in an address opens nothing. Hide the gateway's tokens in all
    headers that hold no credentials."""
    query = environ.get("QUERY_STRING", "")
    if query and ("key" in query.lower() or "%" in query):
        _move_key(environ, query)
    for name, value in list(environ.items()):
        if name.startswith(HEADER_START) and name not in CREDENTIALS:
            shown = hide_tokens(value)
            if shown is not value:
                environ[name] = shown


def _move_key(environ: MutableMapping[str, Any], query: str) -> None:
    opens = SLASHES.sub("/", environ.get("PATH_INFO", "")).lower().startswith(GEMINI_PATHS)
    kept: list[str] = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if unquote_plus(name).strip().lower() == NAME:
            if opens:
                environ.setdefault(HEADER_KEY, unquote_plus(value).strip())
        else:
            kept.append(pair)
    rest = "&".join(kept)
    if rest == query:
        return
    environ["QUERY_STRING"] = rest
    for raw in ("RAW_URI", "REQUEST_URI"):
        if raw in environ:
            address = environ[raw].partition("?")[0]
            environ[raw] = f"{address}?{rest}" if kept else address
