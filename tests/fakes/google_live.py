"""A strict fake of Google's Live API: sessions over WebSockets, with every message checked by the types of
google-genai.

    with FakeLive() as provider:
        provider.turns = [Turn("Hello."), Turn(calls=(("look", {"at": "sky"}),)), Turn("It is blue.")]

Messages of the provider are frames of bytes, as the real ones are. It speaks when it is asked to (`clientContent` with
`turnComplete`), when the caller stops speaking, and when its calls are answered; each time the next of `turns`.
"""

import base64
import json
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

from fakes import google_live_types as published
from pydantic import ValidationError
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

MODEL = "models/gemini-3.8-live"
PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
REFUSED_KEY = "AIza-revoked"
SPEECH_BYTES = 48_000  # a second of audio counts as speech that needs an answer
USAGE = {
    "promptTokenCount": 230,
    "responseTokenCount": 100,
    "totalTokenCount": 330,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 120},
        {"modality": "AUDIO", "tokenCount": 100},
        {"modality": "IMAGE", "tokenCount": 10},
    ],
    "responseTokensDetails": [{"modality": "TEXT", "tokenCount": 30}, {"modality": "AUDIO", "tokenCount": 70}],
}
# The cost of that usage for gemini-3.8-live, by nano-dollars per token: text, audio and image input, text and audio
# output.
USAGE_NUSD = 120 * 750 + 100 * 3_000 + 10 * 1_000 + 30 * 4_500 + 70 * 12_000
SOUND = base64.b64encode(bytes(4_800)).decode()


@dataclass
class Turn:
    """A scripted turn of the model: it says `text` (as audio with a transcript), then makes `calls` (name, arguments).

    `heard` is the transcript of what it answers to. `holds`: it speaks on until it is interrupted, `waits`: until `end`
    of the fake is set. `usage` comes with the end of the turn, `apart` from it in a message of its own; a turn that
    calls is counted with its end, `counted` with its calls too. `reason` is why it ended. `cuts`: the
    connection is cut instead.
    """

    text: str = "Hello there."
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    transcript: str = ""
    usage: dict[str, Any] | None = field(default_factory=lambda: USAGE)
    apart: bool = False
    counted: bool = False
    holds: bool = False
    waits: bool = False
    reason: str = ""
    cuts: bool = False


@dataclass
class RecordedConnection:
    """A recorded connection."""

    path: str
    headers: dict[str, str]
    messages: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    code: int | None = None

    @property
    def setup(self) -> dict[str, Any]:
        return self.messages[0]["setup"]

    def named(self, kind: str) -> list[Any]:
        """Return the messages of a kind."""
        return [message[kind] for message in self.messages if kind in message]

    def inputs(self, kind: str) -> list[Any]:
        """Return the realtime inputs of a kind."""
        return [one[kind] for one in self.named("realtimeInput") if kind in one]


class FakeLive:
    """Serves on a free port of the loopback address, from `with` to its end. `ends` closes the next connections after
    their setup: (code, reason). `goes`: after its first turn a connection says that it goes "away", or it does at the
    "end" of that. `quick`: any sound is noticed as speech. `rejected` are access tokens that are no longer valid."""

    def __init__(self) -> None:
        self.reset()
        self._server: Server = serve(
            self._serve, "127.0.0.1", 0, compression=None, max_size=1 << 26, process_request=self._check
        )

    def reset(self) -> None:
        self.connections: list[RecordedConnection] = []
        self.turns: list[Turn] = []
        self.ends: list[tuple[int, str]] = []
        self.rejected: set[str] = set()
        self.goes, self.quick = "", False
        self.end = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()

    @property
    def url(self) -> str:
        """The base URL, including the version path."""
        return f"http://127.0.0.1:{self._server.socket.getsockname()[1]}/v1beta"

    @property
    def last(self) -> RecordedConnection:
        return self.connections[-1]

    @property
    def problems(self) -> list[str]:
        """All messages that the real service would refuse."""
        return [problem for connection in self.connections for problem in connection.problems]

    def _check(self, connection: ServerConnection, request: Any) -> Any:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.rejected:
            return None
        error = {"error": {"code": 401, "message": "Invalid credentials.", "status": "UNAUTHENTICATED"}}
        return connection.respond(HTTPStatus.UNAUTHORIZED, json.dumps(error))

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        headers = {name.lower(): value for name, value in connection.request.headers.raw_items()}
        recorded = RecordedConnection(connection.request.path, headers)
        self.connections.append(recorded)
        try:
            LiveConversation(self, connection, recorded).run()
        except ConnectionClosed:
            pass
        recorded.code = connection.close_code


