"""Server events of OpenAI's Realtime API, as its reference shows them, and what is billed by them."""

from typing import Any

import orjson
import pytest

from gateway.neutral.realtime import ServerEvent
from gateway.providers.openai.realtime import read_event


def read(**event: Any) -> ServerEvent:
    return read_event(orjson.dumps({"event_id": "event_1", **event}).decode())


@pytest.mark.parametrize(
    ("status", "finish"),
    [("completed", "stop"), ("cancelled", "cancelled"), ("incomplete", "length"), ("failed", "error")],
)
def test_a_response_ends_with_its_status(status: str, finish: str) -> None:
    event = read(type="response.done", response={"id": "resp_1", "status": status})
    assert (event.kind, event.id, event.finish) == ("done", "resp_1", finish)


@pytest.mark.parametrize(
    "kind",
    [
        "output_text",
        "output_audio_transcript",
        "function_call_arguments",
        "text",  # names of the beta, which compatible servers still use
        "audio_transcript",
    ],
)
def test_each_kind_of_text_counts_when_a_response_breaks_off(kind: str) -> None:
    event = read(type=f"response.{kind}.delta", response_id="resp_1", delta="a" * 100)
    assert event.id == "resp_1" and event.text_length >= 100


@pytest.mark.parametrize("kind", ["output_audio", "audio"])
def test_sound_counts_when_a_response_breaks_off(kind: str) -> None:
    event = read(type=f"response.{kind}.delta", response_id="resp_1", delta="AAAA" * 100)
    assert event.id == "resp_1" and event.sound_bytes >= 300


def test_a_failed_transcription_frees_its_reservation() -> None:
    event = read(
        type="conversation.item.input_audio_transcription.failed",
        item_id="item_1",
        content_index=0,
        error={"type": "transcription_error", "code": "audio_unintelligible", "message": "Not understood."},
    )
    assert (event.kind, event.id) == ("transcription_failed", "item_1")
