"""A client of MCP's oldest transport (HTTP+SSE) that shows each event as it comes."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class OldStream:
    """An open stream. `path` is where it wants its messages; `status` is not 200 where it was refused."""

    def __init__(self, address: str, key: str, timeout_s: float = 10) -> None:
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=timeout_s)
        headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
        self._connection.request("GET", "/mcp", headers=headers)
        self._answer = self._connection.getresponse()
        self.status, self.headers = self._answer.status, self._answer.headers
        self.path = self.session = ""
        if self.status == 200:  # else refused: there is no event to come
            name, self.address = self.event()
            assert name == "endpoint"
            parts = urlsplit(self.address)
            self.path, self.session = f"{parts.path}?{parts.query}", parts.query.partition("=")[2]

    def line(self) -> str | None:
        """The next line, a comment too; None at the end."""
        raw = self._answer.readline()
        return raw.decode().rstrip("\n") if raw else None

    def event(self) -> tuple[str, str]:
        """Name and data of the next event, comments left out; ("", "") at the end."""
        name = data = ""
        while (line := self.line()) is not None:
            field, _, value = line.partition(": ")
            name = value if field == "event" else name
            data = value if field == "data" else data
            if not line and data:
                return name, data
        return "", ""

    def message(self) -> Any:
        name, data = self.event()
        assert name == "message"
        return json.loads(data)

    def close(self) -> None:
        self._connection.close()
