"""Videos of MiniMax, in version 2 of its format (MiniMax-H3) and in version 1 (Hailuo).

Wire facts: MiniMax's API references. Version 2: POST /v2/video_generation and GET
/v2/query/video_generation/{task_id}, which returns the URL of the video. Version 1 (`video_form = "v1"` in `extra`):
POST /v1/video_generation, GET /v1/query/video_generation with `task_id`, which returns a file id, and GET
/v1/files/retrieve with `file_id`, which returns a URL that is valid for an hour. Version 1 reports errors in
`base_resp` of responses of status 200, and makes no sound. Tasks can be queried for seven days.
"""

import dataclasses
from typing import Any

from msgspec import json

from gateway.catalogue.video_shapes import VideoShape, fit
from gateway.errors import UpstreamFailed
from gateway.neutral.usage import read_count
from gateway.neutral.videos import VideoFile, VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE
from gateway.providers.failures import Explanation, classify, scrub
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    JobReader,
    completed,
    content_parts,
    data_url,
    ended,
    ident_in,
    milliseconds,
    ratio_of,
    read_apart,
    refuse,
    segment,
    sound_warning,
    state_in,
    url_in,
)
from gateway.providers.protocol import Call, Target, UpstreamReply

NAME = "minimax"
FORM_KEY = "video_form"
FIRST = "v1"
VERSIONS = ("/v1", "/v2")
RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4", "21:9")
STATES: dict[str, VideoState] = {
    "queued": "queued",
    "queueing": "queued",
    "preparing": "queued",
    "running": "in_progress",
    "processing": "in_progress",
    "succeeded": "completed",
    "success": "completed",
    "failed": "failed",
    "fail": "failed",
    "cancelled": "canceled",
}
# MiniMax's codes in responses of status 200 (page "Error codes"), as an HTTP status and an error code.
REFUSED_STATUS: dict[int, tuple[int, str]] = {
    1001: (504, "timeout"),
    1002: (429, "rate_limit"),
    1004: (401, "invalid_api_key"),
    1008: (402, "insufficient_quota"),
    1026: (400, "content_filter"),
    1027: (400, "content_filter"),
    1039: (429, "rate_limit"),
    2013: (400, "invalid_request"),
    2049: (401, "invalid_api_key"),
}
FILTERED = frozenset(code for code, (_, error) in REFUSED_STATUS.items() if error == "content_filter")


class MiniMaxVideos(JobReader):
    """Codec of video tasks in both versions of the format."""

    dialect = NAME
    locates = True

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported as in `fit`, and for inputs that version 1 lacks."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        files = Base64Files()
        first = _is_first(target)
        body = _first_body(content, target, files) if first else _second_body(content, shape, files)
        body |= {"model": target.mapping.external_id, "duration": shape.seconds}
        body["resolution"] = shape.resolution.upper()
        warnings = sound_warning(content, target)
        if content.first_frame is not None and content.size:
            warnings += (f"{target.mapping.key} makes videos of an image in the image's ratio; size has no effect.",)
        return self.posts(_rooted(target), f"{VERSIONS[not first]}/video_generation", files.encode(body), warnings)

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        _check(wire)
        return VideoTask(ident=ident_in(wire["task_id"]))

    def status(self, ident: str, target: Target) -> Call:
        """GET the task."""
        path = f"/v1/query/video_generation?task_id={segment(ident)}"
        if not _is_first(target):
            path = f"/v2/query/video_generation/{segment(ident)}"
        return self._asks(target, path)

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        if "task" in wire:
            return _second_state(wire["task"], target)
        outcome = wire.get("base_resp") or {}
        code = read_count(outcome.get("status_code"))
        if code in FILTERED:
            return ended("failed", target, code, outcome.get("status_msg"), refused=True)
        status = wire.get("status")
        if not status:
            _check(wire)
        state = state_in(STATES, status)
        if state == "completed":
            return VideoStatus(state, 100, files=(VideoFile(file=ident_in(wire["file_id"])),))
        if state == "failed":
            # Without a code, the message is "success": it is about the query and not about the task.
            reason = outcome.get("status_msg") if code else ""
            return ended(state, target, code or "", wire.get("error_message") or reason)
        return VideoStatus(state)

    def content(self, file: VideoFile, target: Target) -> Call:
        """GET /v1/files/retrieve?file_id=, which returns the URL of the video."""
        return self._asks(target, f"/v1/files/retrieve?file_id={segment(file.file)}")

    def location(self, reply: UpstreamReply, target: Target) -> str:
        wire = read_apart(reply)
        try:
            _check(wire)
            return url_in(wire["file"]["download_url"])
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None

    def _asks(self, target: Target, path: str) -> Call:
        return self.asks(_rooted(target), path)


def _is_first(target: Target) -> bool:
    return bool(target.mapping.extra.get(FORM_KEY) == FIRST)


def _rooted(target: Target) -> Target:
    """Return the target with an address without the version, since the version depends on the model."""
    version = next((version for version in VERSIONS if target.address.endswith(version)), "")
    if version:
        return dataclasses.replace(target, address=target.address.removesuffix(version))
    return target


def _first_body(content: VideosInput, target: Target, files: Base64Files) -> dict[str, Any]:
    refuse(content, target, "reference_images", "reference_videos", "reference_audios")
    body: dict[str, Any] = {"prompt": content.prompt}
    if content.first_frame is not None:
        body["first_frame_image"] = data_url(content.first_frame, files)
    if content.last_frame is not None:
        body["last_frame_image"] = data_url(content.last_frame, files)
    return body


def _second_body(content: VideosInput, shape: VideoShape, files: Base64Files) -> dict[str, Any]:
    body: dict[str, Any] = {"content": content_parts(content, files)}
    if content.first_frame is None:
        body["ratio"] = ratio_of(shape, RATIOS)
    return body


def _second_state(task: dict[str, Any], target: Target) -> VideoStatus:
    state = state_in(STATES, task["status"])
    if state == "completed":
        seconds = (task.get("usage") or {}).get("output_seconds") or task.get("duration")
        return completed((task.get("content") or {}).get("url"), milliseconds(seconds))
    if state == "failed":
        error = task.get("error") or {}
        return ended(state, target, error.get("code"), error.get("message"))
    return VideoStatus(state)


def _check(wire: dict[str, Any]) -> None:
    """Raise the error in `base_resp`, classified by the HTTP status of the same meaning; return if there is none."""
    outcome = wire.get("base_resp") or {}
    code = read_count(outcome.get("status_code"))
    if not code:
        return
    status, error_code = REFUSED_STATUS.get(code, (502, str(code)))
    message = scrub(str(outcome.get("status_msg") or ""))
    text = scrub(json.encode(outcome).decode())
    raise classify(status, Explanation(message, error_code, text=text, shaped=True), None)
