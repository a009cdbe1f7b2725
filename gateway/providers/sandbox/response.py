"""A complete answer of the sandbox, before faults are applied."""

from dataclasses import dataclass
from typing import Any

import orjson

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """A plain answer has a `body`, a stream has `frames`: each is a server-sent event, without the [DONE] mark, which
    the script adds. `media` is the content type of an answer that is neither JSON nor events; its `frames` are pieces
    of the file. `pieces` is the number of chunks that a streamed answer would have, which determines the delay. `bare`
    is the body with an empty list of answers.
    """

    body: bytes = b""
    frames: tuple[bytes, ...] = ()
    streamed: bool = False
    pieces: int = 1
    bare: bytes = b"{}"
    media: str = ""


def write_event(wire: dict[str, Any]) -> bytes:
    """Return a frame of a stream of events that have a `type`."""
    return b"data: " + orjson.dumps(wire) + b"\n\n"
