"""A strict fake of the videos of OpenAI, Vertex AI, xAI, ByteDance, Alibaba, MiniMax and Atlas Cloud.

Requests are held to the members that the packages `openai`, `google-genai`, `@ai-sdk/xai`, `@ai-sdk/bytedance` and
`@ai-sdk/alibaba` send and the others' references name. A task is queued at the first status request, in progress at the
second, and then ends with `ending`: "completed", "failed", "refused", "canceled" or "expired". `films` is the base URL
of the videos.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

from fakes.server import FakeServer, send_json
from google import genai
from multipart import MultipartParser, parse_options_header
from openai.types import Video
from openai.types.video_create_params import VideoCreateParams

FILM = b"\x00\x00\x00\x18ftypmp42" + b"film" * 64
KEY = "sk-fake-video-key-0123456789"
OPERATION = "projects/p/locations/us-central1/publishers/google/models/veo-3.1-generate-001/operations/op-1"
TOKENS, MADE_SECONDS = 86_400, 4
DATA_URL = re.compile(r"data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/]+=*")
WITHHELD = f"The output may contain sensitive material (key {KEY})"


@dataclass
class VideoRequest:
    """A recorded request."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    part: str = ""


@dataclass
class FakeTask:
    request: VideoRequest
    questions: int = 0
    canceled: bool = False


class FakeVideoServices(FakeServer):
    """The video services; `calls` records the requests.

    `stored`: Vertex AI writes to the caller's bucket. `inline` is the video that it otherwise sends in the response.
    """

    ending = "completed"
    stored = False
    inline = FILM
    films = ""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[str, FakeTask] = {}

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        request = read_request(environ)
        self.calls.append(request)
        if request.path.startswith("/films/"):
            start("200 OK", [("Content-Type", "video/mp4"), ("Content-Length", str(len(FILM)))])
            return iter([FILM])
        if environ.get("HTTP_AUTHORIZATION") != f"Bearer {KEY}":
            return send_json(start, 401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "x"}})
        answer = self.next_answer(None)
        if answer is not None:
            return send_json(start, *answer)
        try:
            status, body = self._answer(request)
        except AssertionError as error:
            return send_json(start, 400, {"error": {"message": f"refused: {error}", "code": "invalid", "status": "X"}})
        if isinstance(body, bytes):
            start("200 OK", [("Content-Type", "video/mp4")])
            return iter([body])
        return send_json(start, status, body)

    def _answer(self, request: VideoRequest) -> tuple[int, Any]:
        for prefix, serve in SERVICES:
            if request.path.startswith(prefix):
                return serve(self, request, request.path.removeprefix(prefix))
        return 404, {"error": {"message": "no such path", "code": "not_found"}}

    @property
    def film(self) -> str:
        return f"{self.films or self.address}/films/1.mp4"

    def begin(self, request: VideoRequest, ident: str) -> str:
        self.tasks[ident] = FakeTask(request)
        return ident

    def state(self, ident: str) -> str:
        """ "queued", "in_progress", or how it ended."""
        task = self.tasks[ident]
        task.questions += 1
        if task.canceled:
            return "canceled"
        return "queued" if task.questions == 1 else "in_progress" if task.questions == 2 else self.ending


