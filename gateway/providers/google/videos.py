"""Videos of Google's Veo on Vertex AI: {address}/models/{model}:predictLongRunning and :fetchPredictOperation.

Wire facts: Vertex AI reference, "Veo video generation"; the package `google-genai`. The response names an operation. A
poll of the finished operation returns the video in base64, or its location in Cloud Storage for projects that store it
there. `raiMediaFilteredCount` counts videos that a filter withheld.
"""

from typing import Any
from urllib.parse import quote

from gateway.catalogue.video_shapes import fit
from gateway.dialects import google as dialect
from gateway.errors import UpstreamFailed
from gateway.neutral.file_types import HEAD_BYTES, decode_base64, type_of
from gateway.neutral.images import Picture
from gateway.neutral.videos import VideoFile, VideosInput, VideosRequest, VideoStatus, VideoTask
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.google.generate import Authorize, address_of
from gateway.providers.inline_files import Base64Files, InlineFiles
from gateway.providers.media_codecs import JobReader, completed, ended, ident_in, progress_in, ratio_of, refuse
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.runtime.large_files import StoredFile

BEGIN = "predictLongRunning"
ASK = "fetchPredictOperation"
RATIOS = ("16:9", "9:16")
STORED = "gs://"
STORAGE = "https://storage.googleapis.com/storage/v1/b"
CANCELLED = 1  # of google.rpc.Code
BYTES = "bytesBase64Encoded"


class GoogleVideos(JobReader):
    """Veo's codec. `authorize` adds the credential to the headers; `folder` stores videos that a response contains."""

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize, folder: str = "") -> None:
        super().__init__()
        self._authorize = authorize
        self._folder = folder

    def write(self, request: VideosRequest, target: Target) -> Call:
        """Build the call. NotSupported for reference videos and audios, and as in `fit`."""
        content: VideosInput = request.content()
        shape = fit(content, target.mapping)
        refuse(content, target, "reference_videos", "reference_audios")
        files = Base64Files()
        instance: dict[str, Any] = {"prompt": content.prompt}
        if content.first_frame is not None:
            instance["image"] = _image(content.first_frame, files)
        if content.last_frame is not None:
            instance["lastFrame"] = _image(content.last_frame, files)
        if content.reference_images:
            images = [_image(picture, files) for picture in content.reference_images]
            instance["referenceImages"] = [{"image": image, "referenceType": "asset"} for image in images]
        parameters = {
            "sampleCount": 1,
            "durationSeconds": shape.seconds,
            "aspectRatio": ratio_of(shape, RATIOS),
            "resolution": shape.resolution,
            "generateAudio": shape.audio,
        }
        return self._post(target, BEGIN, files.encode({"instances": [instance], "parameters": parameters}))

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        """Return the operation as a task."""
        return VideoTask(ident=ident_in(wire["name"]))

    def status(self, ident: str, target: Target) -> Call:
        """POST {address}/models/{model}:fetchPredictOperation."""
        return self._post(target, ASK, Base64Files().encode({"operationName": ident}))

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        """Read the state of a task; a video in the response is written to the disk as it arrives."""
        files = InlineFiles(self._folder, whole)
        try:
            wire = read_object(files.read(reply.chunks()))
            for video in (wire.get("response") or {}).get("videos") or ():
                video[BYTES] = files.take(video.get(BYTES)) or video.get(BYTES)
            return self.state_of(wire, target)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        finally:
            files.close()

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        if not wire.get("done"):
            ident_in(wire["name"])  # raises for a response that is not an operation
            return VideoStatus("in_progress", progress_in((wire.get("metadata") or {}).get("progressPercent")))
        error = wire.get("error")
        if error:
            if error.get("code") == CANCELLED:
                return VideoStatus("canceled")
            return ended("failed", target, error.get("status") or error.get("code"), error.get("message"))
        answer = wire["response"]
        videos = answer.get("videos") or []
        if not videos:
            filtered = answer.get("raiMediaFilteredReasons") or []
            reasons = "; ".join(reason for reason in filtered if isinstance(reason, str))
            withheld = bool(answer.get("raiMediaFilteredCount") or reasons)
            if withheld:
                return ended("failed", target, message=reasons, refused=True)
            return completed("")
        return VideoStatus("completed", 100, files=(_file(videos[0]),))

    def content(self, file: VideoFile, target: Target) -> Call:
        """Build the GET of the video in Cloud Storage, with the same credential."""
        bucket, _, name = file.file.removeprefix(STORED).partition("/")
        headers: dict[str, str] = {"accept": "*/*"}
        self._authorize(headers, target)
        return Call("GET", f"{STORAGE}/{quote(bucket, safe='')}/o/{quote(name, safe='')}?alt=media", headers)

    def _post(self, target: Target, method: str, body: Any) -> Call:
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        return Call("POST", address_of(target, method), headers, body)


def _image(picture: Picture, files: Base64Files) -> dict[str, str]:
    return {BYTES: files.hold(picture.file), "mimeType": picture.media_type}


def _file(video: dict[str, Any]) -> VideoFile:
    """Return the location of a video, or the video itself."""
    kind = video.get("mimeType")
    if not isinstance(kind, str) or not kind.startswith("video/"):
        kind = "video/mp4"
    place = video.get("gcsUri")
    if place:
        if not place.startswith(STORED) or "/" not in place.removeprefix(STORED):
            raise ValueError("no location in Cloud Storage")
        return VideoFile(file=place, media_type=kind)
    data = video[BYTES]
    if not data:
        raise ValueError("no bytes")
    if not isinstance(data, StoredFile):
        data = StoredFile.of(decode_base64(data))
    detected = type_of(data.read(HEAD_BYTES))
    return VideoFile(data=data, media_type=detected if detected.startswith("video/") else kind)
