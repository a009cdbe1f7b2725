"""Events of callers of /v1/realtime, in the types that OpenAI's SDK publishes."""

import base64
import json
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeClientEvent

from gateway.configuration.settings import load
from gateway.errors import InvalidRequest
from gateway.neutral.realtime import ClientEvent, SessionLock
from gateway.surfaces.openai.realtime_events import OpenAIEvents

PUBLISHED = [get_args(shape.model_fields["type"].annotation)[0] for shape in get_args(get_args(RealtimeClientEvent)[0])]
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
NEEDED: dict[str, dict[str, Any]] = {
    "conversation.item.create": {"item": ITEM},
    "input_audio_buffer.append": {"audio": base64.b64encode(b"\0" * 30).decode()},
    "session.update": {"session": {"type": "realtime"}},
}
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


@pytest.fixture
def events() -> OpenAIEvents:
    return OpenAIEvents("realtime", frozenset(("gpt-realtime",)), str, SessionLock(), load({}).limits, objects=True)


def read(events: OpenAIEvents, kind: str, **members: Any) -> ClientEvent:
    return events.read(json.dumps({"type": kind, **members}))


@pytest.mark.parametrize("kind", [*PUBLISHED, "transcription_session.update"])
def test_every_published_event_goes_on_to_the_provider(events: OpenAIEvents, kind: str) -> None:
    event = read(events, kind, **NEEDED.get(kind, {}))
    assert json.loads(event.text)["type"] == kind


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("response.create", "response"),
        ("input_audio_buffer.append", "sound"),
        ("input_audio_buffer.commit", "sound"),
        ("response.cancel", ""),
    ],
)
def test_an_event_tells_what_the_provider_may_begin_after_it(events: OpenAIEvents, kind: str, begins: str) -> None:
    assert read(events, kind, **NEEDED.get(kind, {})).begins == begins


def test_a_response_that_reads_something_else_than_the_conversation_stands_apart(events: OpenAIEvents) -> None:
    own = {"input": [ITEM], "conversation": "none", "instructions": "Be brief.", "tools": []}
    for name, value in own.items():
        assert read(events, "response.create", response={name: value}).apart, name
    assert not read(events, "response.create", response={"metadata": {"a": "b"}, "max_output_tokens": 9}).apart


@pytest.mark.parametrize("name", ["max_output_tokens", "max_response_output_tokens"])
def test_a_response_tells_its_output_limit(events: OpenAIEvents, name: str) -> None:
    assert read(events, "response.create", response={name: 9}).most_output == 9


def test_stored_prompts_and_traces_of_the_gateways_account_are_left_out(events: OpenAIEvents) -> None:
    event = read(events, "response.create", response={"prompt": {"id": "pmpt_1"}, "tracing": "auto", "metadata": {}})
    assert json.loads(event.text)["response"].keys() == {"metadata"}


def test_only_instructions_are_refused_where_a_client_secret_fixes_them() -> None:
    lock = SessionLock(model="gpt-realtime", instructions="Be polite.")
    locked = OpenAIEvents("realtime", frozenset(("gpt-realtime",)), str, lock, load({}).limits)
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    call = {"type": "function_call_output", "call_id": "c", "output": "{}"}
    for item in (ITEM, answer, call):
        read(locked, "conversation.item.create", item=item)
    with pytest.raises(InvalidRequest) as caught:
        read(locked, "conversation.item.create", item=ITEM | {"role": "system"})
    assert (caught.value.code, caught.value.param) == ("instructions_locked", "item.role")


def test_an_unknown_event_is_refused(events: OpenAIEvents) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(events, "session.delete")
    assert caught.value.code == "unknown_event"


@pytest.mark.parametrize(
    ("part", "unseen"),
    [
        ({"type": "input_text", "text": "Hi"}, False),
        ({"type": "output_text", "text": "Hi"}, False),
        ({"type": "text", "text": "Hi"}, False),
        ({"type": "input_audio", "audio": "AAAA"}, False),
        ({"type": "output_audio", "audio": "AAAA"}, False),
        ({"type": "audio", "audio": "AAAA"}, False),
        ({"type": "input_image", "image_url": PNG}, False),
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, True),
        ({"type": "input_file", "file_id": "file-1"}, True),
    ],
)
def test_content_that_only_the_provider_can_measure_is_marked(
    events: OpenAIEvents, part: dict[str, Any], unseen: bool
) -> None:
    assert read(events, "conversation.item.create", item={**ITEM, "content": [part]}).unseen is unseen
