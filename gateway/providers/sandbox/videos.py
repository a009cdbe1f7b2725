"""Videos: jobs that are complete after some seconds, with the same video of four seconds. Ranges are supported.

The server stores nothing: a job's id contains its start, its duration and its outcome, so every worker can serve it.
The video (H.264 and AAC, 640x360) is part of the package and is returned for every requested size.

Source: OpenAI API reference, "Videos".
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from gateway.clock import Clock
from gateway.providers.protocol import Call
from gateway.providers.sandbox.checks import Check, accept, check_fields, of, one_of
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.response import CODES, JSON, Response, refuse
from gateway.providers.sandbox.script import Script, ScriptStep, stage_body
from gateway.runtime.byte_ranges import NoSuchRange, read_range

PATH = re.compile(r"/videos/(?P<ident>[^/]+)(?P<content>/content)?$")
VIDEO_ID = re.compile(r"video_(\d{1,15})-(\d{1,8})-(\d{1,3})-(\d{1,5}x\d{1,5})-(ready|refused)")
FILM = Path(__file__).with_name("sample.mp4")
MEDIA = "video/mp4"
PIECE_BYTES = 16_384
DEFAULT_DURATION_S = 2.0  # without a directive `takes`
FILTER = "content_filter"
LENGTHS = ("4", "8", "12")
DEFAULT_SIZE = "1280x720"


class SandboxVideo(Struct, frozen=True):
    """A job: its start and duration (milliseconds), the requested length and size, and its outcome."""

    began_ms: int
    takes_ms: int
    seconds: str
    size: str
    end: str

    @property
    def ident(self) -> str:
        return f"video_{self.began_ms}-{self.takes_ms}-{self.seconds}-{self.size}-{self.end}"

    def show(self, now_ms: int) -> dict[str, Any]:
        """Return the job as a Video object of the API."""
        passed = now_ms - self.began_ms
        shown: dict[str, Any] = {
            "id": self.ident,
            "object": "video",
            "created_at": self.began_ms // 1000,
            "seconds": self.seconds,
            "size": self.size,
            "status": "queued" if passed * 4 < self.takes_ms else "in_progress",
            "progress": max(0, min(99, passed * 100 // max(1, self.takes_ms))),
        }
        if passed < self.takes_ms:
            return shown
        if self.end == "ready":
            return shown | {"status": "completed", "progress": 100}
        return shown | {"status": "failed", "error": {"code": FILTER, "message": CODES[FILTER]}}


def check_videos(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "prompt"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the prompt."""
    return str(body["prompt"])


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return a job that starts now."""
    end = "refused" if directives.refusal else "ready"
    takes_ms = round((DEFAULT_DURATION_S if directives.takes is None else directives.takes) * 1000)
    now_ms = Clock().now_us() // 1000
    job = SandboxVideo(now_ms, takes_ms, body.get("seconds") or LENGTHS[0], body.get("size") or DEFAULT_SIZE, end)
    shown = {**job.show(now_ms), "model": body["model"], "prompt": strip(body["prompt"])}
    return Response(orjson.dumps(shown))


def find(call: Call, path: str) -> Script | None:
    """Return the answer to a call about a job; None for other calls."""
    match = PATH.search(path)
    if match is None:
        return None
    job = _read(match["ident"])
    now_ms = Clock().now_us() // 1000
    if match["content"]:
        return _content(job, call, now_ms)
    if call.method == "DELETE":
        if now_ms - job.began_ms >= job.takes_ms:
            raise refuse("The video is no longer in progress.", status=409)
        return stage_body(200, {"content-type": JSON}, orjson.dumps({"id": job.ident, "deleted": True}))
    if call.method != "GET":
        raise refuse(f"Not allowed to {call.method} on {path[-40:]}", "", "method_not_supported", 405)
    return stage_body(200, {"content-type": JSON}, orjson.dumps(job.show(now_ms)))


def _read(ident: str) -> SandboxVideo:
    match = VIDEO_ID.fullmatch(ident)
    if match is None:
        raise refuse(f"Video with id '{ident[:80]}' not found.", "id", "not_found", 404)
    began, takes, seconds, size, end = match.groups()
    return SandboxVideo(int(began), int(takes), seconds, size, end)


def _content(job: SandboxVideo, call: Call, now_ms: int) -> Script:
    if job.show(now_ms)["status"] != "completed":
        raise refuse("The video is not ready yet.", "id", "not_ready", 404)
    film = _film()
    tag = f'"{job.ident}"'
    headers = {"content-type": MEDIA, "accept-ranges": "bytes", "etag": tag}
    byte_range = call.headers.get("range", "")
    if call.headers.get("if-range", tag) != tag:
        byte_range = ""
    try:
        part = read_range(byte_range, len(film))
    except NoSuchRange:
        return Script(416, {**headers, "content-range": f"bytes */{len(film)}", "content-length": "0"})
    start, end = part or (0, len(film))
    headers["content-length"] = str(end - start)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{len(film)}"
    steps = [ScriptStep(0.0, film[at : min(at + PIECE_BYTES, end)]) for at in range(start, end, PIECE_BYTES)]
    return Script(200 if part is None else 206, headers, tuple(steps))


@cache
def _film() -> bytes:
    return FILM.read_bytes()


def _size(value: Any, param: str) -> None:
    of(str)(value, param)
    if not re.fullmatch(r"\d{1,5}x\d{1,5}", value):
        raise refuse(f"Invalid '{param}': expected width x height.", param, "invalid_value")


FIELDS: dict[str, Check] = {
    "model": of(str),
    "prompt": of(str),
    "seconds": one_of(*LENGTHS),
    "size": _size,
    "input_reference": accept,
}
