"""Writes each tool call of a streamed chat completion in one piece, for clients that read no others."""

from collections.abc import Iterator
from typing import Any

import orjson

Json = dict[str, Any]
DATA = b"data: "
END = b"\n\n"
KINDS = {"function": "arguments", "custom": "input"}


class WholeCalls:
    """The frames of a stream, with the calls of a choice in the chunk that has its finish reason; `close` closes the
    stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._calls: dict[int, dict[int, Json]] = {}  # by choice and index

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        sent = b""
        while not sent:  # an empty item would end the response
            sent = b"".join(map(self._frame, filter(None, next(self._frames).split(END))))
        return sent

    def close(self) -> None:
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()

    def _frame(self, frame: bytes) -> bytes:
        if frame.startswith(DATA + b"{") and (self._calls or b'"tool_calls"' in frame):
            chunk = orjson.loads(frame[len(DATA) :])
            kept = [choice for choice in chunk["choices"] if self._keep(choice) or "usage" in chunk]
            if not kept:
                return b""
            frame = DATA + orjson.dumps({**chunk, "choices": kept})
        return frame + END

    def _keep(self, choice: Json) -> bool:
        """Move the calls of a choice to its last chunk; return whether the choice still has content."""
        calls = self._calls.setdefault(choice.get("index", 0), {})
        delta = choice["delta"] = choice.get("delta") or {}
        for piece in delta.pop("tool_calls", None) or ():
            _add(calls.setdefault(piece["index"], {}), piece)
        if choice.get("finish_reason") and calls:
            delta["tool_calls"] = list(calls.values())
            calls.clear()
        return bool(delta or choice.get("finish_reason"))


def _add(call: Json, piece: Json) -> None:
    """Add a piece to a call: texts of its arguments are joined."""
    for kind, text in KINDS.items():
        if isinstance(piece.get(kind), dict):
            held = call.get(kind) or {}
            joined = (held.get(text) or "") + (piece[kind].get(text) or "")
            piece[kind] = {**held, **piece[kind], text: joined}
    call.update(piece)