def read_request(environ: dict[str, Any]) -> VideoRequest:
    request = VideoRequest(environ["REQUEST_METHOD"], environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", "")))
    request.part = environ.get("HTTP_RANGE", "")
    raw = environ["wsgi.input"].read()
    kind, options = parse_options_header(environ.get("CONTENT_TYPE") or "")
    if kind == "multipart/form-data":
        for part in MultipartParser(BytesIO(raw), options["boundary"], len(raw), strict=True):
            if part.filename is None:
                request.body[part.name] = part.value
            else:
                request.files[part.name] = part.raw
    elif raw:
        assert kind == "application/json", "content type"
        request.body = json.loads(raw)
    return request


def serve_openai(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    if rest == "":
        body = request.body
        assert body.keys() | request.files.keys() <= VideoCreateParams.__annotations__.keys(), "members"
        assert body["prompt"] and re.fullmatch(r"\d+x\d+", body["size"]) and body["seconds"].isdigit(), "values"
        assert request.files.keys() <= {"input_reference"}, "files"
        return 200, openai_video(fake, fake.begin(request, "video_1"), "queued")
    ident, _, what = rest.removeprefix("/").partition("/")
    if ident not in fake.tasks:
        return 404, {"error": {"message": f"Video with id '{ident}' not found.", "code": "not_found"}}
    if request.method == "DELETE":
        fake.tasks[ident].canceled = True
        return 200, {"id": ident, "object": "video.deleted", "deleted": True}
    return (200, FILM) if what == "content" else (200, openai_video(fake, ident, fake.state(ident)))


def openai_video(fake: FakeVideoServices, ident: str, state: str) -> dict[str, Any]:
    body = fake.tasks[ident].request.body
    error = None
    if state in ("failed", "refused"):
        error = {"code": "moderation_blocked" if state == "refused" else "server_error", "message": f"No, {KEY}."}
        state = "failed"
    video = {"id": ident, "object": "video", "created_at": 1, "model": body["model"], "status": state}
    video |= {"progress": {"queued": 0, "in_progress": 40}.get(state, 100), "error": error}
    video |= {"seconds": body["seconds"], "size": body["size"]}
    if state in ("queued", "in_progress", "completed", "failed"):
        Video.model_validate(video)
    return video


def serve_vertex(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    model, _, method = rest.partition(":")
    assert request.method == "POST" and model == "veo-3.1-generate-001", "address"
    if method == "predictLongRunning":
        (instance,) = request.body["instances"]
        assert instance.keys() <= {"prompt", "image", "lastFrame", "referenceImages"} and instance["prompt"], "instance"
        images = [one for name in ("image", "lastFrame") if (one := instance.get(name))]
        for image in instance.get("referenceImages", ()):
            assert image.keys() == {"image", "referenceType"} and image["referenceType"] == "asset", "references"
            images.append(image["image"])
        for image in images:
            assert image.keys() == {"bytesBase64Encoded", "mimeType"} and base64.b64decode(image["bytesBase64Encoded"])
        parameters = request.body["parameters"]
        known = {"sampleCount", "durationSeconds", "aspectRatio", "resolution", "generateAudio"}
        assert parameters.keys() == known and parameters["sampleCount"] == 1, "parameters"
        assert parameters["durationSeconds"] in (4, 6, 8) and parameters["aspectRatio"] in ("16:9", "9:16"), "values"
        assert parameters["resolution"] in ("720p", "1080p", "4k") and type(parameters["generateAudio"]) is bool
        return 200, {"name": fake.begin(request, OPERATION)}
    assert method == "fetchPredictOperation" and request.body.keys() == {"operationName"}, "method"
    ident = request.body["operationName"]
    if ident not in fake.tasks:
        return 404, {"error": {"code": 404, "message": "Operation not found.", "status": "NOT_FOUND"}}
    return 200, vertex_operation(fake, ident)


def vertex_operation(fake: FakeVideoServices, ident: str) -> dict[str, Any]:
    state = fake.state(ident)
    if state in ("queued", "in_progress"):
        return {"name": ident}
    if state in ("failed", "canceled"):
        code, status = (1, "CANCELLED") if state == "canceled" else (13, "INTERNAL")
        return {"name": ident, "done": True, "error": {"code": code, "status": status, "message": f"No, {KEY}."}}
    response: dict[str, Any] = {"@type": "type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse"}
    if state == "refused":
        response |= {"raiMediaFilteredCount": 1, "raiMediaFilteredReasons": ["Sensitive words. Support codes: 1"]}
    elif fake.stored:
        response["videos"] = [{"gcsUri": "gs://bucket/a b/film.mp4", "mimeType": "video/mp4"}]
    else:
        response["videos"] = [{"bytesBase64Encoded": base64.b64encode(fake.inline).decode(), "mimeType": "video/mp4"}]
    genai.types.GenerateVideosResponse.model_validate({"rai_media_filtered_count": 1})
    return {"name": ident, "done": True, "response": response}


def serve_xai(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    if rest == "/generations":
        body = request.body
        known = {"model", "prompt", "duration", "aspect_ratio", "resolution", "image", "reference_images"}
        assert request.method == "POST" and body.keys() <= known and body["prompt"], "members"
        assert 1 <= body["duration"] <= 15 and body["resolution"] in ("480p", "720p", "1080p"), "values"
        assert body.get("aspect_ratio", "1:1") in ("1:1", "16:9", "9:16", "4:3", "3:4", "3:2", "2:3"), "ratio"
        images = [one for one in (body.get("image"), *body.get("reference_images", ())) if one]
        assert all(image.keys() == {"url"} and DATA_URL.fullmatch(image["url"]) for image in images), "images"
        assert not ("image" in body and "reference_images" in body), "both"
        return 200, {"request_id": fake.begin(request, "0197-aa")}
    ident = rest.removeprefix("/")
    if ident not in fake.tasks:
        return 404, {"code": "not-found", "error": "The requested resource was not found."}
    state = fake.state(ident)
    if state in ("queued", "in_progress"):
        return 202, {"status": "pending", "progress": 10}
    if state in ("completed", "refused"):
        video = {"url": fake.film, "duration": MADE_SECONDS, "respect_moderation": state == "completed"}
        return 200, {"status": "done", "model": "grok-imagine-video", "video": video, "progress": 100}
    if state == "expired":
        return 200, {"status": "expired"}
    return 200, {"status": "failed", "error": {"code": "internal_error", "message": f"No, {KEY}."}}


def check_parts(parts: list[dict[str, Any]]) -> None:
    roles = {"image_url": ("first_frame", "last_frame", "reference_image")}
    roles |= {"video_url": ("reference_video",), "audio_url": ("reference_audio",)}
    assert [part["text"] for part in parts if part["type"] == "text"], "no text"
    for part in parts:
        if (kind := part["type"]) != "text":
            assert part.keys() == {"type", kind, "role"} and part["role"] in roles[kind], "part"
            url = part[kind]["url"]
            assert DATA_URL.fullmatch(url) if kind == "image_url" else url.startswith("https://"), "url"


def serve_ark(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    if rest == "":
        body = request.body
        known = {"model", "content", "resolution", "ratio", "duration", "generate_audio", "watermark"}
        assert request.method == "POST" and body.keys() <= known, "members"
        check_parts(body["content"])
        assert body["resolution"] in ("480p", "720p", "1080p") and 4 <= body["duration"] <= 15, "values"
        assert body["ratio"] in ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9", "adaptive"), "ratio"
        return 200, {"id": fake.begin(request, "cgt-2026-x")}
    ident = rest.removeprefix("/")
    if ident not in fake.tasks:
        return 404, {"error": {"code": "ResourceNotFound", "message": "No such task.", "type": "NotFound"}}
    task = fake.tasks[ident]
    if request.method == "DELETE":
        if task.questions > 1:
            return 409, {"error": {"code": "InvalidAction.RunningTaskDeletion", "message": "It is running."}}
        task.canceled = True
        return 200, {}
    state = fake.state(ident)
    statuses = {"in_progress": "running", "completed": "succeeded", "canceled": "cancelled", "refused": "failed"}
    video: dict[str, Any] = {"id": ident, "model": task.request.body["model"], "status": statuses.get(state, state)}
    if state == "completed":
        video |= {"content": {"video_url": fake.film}, "duration": task.request.body["duration"], "framespersecond": 24}
        video["usage"] = {"completion_tokens": TOKENS, "total_tokens": TOKENS}
    if state in ("failed", "refused"):
        code = "OutputVideoSensitiveContentDetected" if state == "refused" else "InternalServiceError"
        video["error"] = {"code": code, "message": f"No, {KEY}."}
    return 200, video


def serve_qwen(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    if rest == "/services/aigc/video-generation/video-synthesis":
        body, parameters = request.body, request.body["parameters"]
        assert body.keys() == {"model", "input", "parameters"} and body["input"]["prompt"], "members"
        assert body["input"].keys() <= {"prompt", "media", "img_url"}, "input"
        assert parameters.keys() <= {"resolution", "ratio", "size", "duration", "watermark", "audio"}, "parameters"
        assert re.fullmatch(r"\d+P|", parameters.get("resolution", "")) and re.fullmatch(
            r"\d+\*\d+|", parameters.get("size", "")
        )
        kinds = ("first_frame", "last_frame", "reference_image", "reference_video", "reference_audio")
        assert all(one.keys() == {"type", "url"} and one["type"] in kinds for one in body["input"].get("media", ()))
        ident = fake.begin(request, "task-0385")
        return 200, {"output": {"task_status": "PENDING", "task_id": ident}, "request_id": "r-1"}
    ident, _, what = rest.removeprefix("/tasks/").partition("/")
    if ident not in fake.tasks:
        return 200, {"output": {"task_id": ident, "task_status": "UNKNOWN"}, "request_id": "r-2"}
    if what == "cancel":
        assert request.method == "POST", "method"
        if fake.tasks[ident].questions > 1:
            return 400, {"code": "UnsupportedOperation", "message": "It is running.", "request_id": "r-3"}
        fake.tasks[ident].canceled = True
        return 200, {"request_id": "r-3"}
    state = fake.state(ident)
    statuses = {"queued": "PENDING", "in_progress": "RUNNING", "completed": "SUCCEEDED", "canceled": "CANCELED"}
    output: dict[str, Any] = {"task_id": ident, "task_status": statuses.get(state, "FAILED"), "submit_time": "2026"}
    if state == "expired":
        output = {"task_id": ident, "task_status": "UNKNOWN"}
    if state in ("failed", "refused"):
        output["code"] = "DataInspectionFailed" if state == "refused" else "InternalError"
        output["message"] = f"No, {KEY}."
    video: dict[str, Any] = {"output": output, "request_id": "r-2"}
    if state == "completed":
        output["video_url"] = fake.film
        video["usage"] = {"duration": MADE_SECONDS, "output_video_duration": MADE_SECONDS, "SR": 720, "ratio": "16:9"}
    return 200, video


def serve_minimax(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    done = {"status_code": 0, "status_msg": "success"}
    if rest == "/v2/video_generation":
        assert request.body.keys() <= {"model", "content", "resolution", "duration", "ratio"}, "members"
        check_parts(request.body["content"])
        images = [part for part in request.body["content"] if part["type"] == "image_url"]
        assert images or request.body["ratio"] != "adaptive", "ratio"
        assert request.body["resolution"] in ("768P", "2K") and 4 <= request.body["duration"] <= 15, "values"
        return 200, {"task_id": fake.begin(request, "424010985738629")}
    if rest.startswith("/v2/query/video_generation/"):
        return 200, {"task": minimax_task(fake, rest.rpartition("/")[2])}
    if rest == "/v1/video_generation":
        known = {"model", "prompt", "duration", "resolution", "first_frame_image", "last_frame_image"}
        assert request.body.keys() <= known and request.body["resolution"] in ("768P", "1080P"), "members"
        return 200, {"task_id": fake.begin(request, "106916112212032"), "base_resp": done}
    if rest == "/v1/query/video_generation":
        (ident,) = request.query["task_id"]
        if ident not in fake.tasks:
            return 200, {"base_resp": {"status_code": 2013, "status_msg": "invalid params, task_id"}}
        state = fake.state(ident)
        statuses = {"queued": "Queueing", "in_progress": "Processing", "completed": "Success"}
        video = {"task_id": ident, "status": statuses.get(state, "Fail"), "base_resp": done}
        if state == "completed":
            video |= {"file_id": "205258526306433", "video_width": 1366, "video_height": 768}
        if state == "refused":
            video["base_resp"] = {"status_code": 1027, "status_msg": f"output new_sensitive {KEY}"}
        return 200, video
    assert rest == "/v1/files/retrieve" and request.query["file_id"] == ["205258526306433"], "address"
    return 200, {"file": {"file_id": 205258526306433, "bytes": 0, "download_url": fake.film}, "base_resp": done}


def minimax_task(fake: FakeVideoServices, ident: str) -> dict[str, Any]:
    state = fake.state(ident)
    statuses = {"in_progress": "running", "completed": "succeeded", "canceled": "cancelled", "refused": "failed"}
    task: dict[str, Any] = {"id": ident, "model": "MiniMax-H3", "status": statuses.get(state, state)}
    task |= {"task_type": "generation", "modality": "video"}
    if state == "completed":
        task |= {"content": {"url": fake.film}, "duration": 5, "usage": {"output_seconds": MADE_SECONDS}}
    if state in ("failed", "refused"):
        task["error"] = {"code": "1027" if state == "refused" else "1000", "message": f"No, {KEY}."}
        if state == "refused":
            task["error"]["message"] = WITHHELD
    return task


def serve_atlas(fake: FakeVideoServices, request: VideoRequest, rest: str) -> tuple[int, Any]:
    if rest == "/generateVideo":
        known = {"model", "prompt", "duration", "resolution", "aspect_ratio", "size", "generate_audio", "image"}
        assert request.method == "POST" and request.body.keys() <= known | {"last_image", "images"}, "members"
        data = {"id": fake.begin(request, "pred_1"), "status": "processing", "outputs": None, "error": ""}
        return 200, {"code": 200, "message": "success", "data": data}
    ident = rest.removeprefix("/prediction/")
    if ident not in fake.tasks:
        return 200, {"code": 404, "message": "prediction not found", "data": None}
    state = fake.state(ident)
    statuses = {"queued": "created", "in_progress": "processing", "refused": "failed", "expired": "timeout"}
    data = {"id": ident, "status": statuses.get(state, state), "outputs": None, "error": ""}
    if state == "completed":
        data |= {"outputs": [fake.film], "has_nsfw_contents": [False]}
    if state in ("failed", "refused"):
        data["error"] = WITHHELD if state == "refused" else f"No, {KEY}."
    return 200, {"code": 200, "message": "success", "data": data}


SERVICES = (
    ("/v1/videos", serve_openai),
    ("/vertex/v1/projects/p/locations/us-central1/publishers/google/models/", serve_vertex),
    ("/xai/v1/videos", serve_xai),
    ("/ark/api/v3/contents/generations/tasks", serve_ark),
    ("/qwen/api/v1", serve_qwen),
    ("/minimax", serve_minimax),
    ("/atlas/api/v1/model", serve_atlas),
)
