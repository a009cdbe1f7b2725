"""A complete answer of the sandbox, before faults are applied."""

from dataclasses import dataclass
from typing import Any

import orjson

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """`body` of a plain answer, or `frames` of a stream: each one server-sent event, the [DONE] mark left to faults.

    `media` is the type of an answer that is neither JSON nor events; its `frames` are pieces of the file.
    `pieces` is the number of chunks that the answer would have streamed, for its pace; `bare` is the body with an
    empty list where the answers should be.
    """

    body: bytes = b""
    frames: tuple[bytes, ...] = ()
    streamed: bool = False
    pieces: int = 1
    bare: bytes = b"{}"
    media: str = ""


def write_event(wire: dict[str, Any]) -> bytes:
    """A frame of a stream whose events are distinguished by their `type`."""
    return b"data: " + orjson.dumps(wire) + b"\n\n"
