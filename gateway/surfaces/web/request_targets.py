"""Targets of requests: paths are normalized, a model in the path is found, and credentials at unusual places are moved.

A trailing slash, doubled slashes, a missing or doubled `/v1`, and aliases are accepted. Clients join a base URL and a
path, and people give the base with `/v1`, without it, or with a slash too many. The meaning is clear, so it is served
at once: a redirect would make most clients repeat a POST as a GET.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Self
from urllib.parse import unquote_plus

import orjson

from gateway.secret_text import hide_tokens
from gateway.surfaces.web.http import Inbound, Outbound, Surface

# A model that is named in the path of a request, as clients of Azure do, instead of in its body.

Handler = Callable[[Inbound], Outbound]

# The environ's key for the model in the path that the caller used.
PATH_MODEL = "gateway.path_model"
START_OF_OBJECT = re.compile(rb"\s*{(\s*\Z)?")


def use_path_model(handler: Handler, model: str) -> Handler:
    """Return `handler` for requests to a path that names `model`."""

    def handle(inbound: Inbound) -> Outbound:
        inbound.body = set_model(inbound.body, model)
        return handler(inbound)

    return handle


def set_model(body: bytes, model: str) -> bytes:
    """Return a JSON object with `model` as its last member, which takes precedence over an earlier one, as the path
    does at Azure. Any other body is returned as it is."""
    end = body.rfind(b"}")
    start = START_OF_OBJECT.match(body, 0, max(end, 0))
    if start is None or body[end + 1 :].strip():
        return body
    comma = b"" if start[1] is not None else b","
    # A large body is copied only once.
    return b"".join((memoryview(body)[:end], comma, b'"model":', orjson.dumps(model), b"}"))


VERSION = "/v1"
SLASHES = re.compile("/{2,}")
VERSIONED = re.compile(rf"\A{VERSION}(?=/)")
REPEATED_VERSION = re.compile(rf"\A(?:{VERSION})+(?={VERSION}/)")
MAX_PATH_LENGTH = 60  # characters of a path that is compared; a longer one is not a misspelling
MIN_SIMILARITY = 0.85
NO_ALIASES: Mapping[str, str] = {}
VARIABLE = re.compile(r"<(path:)?(\w+)>")


class Addresses:
    """The paths of some operations (`<name>` and `<path:name>` stand for variables). `aliases`: other beginnings of
    paths, which may have a variable `model`, with those that serve them."""

    def __init__(self, paths: Iterable[str], aliases: Mapping[str, str] = NO_ALIASES) -> None:
        given = set(paths)
        self._aliases = [
            (re.compile(rf"{_pattern(alias, '(?P<{}>{})')}(?=/|\Z)"), own) for alias, own in aliases.items()
        ]
        self._exact = {path for path in given if "<" not in path}
        self._varied = re.compile("|".join(sorted(map(_pattern, given - self._exact))) or "(?!)", re.DOTALL)

    @classmethod
    def of(cls, surfaces: Iterable[Surface]) -> Self:
        """Return the paths of the operations of these surfaces, and their aliases."""
        aliases: dict[str, str] = {}
        paths: list[str] = []
        for surface in surfaces:
            aliases |= surface.aliases
            paths += [operation.path for operation in surface.operations]
        return cls(paths, aliases)

    def settle(self, path: str) -> str:
        """Return the operation's own spelling of a misspelled `path`; any other path unchanged."""
        if path in self._exact:
            return path
        tidy = SLASHES.sub("/", path).rstrip("/") or "/"
        alias = self._match_alias(tidy)
        if alias is not None:
            match, own = alias
            tidy = own + match.string[match.end() :]
        tidy = REPEATED_VERSION.sub("", tidy, 1)
        for meant in (tidy, VERSION + tidy):
            if meant in self._exact or self._varied.fullmatch(meant):
                return meant
        return path

    def model_of(self, path: str) -> str:
        """Return the model that an alias names in `path`; "" when there is none."""
        alias = self._match_alias(SLASHES.sub("/", path).rstrip("/"))
        return alias[0].groupdict().get("model", "") if alias else ""

    def _match_alias(self, path: str) -> tuple[re.Match[str], str] | None:
        bare = VERSIONED.sub("", path)  # a base URL may end with it
        matches = ((alias.match(bare), own) for alias, own in self._aliases)
        return next(((match, own) for match, own in matches if match), None)

    def nearest(self, path: str) -> str:
        """Return the model operation that an unknown `path` probably means; "" when none is similar."""
        named = [own for own in self._exact if own.startswith(f"{VERSION}/")] if len(path) <= MAX_PATH_LENGTH else []
        tidy = path.lower() if path.startswith(VERSION) else VERSION + path.lower()
        return next(iter(difflib.get_close_matches(tidy, sorted(named), 1, MIN_SIMILARITY)), "")


def _pattern(path: str, variable: str = "{1}") -> str:
    """Return the regular expression of a path with variables; `variable` is formatted with the name and the expression
    of each."""
    parts: list[str] = []
    at = 0
    for match in VARIABLE.finditer(path):
        parts += re.escape(path[at : match.start()]), variable.format(match[2], "[^/].*" if match[1] else "[^/]+")
        at = match.end()
    return "".join((*parts, re.escape(path[at:])))


# Credentials at unusual places of a request: API keys in the address (`?key=`), as clients of Gemini's API may send
# them, and tokens in headers that are logged, stored or relayed.
#
# The key leaves the address before anything else sees the request, so that no log, trace, error or digest contains it.

NAME = "key"
HEADER_KEY = "HTTP_X_GOOG_API_KEY"
HEADER_START = "HTTP_"
GEMINI_PATHS = ("/v1beta/", "/v1/models")
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
