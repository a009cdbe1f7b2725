"""A whole answer of the sandbox before anything goes wrong with it."""

from dataclasses import dataclass

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
