"""An upstream for every operation that leaks secrets in its answers and in its error messages."""

from collections.abc import Iterator
from typing import Any

from fakes.server import send_json
from fakes.upstream import FakeUpstream

Fault = tuple[int, bytes]  # status and body


class LeakingUpstream(FakeUpstream):
    """A FakeUpstream that answers with `answer`, a text of base64 letters, and with scripted `Fault`s."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer.encode()
        self.credentials: set[str] = set()

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        self.credentials.add(environ.get("HTTP_AUTHORIZATION", ""))
        fault: Fault | None = self.next_answer(None)
        if fault is not None:
            environ["wsgi.input"].read()
            return send_json(start, *fault)
        sent: list[Any] = []
        body = b"".join(super().serve(environ, lambda *given: sent.extend(given)))
        for chunk in (b"Heard.", b"Read.", b"sound ", b"aGk=", b"word "):
            body = body.replace(chunk, self.answer)
        status, headers = sent
        start(status, [(name, text) for name, text in headers if name != "Content-Length"])
        return iter([body])
