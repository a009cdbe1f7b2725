"""A compatible service below another path, with scripted answers and faults."""

import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import gevent
from fakes.server import FakeServer, Start

TOKEN = "llmgtwy_" + "a" * 40
KEY = {
    "id": "key_1",
    "description": "CI",
    "status": "active",
    "maskedToken": "llmgtwy_aaaa•••••",
    "usage": "1.5",
    "usageLimit": "100",
    "periodUsageLimit": "10",
    "periodUsageDurationValue": 1,
    "periodUsageDurationUnit": "day",
    "currentPeriodUsage": "0.001",
    "expiresAt": None,
    "projectId": "project_1",
    "createdAt": "2026-01-01T00:00:00.000Z",
}
FIGURES = {"requestCount": 1234, "inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "cost": 0.5}
ROW = {
    "date": "2026-01-01",
    **FIGURES,
    "errorCount": 0,
    "modelBreakdown": [{"id": "m", "provider": "p", **FIGURES}],
    "apiKeyBreakdown": [{"id": "key_1", "description": "CI", **FIGURES}],
}
# The smallest answers that every client prints correctly, by method and path.
ANSWERS: dict[str, Any] = {
    "GET /auth/get-session": {"user": {"email": "al@example.com", "name": "Al"}},
    "POST /auth/sign-out": {"success": True},
    "GET /orgs": {"organizations": [{"id": "org_1", "name": "Acme", "plan": "pro", "credits": "12.34"}]},
    "GET /orgs/org_1/projects": {
        "projects": [{"id": "project_1", "name": "Web", "organizationId": "org_1", "mode": "credits"}]
    },
    "POST /keys/api": {"apiKey": {**KEY, "token": TOKEN}},
    "GET /keys/api": {"apiKeys": [KEY, {**KEY, "id": "key_2", "status": "deleted"}]},
    "PATCH /keys/api/key_1": {"message": "Done", "apiKey": KEY},
    "PATCH /keys/api/limit/key_1": {"message": "Done", "apiKey": KEY},
    "POST /keys/api/key_1/roll": {"message": "Done", "apiKey": {"description": "CI", "token": TOKEN}},
    "DELETE /keys/api/key_1": {"message": "Done"},
    "GET /activity": {"activity": [ROW], "granularity": "daily"},
    "GET /activity/sources": {"sources": [{"source": "claude", **FIGURES, "lastUsedAt": "2026-01-01T00:00:00.000Z"}]},
}


@dataclass(frozen=True)
class Answer:
    """A scripted answer. `body` is text as it is, or something to encode as JSON."""

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


CUT = "cut"  # close the connection without an answer
HANG = "hang"  # never answer


@dataclass(frozen=True)
class Call:
    """A request as it came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}" + f"?{self.query}" * bool(self.query)


class FakeService(FakeServer):
    """Serves ANSWERS below `base`; `script` puts other answers before them."""

    base = "/team/gateway"

    @property
    def lines(self) -> list[str]:
        """The requests so far, as method, path and query."""
        return [call.line for call in self.calls]

    def serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        content = environ["wsgi.input"].read().decode()
        headers = {name[5:].replace("_", "-").lower(): text for name, text in environ.items() if name[:5] == "HTTP_"}
        headers["content-type"] = environ.get("CONTENT_TYPE") or ""
        path = environ["PATH_INFO"].removeprefix(self.base)
        body = json.loads(content) if content else None
        call = Call(environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""), headers, body)
        self.calls.append(call)
        known = ANSWERS.get(f"{call.method} {call.path}") if environ["PATH_INFO"].startswith(self.base) else None
        answer = self.next_answer(Answer(200, known) if known else Answer(404, {"message": "Unknown path."}))
        if answer == HANG:
            gevent.sleep(60)
        if answer in (CUT, HANG):
            close_at_once(environ["fake.socket"])
            return []
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        named = {"Content-Type": "application/json", "x-request-id": "req_fake", **answer.headers}
        start(f"{answer.status} Answer", list(named.items()))
        return [text.encode()]


def close_at_once(connection: socket.socket) -> None:
    """Reset a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
