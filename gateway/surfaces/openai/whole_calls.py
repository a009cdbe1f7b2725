"""Writes each tool call of a streamed chat completion in one piece, for clients that read no others."""

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.runtime.threads import compute_if

Json = dict[str, Any]
DATA = b"data: "
END = b"\n\n"
FINISH = b'"finish_reason":"'
THREAD_BYTES = 1 << 17  # from which calls are joined in a thread
KINDS = {"function": "arguments", "custom": "input"}


class _Call:
    """The pieces of one call. Texts are joined once, so that many pieces take linear time."""

    def __init__(self) -> None:
        self._members: Json = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, piece: Json) -> None:
        for kind, text in KINDS.items():
            if isinstance(piece.get(kind), dict):
                self._texts.setdefault(kind, []).append(piece[kind].get(text) or "")
                piece[kind] = {**self._members.get(kind, {}), **piece[kind]}
        self._members.update(piece)

    def join(self) -> Json:
        """Return the whole call."""
        joined = {kind: {**self._members[kind], KINDS[kind]: "".join(texts)} for kind, texts in self._texts.items()}
        return {**self._members, **joined}


class WholeCalls:
    """The frames of a stream, with the calls of a choice in the chunk that has its finish reason; `close` closes the
    stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._calls: dict[int, dict[int, _Call]] = {}  # by choice and index
        self._size = 0  # bytes of the frames that were read

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
            self._size += len(frame)
            return compute_if(self._size > THREAD_BYTES and FINISH in frame, self._rewrite, frame)
        return frame + END

    def _rewrite(self, frame: bytes) -> bytes:
        chunk = orjson.loads(frame[len(DATA) :])
        kept = [choice for choice in chunk["choices"] if self._keep(choice) or "usage" in chunk]
        if not kept:
            return b""
        return DATA + orjson.dumps({**chunk, "choices": kept}) + END

    def _keep(self, choice: Json) -> bool:
        """Move the calls of a choice to its last chunk; return whether the choice still has content."""
        calls = self._calls.setdefault(choice.get("index", 0), {})
        delta = choice["delta"] = choice.get("delta") or {}
        for piece in delta.pop("tool_calls", None) or ():
            calls.setdefault(piece["index"], _Call()).add(piece)
        if choice.get("finish_reason") and calls:
            delta["tool_calls"] = [call.join() for call in calls.values()]
            calls.clear()
        return bool(delta or choice.get("finish_reason"))
