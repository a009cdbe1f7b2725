"""Realtime sessions with any event that the vendor's SDK knows: refused, or billed at least as a strict vendor bills
them, to the end, and left after any event that was received.

The platform's provider key pays, so no object of the platform's account may be reached.
"""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any

import pytest
from fakes.realtime import Conversation, FakeRealtime
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support import sdk_samples as sdk
from support.realtime_sessions import upstream_settings
from support.shared import Share, usage_of
from support.spending import until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

Json = dict[str, Any]
# Nano-dollars of gpt-realtime for a token of text and of sound in, and of text out; of transcripts for a second.
TEXT, SOUND, WRITTEN = 4_000, 32_000, 16_000
SECOND = {"whisper-1": 100_000, "gpt-4o-transcribe": 60_000}
RATES = {"audio/pcm": 48_000, "audio/pcmu": 8_000, "audio/pcma": 8_000}
SOUND_TOKENS = 10  # of a second
IMAGE = 700
OUTPUT = 20
HEARD = "conversation.item.input_audio_transcription."
EXAMPLES = max(40, settings().max_examples)


def named(kind: str) -> Any:
    module = importlib.import_module("openai.types.realtime." + kind)
    return getattr(module, "".join(word.capitalize() for word in kind.split("_")))


class StrictSession:
    """Plays the provider, and notes what was certainly consumed when each event was sent, by the event's id."""

    def __init__(self) -> None:
        self.certain: dict[str, int] = {}
        self.stored: list[str] = []
        self.done = self.text = self.tokens = self.number = 0
        self.seconds = 0.0
        self.second, self.transcriber = RATES["audio/pcm"], ""

    def play(self, talk: Conversation) -> None:
        self.talk = talk
        for sent in talk._connection:
            wire = json.loads(sent)
            self.read(wire)
            kind = wire["type"]
            if kind == "session.update":
                self.configure(wire)
            elif kind == "input_audio_buffer.append":
                self.listen(wire)
            elif kind == "input_audio_buffer.commit":
                self.transcribe()
            elif kind == "response.create":
                self.respond()
            elif kind == "response.cancel":
                raise ConnectionClosed(None, None)  # it reports no usage

    def read(self, value: Any, name: str = "") -> None:
        """Count the text of an event, and note ids of the account's objects."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self.read(inner, key)
        elif isinstance(value, list):
            for inner in value:
                self.read(inner, name)
        elif isinstance(value, str):
            if (
                (name == "file_id")
                or (name == "id" and value == "voice_1")
                or value.startswith(("gs://", sdk.ADDRESSES[5]))
            ):
                self.stored.append(f"{name}: {value}")
            elif name == "image_url":
                self.tokens += IMAGE
            elif name not in ("audio", "type", "event_id"):
                self.text += len(value) // 6

    def send(self, kind: str, more: int, **members: Any) -> None:
        """Send an event; `more` is what is consumed beside all that is done."""
        self.number += 1
        ident = f"certain_{self.number}"
        self.certain[ident] = self.done + self.heard() + more
        self.talk._connection.send(json.dumps({"type": kind, "event_id": ident, **members}))

    def configure(self, wire: Json) -> None:
        session = wire["session"]
        self.talk._settings |= session
        heard = (session.get("audio") or {}).get("input") or {}
        self.second = RATES.get((heard.get("format") or {}).get("type"), self.second)
        if "transcription" in heard:
            self.transcriber = (heard["transcription"] or {}).get("model", "")
        self.send("session.updated", 0, session=self.talk._settings)

    def listen(self, wire: Json) -> None:
        self.seconds += len(base64.b64decode(wire["audio"])) / self.second
        if self.transcriber:
            self.send(f"{HEARD}delta", 0, item_id="item_live", content_index=0, delta="word ")

    def heard(self) -> int:
        return int(self.seconds) * SECOND[self.transcriber] if self.transcriber else 0

    def transcribe(self) -> None:
        self.send("input_audio_buffer.committed", 0, item_id=f"item_{self.number}")
        self.tokens += int(self.seconds) * SOUND_TOKENS
        if self.transcriber:
            usage: Json = {"type": "duration", "seconds": int(self.seconds)}
            item = f"item_{self.number}"
            self.done, self.seconds = self.done + self.heard(), 0.0
            self.send(f"{HEARD}completed", 0, item_id=item, content_index=0, transcript="word", usage=usage)
        self.seconds = 0.0

    def respond(self) -> None:
        ident = f"resp_{self.number}"
        read = self.text * TEXT
        response = {"id": ident, "status": "in_progress", "output": []}
        self.send("response.created", 0, response=response)
        about = {"response_id": ident, "item_id": "item", "output_index": 0, "content_index": 0}
        for _ in range(2):
            self.send("response.output_text.delta", read, **about, delta="word ")
        usage = {"input_tokens": self.text + self.tokens, "output_tokens": OUTPUT}
        usage["input_token_details"] = {"text_tokens": self.text, "audio_tokens": self.tokens}
        self.done += read + self.tokens * SOUND + OUTPUT * WRITTEN
        self.send("response.done", 0, response={**response, "status": "completed", "usage": usage})


def draw_events(draw: sdk.Draw) -> list[Json]:
    """Events of a caller: settings, items, sound and a response."""
    events: list[Json] = []
    kinds = draw(st.lists(st.sampled_from(("settings", "item", "sound", "commit", "session")), max_size=4))
    live = draw(st.booleans())
    for kind in (*(("settings", "sound") if live else ()), *kinds):
        if kind == "settings":
            format: Json = {"type": draw(st.sampled_from(list(RATES)))}
            heard = {"format": format, "transcription": {"model": draw(st.sampled_from(list(SECOND)))}}
            heard["turn_detection"] = None
            session: Json = {"type": "realtime", "audio": {"input": heard}}
            if draw(st.booleans()):
                session["audio"]["output"] = {"voice": {"id": "voice_1"}}
            events.append({"type": "session.update", "session": session})
        elif kind == "session":
            session = sdk.structure_of(draw, named("realtime_session_create_request_param"))
            session.pop("model", None)
            events.append(
                {"type": "session.update", "session": session | {"audio": {"input": {"turn_detection": None}}}}
            )
        elif kind == "item":
            item = draw_item(draw)
            events.append({"type": "conversation.item.create", "item": item})
        elif kind == "sound":
            length = draw(st.sampled_from((48_000, 480_000)))
            events.append({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(length)).decode()})
        else:
            events.append({"type": "input_audio_buffer.commit"})
    response: Json = {}
    if draw(st.booleans()):
        response = sdk.structure_of(draw, named("realtime_response_create_params_param"))
        response.pop("model", None)
    return [*events, {"type": "response.create", "response": response}]


def draw_item(draw: sdk.Draw) -> Json:
    kinds = importlib.import_module("openai.types.realtime.conversation_item_param").ConversationItemParam
    item = sdk.structure_of(draw, draw(st.sampled_from(list(sdk.kinds_in(kinds)))))
    if draw(st.booleans()):
        part = {"type": "input_image", "image_url": draw(st.sampled_from(sdk.ADDRESSES))}
        item["content"] = [draw(st.sampled_from((part, {"type": "input_file", "file_id": "file-1"})))]
    if item.get("type") == "function_call_output" and draw(st.booleans()):
        item["output"] = [{"type": "input_file", "file_id": "file-1"}]
    return item


def talk_with(address: str, key: str, events: list[Json], most: int) -> str:
    """Send the events; return the id of the last event that was received before the caller left, at the latest after
    `most` of them."""
    url = f"{address.replace('http', 'ws')}/v1/realtime?model=gpt-realtime"
    last = ""
    with connect(url, additional_headers={"Authorization": f"Bearer {key}"}, max_size=1 << 26) as socket:
        try:
            for one in events:
                socket.send(json.dumps(one))
            for _ in range(most):
                wire = json.loads(socket.recv(timeout=10))
                last = wire["event_id"] if wire["event_id"].startswith("certain_") else last
                if wire["type"] in ("response.done", "error"):
                    break
        except ConnectionClosed:
            pass
    return last


@pytest.mark.extended
def test_a_session_with_any_event_is_refused_or_paid(share: Share) -> None:
    fake = share.fake(FakeRealtime)
    gateway = share.gateway(upstream_settings(fake.url))
    billed = [0]

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        strict = StrictSession()
        fake.plays = [strict.play]
        events = draw_events(data.draw)
        last = talk_with(gateway.address, gateway.key, events, data.draw(st.integers(1, 12)))
        event(f"received {last != ''}")
        assert not strict.stored, (strict.stored, events)
        least = billed[0] + strict.certain.get(last, 0)
        assert until(lambda: sum(row.cost_nusd for row in usage_of(gateway)) >= least, 8), (
            least - billed[0],
            [(row.served, row.finish, row.cost_nusd) for row in usage_of(gateway)][-4:],
            events,
            last,
        )
        assert until(lambda: not gateway.services.engine.realtime.running, 8)
        billed[0] = sum(row.cost_nusd for row in usage_of(gateway))

    holds()
