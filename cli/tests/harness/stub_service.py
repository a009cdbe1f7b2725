"""A service with the answers that a test chooses, on a separate port."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from llmgateway_cli import __version__

HEALTHY = {"message": "OK", "version": __version__, "health": {"status": "ok"}}


@dataclass
class StubService:
    """Answers by method and path, e.g. "GET /v1/key", as (status, document); all others are 404.

    A document may be bytes, or a list of bytes: then the answer stays open after the last part until the service ends.
    `headers` are sent with each answer, and `requests` has the requests with their bodies.
    """

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                line = f"{self.command} {self.path.partition('?')[0]}"
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                service.requests.append((line, dict(self.headers), body))
                status, document = service.answers.get(line, (404, {"error": {"message": "There is nothing."}}))
                is_open = isinstance(document, list) and all(isinstance(part, bytes) for part in document)
                text = b"".join(document) if is_open else document
                if not isinstance(text, bytes):
                    text = json.dumps(text).encode()
                content = {"Content-Type": "application/json"}
                if not is_open:
                    content["Content-Length"] = str(len(text))
                self.send_response_only(status)
                for name, value in (content | service.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)
                if is_open:
                    service.ended.wait()

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
