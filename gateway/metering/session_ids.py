"""The session of an agent that a request belongs to, as the clients in config/catalogue/sessions.toml name it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gateway.configuration.settings import CONFIG
from gateway.ids import digest

TABLE = CONFIG / "catalogue" / "sessions.toml"
MAX_ID_LENGTH = 64  # the width of the column
PLAIN_ID = re.compile(r"[A-Za-z0-9._:~@=+-]{1,64}")
MAX_USER_ID_LENGTH = 4096  # characters that are examined


class SessionTable:
    """The fields that name a session, by client."""

    def __init__(self, clients: Sequence[Mapping[str, Any]]) -> None:
        self.headers = tuple(name for client in clients for name in client.get("headers", ()))
        self.user_headers = tuple(name for client in clients for name in client.get("user_headers", ()))
        self._metadata = tuple(name for client in clients for name in client.get("metadata", ()))
        self._patterns = tuple(re.compile(client["user_id"]) for client in clients if "user_id" in client)
        self._members = tuple(client["user_id_member"] for client in clients if "user_id_member" in client)
        self._cache_keys = frozenset(source for client in clients for source in client.get("prompt_cache_key", ()))

    def of_headers(self, headers: Mapping[str, str]) -> str:
        """Return the session in headers (lower-case names), "" without one."""
        for name in self.headers:
            value = headers.get(name)
            if value and (value := value.strip()):
                return shorten(value)
        return ""

    def user_of_headers(self, headers: Mapping[str, str]) -> str:
        """Return the person that an application names in headers (lower-case names), "" without one."""
        return next((value for name in self.user_headers if (value := headers.get(name))), "")

    def user_of_user_id(self, user_id: str) -> str:
        """Return Anthropic's `metadata.user_id` without the session that a client appends to it."""
        text = user_id[:MAX_USER_ID_LENGTH]
        for pattern in self._patterns:
            if match := pattern.search(text):
                return text[: match.start()]
        if not text.startswith("{") or len(user_id) > len(text):
            return user_id
        try:
            inner = orjson.loads(text)
        except orjson.JSONDecodeError:
            return user_id
        rest = {name: value for name, value in inner.items() if name not in self._members}
        return orjson.dumps(rest, option=orjson.OPT_SORT_KEYS).decode()

    def of_user_id(self, user_id: str) -> str:
        """Return the session in Anthropic's `metadata.user_id`, "" if it names a person only."""
        text = user_id[:MAX_USER_ID_LENGTH]
        for pattern in self._patterns:
            if match := pattern.search(text):
                return shorten(match[1])
        if not text.startswith("{"):
            return ""
        try:
            inner = orjson.loads(text)
        except orjson.JSONDecodeError:
            return ""
        return next((shorten(value) for name in self._members if isinstance(value := inner.get(name), str)), "")

    def of_metadata(self, metadata: Mapping[str, Any]) -> str:
        """Return the session in the `metadata` of a body."""
        values = (metadata.get(name) for name in self._metadata)
        return next((shorten(value) for value in values if isinstance(value, str)), "")

    def of_cache_key(self, source: str, prompt_cache_key: str) -> str:
        """Return the prompt cache key if the client of `source` uses a key for each session."""
        if source in self._cache_keys:
            return shorten(prompt_cache_key)
        return ""


def shorten(session: str) -> str:
    """Return the id as stored: itself, or its digest if it is long or has characters that paths escape."""
    if not session or PLAIN_ID.fullmatch(session):
        return session
    return digest(session)


SESSIONS = SessionTable(tomllib.loads(TABLE.read_text())["client"])
