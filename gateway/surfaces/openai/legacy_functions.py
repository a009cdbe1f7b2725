"""Writes chat completions in the older format: one `function_call` instead of `tool_calls`."""

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.runtime.threads import compute_if
from gateway.surfaces.caps import LARGE
from gateway.surfaces.http import Outbound

Json = dict[str, Any]
DATA = b"data: "
END = b"\n\n"
REASON = "function_call"


def write(outbound: Outbound) -> Outbound:
    """Return the response in the format of callers that sent `functions`."""
    body = outbound.body
    if outbound.status != 200:
        return outbound
    if isinstance(body, bytes):
        return Outbound(outbound.status, outbound.headers, compute_if(len(body) >= LARGE, _whole, body))
    return Outbound(outbound.status, outbound.headers, _Frames(body))


def _whole(body: bytes) -> bytes:
    answer = orjson.loads(body)
    for choice in answer["choices"]:
        _turn(choice, choice["message"])
    return orjson.dumps(answer)


class _Frames:
    """The frames of a stream; `close` closes the stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return END.join(map(_frame, next(self._frames).split(END)))

    def close(self) -> None:
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()


def _frame(frame: bytes) -> bytes:
    if not frame.startswith(DATA + b"{") or (b'"tool_calls"' not in frame):
        return frame
    chunk = orjson.loads(frame[len(DATA) :])
    for choice in chunk.get("choices") or ():
        _turn(choice, choice.get("delta") or {})
    return DATA + orjson.dumps(chunk)


def _turn(choice: Json, message: Json) -> None:
    """Return the first call of a message or delta as its `function_call`; the older format has room for one call
    only."""
    calls = message.pop("tool_calls", None)
    first = next((call for call in calls or () if not call.get("index")), None)
    if first is not None and isinstance(first.get("function"), dict):
        message["function_call"] = first["function"]
    if choice.get("finish_reason") == "tool_calls":
        choice["finish_reason"] = REASON
