"""A gateway on this machine that gives scripted answers."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


class FakeGateway:
    """`answers` are the next bodies: an object for JSON, bytes for an event stream. `requests` are (path, body)."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.requests.append((self.path, body))
                answer = fake.answers.pop(0)
                streamed = isinstance(answer, bytes)
                data = answer if streamed else json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def chat_answer(text: str, calls: list[dict[str, Any]] | None = None, cost: float = 0.0) -> dict[str, Any]:
    """Return a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": cost}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateway]:
    fake = FakeGateway()
    Thread(target=fake.server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("LLMGATEWAY_BASE_URL", fake.url)
    monkeypatch.setenv("LLMGATEWAY_API_KEY", "llmgtwy_test")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
