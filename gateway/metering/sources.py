"""Which app made a call: from x-source, else from other headers."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest

ALLOWED = re.compile(r"[A-Za-z0-9./-]{1,255}")
CLAW = re.compile(r"[a-z0-9_-]*claw[a-z0-9_-]*")
REMEMBERED = 4096
CLIENTS = CONFIG / "catalogue" / "clients.toml"
TELLING = ("x-source", "http-referer", "referer", "x-title", "x-openrouter-title", "user-agent")
LONGEST = 1024  # characters of a header that are looked at


@dataclass(frozen=True, slots=True)
class Client:
    """A known app: names that it is called by, and cues; see config/catalogue/clients.toml."""

    id: str
    label: str
    sources: tuple[str, ...]
    agent: re.Pattern[str] | None
    titles: tuple[str, ...] = ()
    referers: tuple[str, ...] = ()


class Sources:
    """Attribution of requests to apps. "" when a request gives none away."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients = tuple(clients)
        self._ids = {name: client.id for client in self._clients for name in client.sources}
        self.labels = {client.id: client.label for client in self._clients}
        self._seen: dict[tuple[str | None, ...], str] = {}

    def source(self, headers: Mapping[str, str]) -> str:
        """The source of a request from its headers (lower-case names); remembered by their values.

        InvalidRequest when x-source has other characters than letters, digits, '.', '/' and '-'; a referer like that
        is ignored.
        """
        seen = tuple(map(headers.get, TELLING))
        known = self._seen.get(seen)
        if known is None:
            source, http_referer, referer, title, other_title, agent = [(one or "")[:LONGEST].strip() for one in seen]
            known = self._resolve(source, http_referer or referer, title or other_title, agent)
            if sum(map(len, filter(None, seen))) > LONGEST:
                return known  # what callers make long is not kept
            if len(self._seen) >= REMEMBERED:
                self._seen.clear()
            self._seen[seen] = known
        return known

    def canonical(self, name: str) -> str:
        """An alias as the id that it stands for; other names as they are."""
        return self._ids.get(name.lower(), name)

    def _resolve(self, given: str, referer: str, title: str, agent: str) -> str:
        if given:
            name = _strip(given)
            if not ALLOWED.fullmatch(name):
                raise InvalidRequest(
                    "x-source may have letters, digits, '.', '/' and '-' only, at most 255.",
                    param="x-source",
                    code="invalid_source",
                )
            return self.canonical(name)
        name = _strip(referer)
        if ALLOWED.fullmatch(name):
            name = self.canonical(name)
        else:
            name = ""
        if name and self._recognised(name):
            return name
        return self._by_title(title) or self._by_referer(referer) or self._by_agent(agent) or name

    def _recognised(self, name: str) -> bool:
        return name.lower() in self._ids or name in self.labels or "claw" in name.lower()

    def _by_title(self, title: str) -> str:
        low = title.lower()
        for client in self._clients:
            if low and (low in client.titles or low == client.label.lower() or low in client.sources):
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
        if "claw" in low:
            word = CLAW.search(low)
        else:
            word = None
        if word:
            return word[0].strip("-_")
        return ""


def read_source(headers: Mapping[str, str]) -> str:
    """The source of a request by the table that comes with the gateway; see Sources.source."""
    return known_clients().source(headers)


@functools.cache
def known_clients() -> Sources:
    """The table that comes with the gateway, read at the first use."""
    return read_clients(CLIENTS)


def read_clients(path: Path) -> Sources:
    """The table of clients. ValueError names what is wrong with it."""
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
    if cues:
        agent = re.compile("|".join(cues))
    else:
        agent = None
    titles = tuple(entry.get("titles", ()))
    referers = tuple(entry.get("referers", ()))
    return Client(entry["id"], entry["label"], tuple(entry["sources"]), agent, titles, referers)


def _strip(text: str) -> str:
    """Without scheme, leading www. and trailing slash."""
    bare = re.sub(r"^https?://", "", text.strip(), flags=re.IGNORECASE)
    return re.sub(r"^www\.", "", bare, flags=re.IGNORECASE).rstrip("/")
