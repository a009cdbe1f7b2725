"""A plain HTTP client for `/mcp`."""

import json
from typing import Any

import httpx
from support.gateways import LocalGateway

Json = dict[str, Any]
BOTH = "application/json, text/event-stream"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Visitor:
    """A client with the key of a gateway's first organization."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway, self.url, self._key = gateway, f"{gateway.address}/mcp", gateway.key

    def send(self, method: str = "POST", body: Any = PING, key: str | None = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self._key if key is None else key
        common_headers = {"Accept": BOTH, "Content-Type": "application/json"}
        common_headers |= {"Authorization": f"Bearer {token}"} if token else {}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        with httpx.Client(timeout=20) as http:
            return http.request(
                method, self.url, headers=common_headers | named, content=content if method == "POST" else b""
            )

    def request(self, method: str, **params: Any) -> Json:
        answer = self.send(body={"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        body: Json = answer.json()
        assert body["id"] == "a" and body["jsonrpc"] == "2.0"
        return body

    def call(self, tool: str, **arguments: Any) -> Json:
        result: Json = self.request("tools/call", name=tool, arguments=arguments)["result"]
        return result


def text(result: Json) -> str:
    """Return the text of the first block of a tool's result."""
    found: str = result["content"][0]["text"]
    return found
