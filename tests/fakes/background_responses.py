"""A strict fake of the Responses API with its background mode: responses are made without a connection.

    with FakeBackgroundResponses() as upstream:
        upstream.script(Answer(said("Hello."), gap_s=0.1))   # an event every 0.1 s
        ... POST upstream.url + "/responses" with background, store and stream ...
        upstream.kept                                         # the responses, by id

`failing`: every call about a response that exists is answered with this status. `break_after` breaks the connections of
streams after so many events.
"""

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import gevent
from fakes.responses import Answer, FakeResponse, FakeResponses, Json, Recorded, said
from fakes.responses_checks import Refused, check_request
from fakes.server import headers_of, send_json


@dataclass
class KeptResponse:
    """A response in the background. `frames` are all of its events; each `gap_s` one more is made."""

    ident: str
    frames: list[bytes]
    final: Json
    gap_s: float
    begun_at: float
    canceled_at: float | None = None

    @property
    def made(self) -> int:
        """The number of events that were made."""
        end = time.monotonic() if self.canceled_at is None else self.canceled_at
        if not self.gap_s:
            return len(self.frames)
        return min(len(self.frames), 1 + int((end - self.begun_at) / self.gap_s))

    @property
    def has_ended(self) -> bool:
        return self.canceled_at is not None or self.made == len(self.frames)

    def show(self) -> Json:
        status = "cancelled" if self.canceled_at is not None else "completed" if self.has_ended else "in_progress"
        return (
            {**self.final, "status": status}
            if status == "completed"
            else {**self.final, "status": status, "output": []}
        )


class FakeBackgroundResponses(FakeResponses):
    """The service; `calls` are the creations."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, KeptResponse] = {}
        self.deleted: list[str] = []
        self.streams: list[int] = []  # the numbers after which streams were asked for again
        self.failing = 0
        self.has_background = True
        self.break_after = 0

    def serve(self, environ: Json, start: Any) -> Iterator[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith("/v1/responses/"):
            return self._serve_kept(environ, start, method, *path.removeprefix("/v1/responses/").split("/"))
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        body = json.loads(payload)
        if not body.get("background"):
            return super().serve({**environ, "wsgi.input": io.BytesIO(payload)}, start)
        recorded = Recorded(headers)
        self.calls.append(recorded)
        try:
            if not self.has_background:
                raise Refused("Unknown parameter: 'background'.", param="background")
            if not body.get("store") or not body.get("stream"):
                raise Refused("A background response must be stored.")
            # The other checks are those of an account that keeps nothing.
            plain = json.dumps({**body, "store": False}).encode()
            recorded.body = check_request(environ, headers, plain, self.sealed) | {"store": True}
        except Refused as problem:
            recorded.status, recorded.problem = problem.status, str(problem)
            return send_json(start, problem.status, problem.body)
        answer = self.next_answer(Answer(said("Hello.")))
        if answer.status != 200:
            error = {"message": "Scripted.", "type": "server_error", "param": None, "code": answer.code}
            return send_json(start, answer.status, {"error": error})
        ident = f"resp_up{len(self.calls)}"
        answer.members = {**answer.members, "id": ident, "background": True}
        made = FakeResponse(answer, recorded.body, len(self.calls), self.sealed)
        kept = KeptResponse(ident, list(made.frames()), made.response(), answer.gap_s or 0.0, time.monotonic())
        self.kept[ident] = kept
        start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
        return self._stream(environ, kept, -1)

    def _serve_kept(self, environ: Json, start: Any, method: str, ident: str, *verb: str) -> Iterator[bytes]:
        kept = self.kept.get(ident)
        if self.failing:
            return send_json(start, self.failing, {"error": {"message": "Scripted.", "type": "server_error"}})
        if kept is None or not headers_of(environ).get("authorization", "").startswith("Bearer "):
            error = {"message": f"Response with id '{ident}' not found.", "type": "invalid_request_error"}
            return send_json(start, 404, {"error": error})
        query = parse_qs(environ.get("QUERY_STRING", ""))
        match (method, *verb):
            case ("GET",) if query.get("stream") == ["true"]:
                after = int(query.get("starting_after", ["-1"])[0])
                self.streams.append(after)
                start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
                return self._stream(environ, kept, after)
            case ("GET",):
                return send_json(start, 200, kept.show())
            case ("POST", "cancel"):
                if not kept.has_ended:
                    kept.canceled_at = time.monotonic()
                return send_json(start, 200, kept.show())
            case ("DELETE",):
                del self.kept[ident]
                self.deleted.append(ident)
                return send_json(start, 200, {"id": ident, "object": "response", "deleted": True})
        return send_json(start, 404, {"error": {"message": "Invalid URL", "type": "invalid_request_error"}})

    def _stream(self, environ: Json, kept: KeptResponse, after: int) -> Iterator[bytes]:
        number = after + 1
        sent = 0
        while number < len(kept.frames):
            if kept.made <= number:
                if kept.canceled_at is not None:
                    return
                gevent.sleep(0.01)
                continue
            if self.break_after and sent >= self.break_after:
                environ["fake.socket"].shutdown(2)
                return
            yield kept.frames[number]
            number += 1
            sent += 1
