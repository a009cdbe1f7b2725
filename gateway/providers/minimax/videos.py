"""Videos of MiniMax: the second version of its format (MiniMax-H3), and the first (Hailuo) with three calls.

Facts: MiniMax's API references. Second: POST /v2/video_generation, GET /v2/query/video_generation/{task_id}, which
names the video. First (`video_form = "v1"` in `extra`): POST /v1/video_generation, GET /v1/query/video_generation with
`task_id`, which names a file, and GET /v1/files/retrieve with `file_id`, which names the video for an hour. The first
tells its errors in `base_resp` of answers of status 200, and makes no sound. Tasks can be asked for within seven days.
"""

import dataclasses
from typing import Any

from msgspec import json

from gateway.catalogue.videos import VideoShape, fit
from gateway.errors import UpstreamFailed
from gateway.neutral.usage import read_count
from gateway.neutral.videos import VideoFile, VideosInput, VideosRequest, VideoState, VideoStatus, VideoTask
from gateway.providers.answer_checks import ODD, SHAPE_ERRORS
from gateway.providers.base64_files import Base64Files
from gateway.providers.failures import Explanation, classify, scrub
from gateway.providers.image_codecs import data_url
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.video_codecs import (
    JobReader,
    completed,
    content_parts,
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

NAME = "minimax"
FORM = "video_form"
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
# Its own codes in answers of status 200: the status that another provider would send, and the code (Error codes).
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
FILTERED = (1026, 1027)


class MiniMaxVideos(JobReader):
    """One object serves all requests, in both versions."""

    dialect = NAME
    locates = True

    def write(self, request: VideosRequest, target: Target) -> Call:
        """The call. NotSupported as `fit`, and for what the first version has no place for."""
        wanted: VideosInput = request.content()
        shape = fit(wanted, target.mapping)
        files = Base64Files()
        first = _is_first(target)
        if first:
            body = _first_body(wanted, shape, target, files)
        else:
            body = _second_body(wanted, shape, files)
        body |= {"model": target.mapping.external_id, "duration": shape.seconds}
        body["resolution"] = shape.resolution.upper()
        warnings = sound_warning(wanted, target)
        if wanted.first_frame is not None and wanted.size:
            warnings += (f"A video of an image has the image's ratio at {target.mapping.key}, whatever the size.",)
        return self.posts(_rooted(target), f"{VERSIONS[not first]}/video_generation", files.encode(body), warnings)

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        _check(wire)
        return VideoTask(ident=ident_in(wire["task_id"]))

    def status(self, ident: str, target: Target) -> Call:
        """GET of the task."""
        where = f"/v1/query/video_generation?task_id={segment(ident)}"
        if not _is_first(target):
            where = f"/v2/query/video_generation/{segment(ident)}"
        return self._asks(target, where)

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        if "task" in wire:
            return _second_state(wire["task"], target)
        told = wire.get("base_resp") or {}
        code = read_count(told.get("status_code"))
        if code in FILTERED:
            return ended("failed", target, code, told.get("status_msg"), refused=True)
        word = wire.get("status")
        if not word:
            _check(wire)
        state = state_in(STATES, word)
        if state == "completed":
            return VideoStatus(state, 100, files=(VideoFile(file=ident_in(wire["file_id"])),))
        if state == "failed":
            why = told.get("status_msg") if code else ""  # without a code it is "success": the question was answered
            return ended(state, target, code or "", wire.get("error_message") or why)
        return VideoStatus(state)

    def content(self, file: VideoFile, target: Target) -> Call:
        """GET /v1/files/retrieve?file_id=, whose answer names the video."""
        return self._asks(target, f"/v1/files/retrieve?file_id={segment(file.file)}")

    def location(self, reply: UpstreamReply, target: Target) -> str:
        wire = read_apart(reply)
        try:
            _check(wire)
            return url_in(wire["file"]["download_url"])
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None

    def _asks(self, target: Target, where: str) -> Call:
        return self.asks(_rooted(target), where)


def _is_first(target: Target) -> bool:
    return bool(target.mapping.extra.get(FORM) == FIRST)


def _rooted(target: Target) -> Target:
    """The address without its version, which depends on the model here."""
    version = next((one for one in VERSIONS if target.address.endswith(one)), "")
    if version:
        return dataclasses.replace(target, address=target.address.removesuffix(version))
    return target


def _first_body(wanted: VideosInput, shape: VideoShape, target: Target, files: Base64Files) -> dict[str, Any]:
    refuse(wanted, target, "reference_images", "reference_videos", "reference_audios")
    body: dict[str, Any] = {"prompt": wanted.prompt}
    if wanted.first_frame is not None:
        body["first_frame_image"] = data_url(wanted.first_frame, files)
    if wanted.last_frame is not None:
        body["last_frame_image"] = data_url(wanted.last_frame, files)
    return body


def _second_body(wanted: VideosInput, shape: VideoShape, files: Base64Files) -> dict[str, Any]:
    body: dict[str, Any] = {"content": content_parts(wanted, files)}
    if wanted.first_frame is None:
        body["ratio"] = ratio_of(shape, RATIOS)
    return body


def _second_state(task: dict[str, Any], target: Target) -> VideoStatus:
    state = state_in(STATES, task["status"])
    if state == "completed":
        made = (task.get("usage") or {}).get("output_seconds") or task.get("duration")
        return completed((task.get("content") or {}).get("url"), milliseconds(made))
    if state == "failed":
        error = task.get("error") or {}
        return ended(state, target, error.get("code"), error.get("message"))
    return VideoStatus(state)


def _check(wire: dict[str, Any]) -> None:
    """The error that `base_resp` tells of, as that of the status which others send for it."""
    told = wire.get("base_resp") or {}
    code = read_count(told.get("status_code"))
    if not code:
        return
    status, word = REFUSED_STATUS.get(code, (502, str(code)))
    message = scrub(str(told.get("status_msg") or ""))
    raise classify(status, Explanation(message, word, text=scrub(json.encode(told).decode()), shaped=True), None)
