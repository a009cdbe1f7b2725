"""Messages of a Responses WebSocket."""

import json

import pytest

from gateway.errors import InvalidRequest, RateLimited
from gateway.surfaces.responses.socket_turns import TurnEvents, read_frame, write_error, write_refusal

CREATED = b'event: response.created\ndata: {"type":"response.created"}\n\n'
FAILED = b'event: response.failed\ndata: {"type":"response.failed"}\n\n'


def test_frames_of_one_piece_are_messages_with_the_stream_of_their_turn() -> None:
    events = TurnEvents("a-1")
    messages = [json.loads(text) for text in events.read(CREATED + b": keep-alive\n\n" + FAILED)]
    assert messages == [
        {"type": "response.created", "stream_id": "a-1"},
        {"type": "response.failed", "stream_id": "a-1"},
    ]
    assert events.close() == ""


def test_nothing_follows_a_terminal_event() -> None:
    """The three events that end a response: API reference, streaming events."""
    for name in (b"response.completed", b"response.failed", b"response.incomplete"):
        events = TurnEvents("")
        end = FAILED.replace(b"response.failed", name)
        assert [json.loads(text)["type"] for text in events.read(end + CREATED)] == [name.decode()]
        assert events.close() == ""


def test_a_turn_without_a_terminal_event_ends_with_an_error() -> None:
    events = TurnEvents("")
    assert len([*events.read(CREATED)]) == 1
    body = json.loads(events.close())
    assert (body["type"], body["status"], body["error"]["code"]) == ("error", 500, "internal_error")


def test_an_error_has_its_status_and_says_when_to_retry() -> None:
    body = json.loads(write_error(RateLimited("Wait.", code="slow", retry_after=3.2), "b"))
    assert (body["status"], body["error"]["code"], body["stream_id"]) == (429, "slow", "b")
    assert body["error"]["headers"] == {"retry-after": "4", "retry-after-ms": "3200"} and body["error"]["param"] is None


def test_a_refusal_passes_on_the_headers_that_clients_read() -> None:
    body = b'{"error": {"message": "Wait.", "type": "t", "param": "model", "code": "slow"}}'
    limits = [("RateLimit-Policy", '"key";q=60'), ("X-RateLimit-Remaining-Requests", "0")]
    headers = [("Content-Type", "application/json"), ("Retry-After", "5"), ("x-request-id", "1"), *limits]
    decoded = json.loads(write_refusal(body, 429, headers, ""))
    assert decoded["error"]["headers"] == {
        "retry-after": "5",
        "x-request-id": "1",
        **{name.lower(): value for name, value in limits},
    }
    assert (decoded["error"]["param"], "stream_id" in decoded) == ("model", False)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"type": "session.update"}', b'{"type": "response.create", "stream_id": ""}']
)
def test_other_messages_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_frame(text)
