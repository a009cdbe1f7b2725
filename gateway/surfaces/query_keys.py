"""API keys in the address (`?key=`), as clients of Gemini's API may send them.

They become a header before anything else sees the request, so that no log, trace, error or digest contains them.
"""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_plus

NAME = "key"
PARAMETER_START = f"{NAME}="
HEADER_KEY = "HTTP_X_GOOG_API_KEY"
PREFIXES = ("/v1beta/", "/v1/models")


def hide_key(environ: MutableMapping[str, Any]) -> None:
    """Move a key from the query of a WSGI environ to a header; one in a header takes precedence."""
    query = environ.get("QUERY_STRING", "")
    if PARAMETER_START not in query:
        return
    path = environ.get("PATH_INFO", "").replace("//", "/")
    if not path.startswith(PREFIXES):
        return
    kept: list[str] = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name == NAME:
            environ.setdefault(HEADER_KEY, unquote_plus(value).strip())
        else:
            kept.append(pair)
    environ["QUERY_STRING"] = "&".join(kept)
    for raw in ("RAW_URI", "REQUEST_URI"):
        if raw in environ:
            address = environ[raw].partition("?")[0]
            environ[raw] = f"{address}?{environ['QUERY_STRING']}" if kept else address
