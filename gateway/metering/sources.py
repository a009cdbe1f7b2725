"""The app that made a call: from the header x-source, otherwise from other headers."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.configuration.settings import CONFIG

# A referer is taken for a name only if it looks like one: it may be any address, with a query.
REFERER_NAME = re.compile(r"[A-Za-z0-9./-]{1,255}")
MAX_NAME_LENGTH = 255
ADDRESS = re.compile(r"https?://(?:[^/?#]*@)?(?:www\.)?([^?#]*)", re.IGNORECASE)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\s]+")
OPENCLAW_NAME = re.compile(r"(?<![a-z0-9_-])[a-z0-9_-]*?claw[a-z0-9_-]*+")
CACHE_SIZE = 4096
CLIENTS = CONFIG / "catalogue" / "clients.toml"
SOURCE_HEADERS = ("x-source", "http-referer", "referer", "x-title", "x-openrouter-title", "user-agent")
MAX_HEADER_LENGTH = 1024  # characters of a header that are read


class Client(Struct, frozen=True):
    """A known app: its source names, and the cues in headers that identify it; see config/catalogue/clients.toml."""

    id: str
    label: str
    sources: tuple[str, ...]
    agent: re.Pattern[str] | None
    referers: tuple[str, ...] = ()


class Sources:
    """Attribution of requests to apps; "" if the headers do not identify one."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients = tuple(clients)
        self._ids = {name: client.id for client in self._clients for name in client.sources}
        self.labels = {client.id: client.label for client in self._clients}
        self._seen: dict[tuple[str | None, ...], str] = {}

    def source(self, headers: Mapping[str, str]) -> str:
        """Return the source of a request from its headers (lower-case names); results are cached by header values.

        Any x-source is a name; see `clean`.
        """
        values = tuple(map(headers.get, SOURCE_HEADERS))
        known = self._seen.get(values)
        if known is None:
            shortened = [(value or "")[:MAX_HEADER_LENGTH].strip() for value in values]
            source, http_referer, referer, title, other_title, agent = shortened
            known = self._resolve(source, http_referer or referer, title or other_title, agent)
            if sum(map(len, filter(None, values))) > MAX_HEADER_LENGTH:
                return known  # callers choose the length, so long values are not cached
            if len(self._seen) >= CACHE_SIZE:
                self._seen.clear()
            self._seen[values] = known
        return known

    def canonical(self, name: str) -> str:
        """Return the id for an alias; other names are returned unchanged."""
        return self._ids.get(name.lower(), name)

    def _resolve(self, header: str, referer: str, title: str, agent: str) -> str:
        stated = clean(header)
        if stated:
            return self._by_title(stated) or self.canonical(stated)
        name = _strip(referer)
        name = self.canonical(name) if REFERER_NAME.fullmatch(name) else ""
        if name and self._recognised(name):
            return name
        return self._by_title(title) or self._by_referer(referer) or self._by_agent(agent) or name

    def _recognised(self, name: str) -> bool:
        return name.lower() in self._ids or "claw" in name.lower()

    def _by_title(self, title: str) -> str:
        low = title.lower()
        for client in self._clients:
            if low and (low == client.label.lower() or low in client.sources):
                return client.id
        return ""

    def _by_referer(self, referer: str) -> str:
        low = referer.lower()
        return next((c.id for c in self._clients if low and any(cue in low for cue in c.referers)), "")

    def _by_agent(self, agent: str) -> str:
        low = agent.lower()
        if not low:
            return ""
        for client in self._clients:
            if client.agent is not None and client.agent.search(low):
                return client.id
        word = OPENCLAW_NAME.search(low) if "claw" in low else None
        if word:
            return word[0].strip("-_")
        return ""


def read_source(headers: Mapping[str, str]) -> str:
    """Return the source of a request by the bundled table of clients; see Sources.source."""
    return known_clients().source(headers)


@functools.cache
def known_clients() -> Sources:
    """Return the bundled table of clients, read on first use."""
    return read_clients(CLIENTS)


def read_clients(path: Path) -> Sources:
    """Read a table of clients. ValueError describes what is wrong with it."""
    try:
        entries = tomllib.loads(path.read_text())["client"]
        return Sources(_client(entry) for entry in entries)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _client(entry: Mapping[str, Any]) -> Client:
    cues = [re.escape(cue) for cue in entry.get("has", ())]
    cues += [f"^{re.escape(cue)}" for cue in entry.get("starts", ())]
    cues += [f"^{re.escape(cue)}$" for cue in entry.get("exact", ())]
    cues += [f"(?<![a-z0-9_-]){re.escape(cue)}(?![a-z0-9_-])" for cue in entry.get("words", ())]
    agent = re.compile("|".join(cues)) if cues else None
    sources = (entry["id"], *entry.get("sources", ()))
    return Client(entry["id"], entry["label"], sources, agent, tuple(entry.get("referers", ())))


def clean(header: str) -> str:
    """Return the name in an x-source header as it is stored: a caller may send anything.

    It is one line of at most 255 characters. An address has no scheme, user, leading www., query and trailing slash:
    a query may contain secrets.
    """
    try:
        text = header.encode("latin-1").decode()  # servers read header values as Latin-1, and most clients mean UTF-8
    except (UnicodeEncodeError, UnicodeDecodeError):
        text = header
    text = UNPRINTABLE.sub(" ", text).strip()
    if (address := ADDRESS.match(text)) is not None:
        text = address[1]
    elif text.lower().startswith("www."):
        text = text[4:]
    return text[:MAX_NAME_LENGTH].encode("utf-8", "replace").decode().rstrip("/ ")


def _strip(text: str) -> str:
    """Return the text without scheme, leading www. and trailing slash."""
    bare = re.sub(r"^https?://", "", text.strip(), flags=re.IGNORECASE)
    return re.sub(r"^www\.", "", bare, flags=re.IGNORECASE).rstrip("/")
