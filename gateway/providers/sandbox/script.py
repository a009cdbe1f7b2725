"""The script of a reply: the bytes to send, their times, the end, and faults."""

from typing import Literal

from msgspec import Struct

from gateway.providers.sandbox.chat import write_frame
from gateway.providers.sandbox.directives import Directives
from gateway.providers.sandbox.response import EVENTS, JSON, Response, event_fault, write_fault

DONE = b"data: [DONE]\n\n"
BROKEN_FRAME = b'data: {"id": "chatcmpl-sandbox", "object": "chat.completion.chunk", "choices": [{"index": 0, \n\n'
HTML = b"<!DOCTYPE html>\n<html><head><title>Sandbox</title></head><body>This page is no answer.</body></html>\n"

Ending = Literal["whole", "cut", "stall"]


class ScriptStep(Struct, frozen=True):
    """A pause of `wait_s` seconds, followed by `data` in one piece."""

    wait_s: float
    data: bytes


class Script(Struct, frozen=True):
    """A reply to play. After the last step, the transfer is complete, is cut off, or stalls until the deadline."""

    status: int
    headers: dict[str, str]
    steps: tuple[ScriptStep, ...] = ()
    ending: Ending = "whole"
    start_s: float = 0.0  # before the headers


def stage(response: Response, directives: Directives) -> Script:
    """Return the script of a 2xx answer with the requested faults."""
    if directives.wrong_content_type:
        return Script(200, {"content-type": "text/html; charset=utf-8"}, (ScriptStep(directives.silent, HTML),))
    headers = {"content-type": response.media or (EVENTS if response.streamed else JSON)}
    if directives.empty:
        return Script(200, headers)
    if response.streamed:
        return _stage_stream(response, directives, headers)
    return _stage_plain(response, directives, headers)


def stage_status(directives: Directives) -> Script:
    """Return the script of an answer with a simulated error status."""
    headers = {"content-type": JSON}
    if directives.retry_after is not None:
        headers["retry-after"] = f"{directives.retry_after:g}"
    return Script(directives.status, headers, (ScriptStep(0.0, write_fault(directives.status, directives.code)),))


def _stage_plain(response: Response, directives: Directives, headers: dict[str, str]) -> Script:
    if directives.error_event is not None:
        return stage_body(200, headers, write_frame(event_fault())[6:].strip())
    body = response.bare if directives.no_choices else response.body
    wait_s = directives.silent + directives.pace_s * response.pieces
    half = body[: len(body) // 2]
    if directives.cut is not None:
        return Script(200, headers, (ScriptStep(wait_s, half),), "cut")
    if directives.stall is not None:
        return Script(200, headers, (ScriptStep(wait_s, half),), "stall")
    if directives.malformed is not None or directives.close is not None:
        body = half
    return Script(200, headers, (ScriptStep(wait_s, body),))


def stage_body(status: int, headers: dict[str, str], body: bytes) -> Script:
    """Return the script of a short answer without delays."""
    return Script(status, headers, (ScriptStep(0.0, body),))


def _stage_stream(response: Response, directives: Directives, headers: dict[str, str]) -> Script:
    frames = list(response.frames)
    place = directives.malformed
    if response.media:
        return _stage_file(frames, directives, headers)
    if place is not None and place <= len(frames):
        frames[place - 1] = BROKEN_FRAME
    ending: Ending = "whole"
    if directives.error_event is not None:
        frames[directives.error_event :] = [write_frame(event_fault())]
    elif directives.cut is not None:
        frames = frames[: directives.cut]
        ending = "cut"
    elif directives.stall is not None:
        frames = frames[: directives.stall]
        ending = "stall"
    elif directives.close is not None:
        frames = frames[: directives.close]
    elif not directives.no_done:
        frames.append(DONE)
    return Script(200, headers, _pace(frames, directives), ending)


def _stage_file(pieces: list[bytes], directives: Directives, headers: dict[str, str]) -> Script:
    """Return the script of a file in pieces. Every fault of a stream truncates the file."""
    places = (directives.malformed, directives.error_event, directives.cut, directives.close)
    cut = next((place for place in places if place is not None), None)
    ending: Ending = "whole" if cut is None else "cut"
    if cut is None and directives.stall is not None:
        cut = directives.stall
        ending = "stall"
    return Script(200, headers, _pace(pieces if cut is None else pieces[:cut], directives), ending)


def _pace(frames: list[bytes], directives: Directives) -> tuple[ScriptStep, ...]:
    first = ScriptStep(directives.silent, frames[0]) if frames else ScriptStep(directives.silent, b"")
    return (first, *(ScriptStep(directives.pace_s, frame) for frame in frames[1:]))