class LiveConversation:
    """A connection in progress."""

    def __init__(self, fake: FakeLive, connection: ServerConnection, recorded: RecordedConnection) -> None:
        self._fake, self._connection, self._recorded = fake, connection, recorded
        self._setup: dict[str, Any] | None = None
        self._sound = 0
        self._active = False  # the caller reported the start of its activity
        self._speaking = False  # the model is in a turn
        self._calls: set[str] = set()
        self._number = 0

    def run(self) -> None:
        for raw in self._connection:
            message = json.loads(raw)
            self._recorded.messages.append(message)
            try:
                published.ClientMessage.model_validate_json(raw)
            except ValidationError as error:
                self._refuse(str(error))
                return
            if len(message) != 1:
                self._refuse(f"one member a message: {list(message)}")
                return
            (kind,) = message
            if (kind == "setup") != (self._setup is None):
                self._refuse("setup comes first, and once")
                return
            if STEPS[kind](self, message[kind]) is False:
                return

    def _refuse(self, problem: str) -> None:
        self._recorded.problems.append(problem)
        self._connection.close(1007, "Request contains an invalid argument.")

    def _send(self, **message: Any) -> None:
        published.check_answer(message)
        self._connection.send(json.dumps(message).encode())

    def _set_up(self, setup: dict[str, Any]) -> bool:
        if self._fake.ends:
            self._connection.close(*self._fake.ends.pop(0))
            return False
        if self._recorded.headers.get("x-goog-api-key") == REFUSED_KEY:
            self._connection.close(1007, "API key not valid. Please pass a valid API key.")
            return False
        if setup["model"] != MODEL or setup["generationConfig"]["responseModalities"] != ["AUDIO"]:
            self._refuse(f"not served: {setup}")
            return False
        self._setup = setup
        self._send(setupComplete={})
        self._tell_handle()
        return True

    def _tell_handle(self) -> None:
        self._send(sessionResumptionUpdate={"newHandle": f"handle-{id(self)}-{self._number}", "resumable": True})

    @property
    def _detects(self) -> bool:
        config = (self._setup or {}).get("realtimeInputConfig") or {}
        return not (config.get("automaticActivityDetection") or {}).get("disabled")

    def _take_content(self, content: dict[str, Any]) -> None:
        if any(turn.get("role") not in ("user", "model") for turn in content.get("turns") or ()):
            self._refuse(f"roles: {content}")
        if content.get("turnComplete"):
            self._interrupt()
            self._answer()

    def _take_input(self, realtime_input: dict[str, Any]) -> None:
        if len(realtime_input) != 1:
            self._refuse(f"one kind of input a message: {list(realtime_input)}")
        elif "audio" in realtime_input:
            self._hear(realtime_input["audio"])
        elif "audioStreamEnd" in realtime_input:
            if not self._detects:
                self._refuse("audioStreamEnd without detection")
            self._answer_speech()
        elif "activityStart" in realtime_input or "activityEnd" in realtime_input:
            if self._detects or self._active == ("activityStart" in realtime_input):
                self._refuse(f"activity: {realtime_input}")
            self._active = "activityStart" in realtime_input
            if not self._active:
                self._answer()

    def _hear(self, audio: dict[str, Any]) -> None:
        if audio["mimeType"] != "audio/pcm;rate=24000" or not (self._detects or self._active):
            self._refuse(f"sound: {audio['mimeType']}")
        if not self._detects:
            return
        self._sound += len(base64.b64decode(audio["data"]))
        if self._fake.quick:
            self._send(voiceActivity={"type": "ACTIVITY_START"})
        if self._sound >= SPEECH_BYTES:
            self._answer_speech()

    def _answer_speech(self) -> None:
        self._sound = 0
        self._send(voiceActivity={"type": "ACTIVITY_START"})
        self._interrupt()
        self._send(voiceActivity={"type": "ACTIVITY_END"})
        self._answer()

    def _take_response(self, response: dict[str, Any]) -> None:
        for one in response["functionResponses"]:
            if one.get("id") not in self._calls or not one.get("name") or not isinstance(one.get("response"), dict):
                self._refuse(f"no open call: {one}")
            self._calls.discard(one["id"])
        if not self._calls:
            self._answer()

    def _interrupt(self) -> None:
        if self._calls:
            self._send(toolCallCancellation={"ids": sorted(self._calls)})
            self._calls.clear()
        if self._speaking:
            self._speaking = False
            self._send(serverContent={"interrupted": True})
            self._send(serverContent={"turnComplete": True}, usageMetadata=USAGE)

    def _answer(self) -> None:
        turn = self._fake.turns.pop(0) if self._fake.turns else Turn()
        self._number += 1
        if turn.transcript and self._setup and "inputAudioTranscription" in self._setup:
            self._send(serverContent={"inputTranscription": {"text": turn.transcript}})
        if turn.text:
            part = {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SOUND}}
            self._send(serverContent={"modelTurn": {"role": "model", "parts": [{"text": "Hm.", "thought": True}]}})
            said = {"outputTranscription": {"text": turn.text}}
            self._send(serverContent={"modelTurn": {"role": "model", "parts": [part]}, **said})
        if turn.cuts:
            self._connection.socket.close()
            raise ConnectionClosed(None, None)
        if turn.calls:
            function_calls = [
                {"id": f"call-{self._number}-{at}", "name": n, "args": a} for at, (n, a) in enumerate(turn.calls)
            ]
            self._calls = {call["id"] for call in function_calls}
            counts = {"usageMetadata": turn.usage} if turn.counted else {}
            self._send(toolCall={"functionCalls": function_calls}, **counts)
            return
        if turn.holds:
            self._speaking = True
            return
        if turn.waits:
            self._fake.end.wait(60)
        self._send(serverContent={"generationComplete": True})
        self._complete(turn)

    def _complete(self, turn: Turn) -> None:
        ended: dict[str, Any] = {"turnComplete": True}
        if turn.reason:
            ended["turnCompleteReason"] = turn.reason
        if turn.usage is None or turn.apart:
            self._send(serverContent=ended)
        else:
            self._send(serverContent=ended, usageMetadata=turn.usage)
        if turn.apart:
            self._send(usageMetadata=turn.usage)
        self._tell_handle()
        goes, self._fake.goes = self._fake.goes, ""
        if goes == "away":
            self._send(goAway={"timeLeft": "0.1s"})
        elif goes == "end":
            self._connection.close(1011, "Internal error encountered.")

    def _take_update(self, update: dict[str, Any]) -> None:
        """Apply an update of the instructions (a text) or tools (a list)."""


STEPS = {
    "setup": LiveConversation._set_up,
    "clientContent": LiveConversation._take_content,
    "realtimeInput": LiveConversation._take_input,
    "toolResponse": LiveConversation._take_response,
    "contextUpdate": LiveConversation._take_update,
}
