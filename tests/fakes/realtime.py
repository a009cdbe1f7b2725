"""A strict fake of a provider's realtime API: sessions over WebSockets, with the events of OpenAI's API reference."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

USAGE = {
    "total_tokens": 330,
    "input_tokens": 230,
    "output_tokens": 100,
    "input_token_details": {
        "text_tokens": 130,
        "audio_tokens": 100,
        "image_tokens": 0,
        "cached_tokens": 60,
        "cached_tokens_details": {"text_tokens": 20, "audio_tokens": 40, "image_tokens": 0},
    },
    "output_token_details": {"text_tokens": 30, "audio_tokens": 70},
}
# The cost of that usage for gpt-realtime: text 110 and 20 cached, audio 60 and 40 cached, output 30 and 70 tokens.
USAGE_NUSD = 110 * 4_000 + 20 * 400 + 60 * 32_000 + 40 * 400 + 30 * 16_000 + 70 * 64_000
KNOWN = {
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.delete",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
}


@dataclass
class Answer:
    """The answer to a response.create event: `text`, sent `pieces` times.

    `holds`: the fake then waits for a cancellation. `cuts`: it closes the connection there instead. `parts` is the
    number of output items in the response.done event. `beside` is the number of other responses that begin with it.
    """

    usage: dict[str, Any] | None = field(default_factory=lambda: USAGE)
    status: str = "completed"
    text: str = "Hello there."
    pieces: int = 1
    parts: int = 0
    beside: int = 0
    holds: bool = False
    cuts: bool = False


@dataclass
class RecordedSession:
    """A recorded session."""

    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    events: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    code: int | None = None

    def named(self, kind: str) -> list[dict[str, Any]]:
        """Return its events of a type."""
        return [event for event in self.events if event["type"] == kind]


class FakeRealtime:
    """Server on a free port of the loopback address that runs inside a `with` block.

    `answers` are the answers of the next responses, in order. `plays` are functions that run whole sessions after the
    first event instead. `refusal` is the status that refuses every handshake. `refused_keys` are Authorization values
    that receive a 401. `listens`: the fake answers audio without a response.create event. `refuses_changes`: it rejects
    every session.update event.
    """

    def __init__(self, tls: Any = None) -> None:
        self.reset()
        self._server: Server = serve(
            self._serve, "127.0.0.1", 0, process_request=self._check, compression=None, max_size=1 << 26, ssl=tls
        )

    def reset(self) -> None:
        """Return to the initial state."""
        self.sessions: list[RecordedSession] = []
        self.answers: list[Answer] = []
        self.plays: list[Callable[[Conversation], None]] = []
        self.refusal = 0
        self.refused_keys: set[str] = set()
        self.listens = False
        self.refuses_changes = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()

    @property
    def url(self) -> str:
        """The base URL, including the version path."""
        return f"http://127.0.0.1:{self._server.socket.getsockname()[1]}/v1"

    @property
    def last(self) -> RecordedSession:
        return self.sessions[-1]

    def _check(self, connection: ServerConnection, request: Any) -> Any:
        if request.headers.get("authorization") in self.refused_keys:
            error = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
            return connection.respond(HTTPStatus(401), json.dumps(error))
        if self.refusal:
            error = {"error": {"message": "no", "type": "server_error", "code": "overloaded"}}
            return connection.respond(HTTPStatus(self.refusal), json.dumps(error))
        return None

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        place = urlsplit(connection.request.path)
        headers = {name.lower(): value for name, value in connection.request.headers.raw_items()}
        session = RecordedSession(place.path, parse_qs(place.query), headers)
        self.sessions.append(session)
        Conversation(self, connection, session).run()
        session.code = connection.close_code


class Conversation:
    """A session in progress."""

    def __init__(self, fake: FakeRealtime, connection: ServerConnection, session: RecordedSession) -> None:
        self._fake, self._connection, self._session = fake, connection, session
        self._settings: dict[str, Any] = {
            "type": "realtime",
            "model": session.query.get("model", [""])[0],
            "audio": {"input": {"turn_detection": {"type": "server_vad"} if fake.listens else None}},
        }
        self._number = 0
        self._item = 0

    def run(self) -> None:
        try:
            self.send("session.created", session=self._settings)
            if self._fake.plays:
                self._fake.plays.pop(0)(self)
            for text in self._connection:
                self._take(json.loads(text))
        except ConnectionClosed:
            return

    def send(self, kind: str, **members: Any) -> None:
        self._connection.send(json.dumps({"type": kind, "event_id": f"event_{id(members)}", **members}))

    def hear(self, kind: str) -> dict[str, Any]:
        """Wait for the caller's next event of a type; other events are kept in order."""
        for text in self._connection:
            event: dict[str, Any] = json.loads(text)
            self._session.events.append(event)
            if event["type"] == kind:
                return event
        raise ConnectionClosed(None, None)

    def _take(self, event: dict[str, Any]) -> None:
        self._session.events.append(event)
        kind = event["type"]
        if kind not in KNOWN or not isinstance(event.get("event_id"), str):
            self._session.problems.append(f"unknown or without an id: {event}")
        steps: dict[str, Callable[[dict[str, Any]], None]] = {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "response.create": self._respond,
        }
        if kind in steps:
            steps[kind](event)

    def _update(self, event: dict[str, Any]) -> None:
        session = event["session"]
        if session.get("type") not in ("realtime", "transcription") or "model" in session:
            self._session.problems.append(f"not a session: {session}")
        if self._fake.refuses_changes:
            error = {"type": "invalid_request_error", "code": "invalid_value", "message": "no"}
            self.send("error", error=error | {"event_id": event["event_id"]})
            return
        self._settings |= session
        self.send("session.updated", session=self._settings)

    def _append(self, event: dict[str, Any]) -> None:
        if self._fake.listens:
            self._commit(event)
            self._respond({"event_id": None})

    def _commit(self, event: dict[str, Any]) -> None:
        self._item += 1
        item = f"item_{self._item}"
        self.send("input_audio_buffer.committed", item_id=item)
        transcription = (self._settings["audio"].get("input") or {}).get("transcription")
        if transcription:
            usage: dict[str, Any] = {"type": "duration", "seconds": 10}
            if transcription["model"] != "whisper-1":
                details = {"text_tokens": 0, "audio_tokens": 100}
                usage = {"type": "tokens", "input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
                usage["input_token_details"] = details
            kind = "conversation.item.input_audio_transcription.completed"
            self.send(kind, item_id=item, content_index=0, transcript="Hi.", usage=usage)

    def _respond(self, event: dict[str, Any]) -> None:
        answer = self._fake.answers.pop(0) if self._fake.answers else Answer()
        self._number += 1
        response = {"id": f"resp_{id(self)}_{self._number}", "status": "in_progress", "output": []}
        self.send("response.created", response=response)
        for number in range(answer.beside):
            self.send("response.created", response={**response, "id": f"{response['id']}_{number}"})
        about = {"response_id": response["id"], "item_id": "item", "output_index": 0, "content_index": 0}
        for _ in range(answer.pieces):
            self.send("response.output_text.delta", **about, delta=answer.text)
        if answer.cuts:
            self._connection.socket.close()
            raise ConnectionClosed(None, None)
        status = answer.status
        if answer.holds:
            status = "cancelled"
            for text in self._connection:
                found = json.loads(text)
                self._session.events.append(found)
                if found["type"] == "response.cancel":
                    break
        self.send("response.output_text.done", **about, text=answer.text)
        self.send(
            "response.done",
            response={**response, "status": status, "usage": answer.usage, "output": [{}] * answer.parts},
        )
