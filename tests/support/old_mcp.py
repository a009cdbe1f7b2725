"""A client of MCP's oldest transport (HTTP+SSE) that returns each event as it arrives."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class OldStream:
    """An open stream. `path` is the endpoint for messages; `status` differs from 200 for a refused stream."""

    def __init__(self, address: str, key: str, timeout_s: float = 10) -> None:
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=timeout_s)
        headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
        self._connection.request("GET", "/mcp", headers=headers)
        self._answer = self._connection.getresponse()
        self.status, self.headers = self._answer.status, self._answer.headers
        self.path = self.session = ""
        if self.status == 200:  # a refused stream has no events
            name, self.address = self.event()
            assert name == "endpoint"
            parts = urlsplit(self.address)
            self.path, self.session = f"{parts.path}?{parts.query}", parts.query.partition("=")[2]

    def read_line(self) -> str | None:
        """Return the next line, including comments; None at the end."""
        raw = self._answer.readline()
        return raw.decode().rstrip("\n") if raw else None

    def event(self) -> tuple[str, str]:
        """Return name and data of the next event without comments; ("", "") at the end."""
        name = data = ""
        while (text := self.read_line()) is not None:
            field, _, value = text.partition(": ")
            name = value if field == "event" else name
            data = value if field == "data" else data
            if not text and data:
                return name, data
        return "", ""

    def message(self) -> Any:
        name, data = self.event()
        assert name == "message"
        return json.loads(data)

    def close(self) -> None:
        self._connection.close()
