from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from gateway.surfaces.openai import chat
from gateway.surfaces.openai.chat import WholeCalls

END = b"\n\n"
DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "choices": [choice], **more}) + END


def piece(index: int, arguments: str, name: str = "") -> dict[str, Any]:
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def written(*items: bytes) -> list[dict[str, Any]]:
    sent = list(WholeCalls(iter(items)))
    assert all(sent)
    frames = b"".join(sent).split(END)
    return [orjson.loads(frame[6:]) for frame in frames if frame.startswith(b"data: {")]


def test_pieces_of_calls_are_joined_in_the_last_chunk() -> None:
    chunks = written(
        chunk({"role": "assistant", "content": "I look."}),
        chunk(piece(0, "", "look")) + chunk(piece(0, '{"x":')),
        chunk(piece(1, '{"y"', "see")),
        chunk(piece(0, "1}")) + chunk(piece(1, ":2}")),
        chunk({}, "tool_calls"),
        chunk({}, usage={"total_tokens": 3}) + DONE,
    )
    assert [one["choices"][0]["delta"] for one in chunks[:1]] == [{"role": "assistant", "content": "I look."}]
    assert chunks[1]["choices"][0] == {
        "index": 0,
        "delta": {
            "tool_calls": [
                {"index": 0, "id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
                {"index": 1, "id": "call_1", "type": "function", "function": {"name": "see", "arguments": '{"y":2}'}},
            ]
        },
        "finish_reason": "tool_calls",
    }
    assert (len(chunks), chunks[2]["usage"]) == (3, {"total_tokens": 3})


@pytest.mark.parametrize("length", [10, chat.THREAD_BYTES])
def test_long_calls_are_joined_in_a_thread(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    monkeypatch.setattr(chat, "compute_if", lambda large, work, *args: threads.append(large) or work(*args))
    written(chunk(piece(0, "", "look")), chunk(piece(0, "1" * length)), chunk({}, "tool_calls"))
    assert threads == [False, False, length > 10]


def test_each_choice_has_its_own_calls() -> None:
    chunks = written(
        chunk(piece(0, "{}", "look"), index=1),
        chunk(piece(0, "[]", "see")),
        chunk({}, "tool_calls", 1),
        chunk({}, "stop"),
    )
    calls = {one["choices"][0]["index"]: one["choices"][0]["delta"]["tool_calls"] for one in chunks}
    assert {index: made[0]["function"]["name"] for index, made in calls.items()} == {0: "see", 1: "look"}


def test_other_frames_are_unchanged() -> None:
    error = b'event: error\ndata: {"error":{}}\n\n'
    items = [chunk({"content": "Hi"}), PING, error, chunk({}, "stop"), DONE]
    assert list(WholeCalls(iter(items))) == items


def test_closing_closes_the_stream() -> None:
    closed = []

    def stream() -> Iterator[bytes]:
        try:
            yield PING
        finally:
            closed.append(True)

    frames = WholeCalls(stream())
    assert next(frames) == PING
    frames.close()
    assert closed
