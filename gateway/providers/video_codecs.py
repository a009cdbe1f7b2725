"""The base class and readers of all video codecs: calls about a task, and validation of each field of the answers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.catalogue.video_shapes import VideoShape
from gateway.errors import ContentRefused, GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.images import nearest_shape
from gateway.neutral.parts import WEB
from gateway.neutral.videos import CONTENT_FILTER, SECOND_MS, VideoFile, VideosInput, VideoState, VideoStatus, VideoTask
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, check_parts, read_object
from gateway.providers.failures import classify, explain, read_refusal, retry_after, scrub
from gateway.providers.image_codecs import data_url
from gateway.providers.inline_files import Base64Files
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.runtime.large_files import MessageBody
from gateway.runtime.threads import compute_if

LARGE = 1 << 17  # bytes of an answer that is read in a thread
MAX_ANSWER_BYTES = 1 << 20  # bytes of a status: hundreds are polled concurrently, and custom servers are not trusted
MAX_ID_LENGTH = 512
MAX_URL_LENGTH = 8192
MAX_CODE_LENGTH = 64
DAY_S = 86_400
ID_PATTERN = re.compile(r"[\w.:/@=+-]+", re.ASCII)  # of a task or file, as a string or as a number
FAILED = "The provider could not generate the video."
NO_VIDEO = "The provider finished without a video."
# Words in providers' codes and messages for content that their filters refuse.
REFUSAL_WORDS = re.compile(
    r"moderat|(?<!case.)sensitive|safety|content[ _-]?polic|usage guidelines|inspection|infringement|prohibited|nsfw"
    r"|responsible ai",
    re.IGNORECASE,
)
GUIDELINES = re.compile(r"usage guidelines|content polic", re.IGNORECASE)
REFUSING = (400, 403, 422)  # statuses of a refusal by a filter


class JobReader(WrittenCodec, ABC):
    """The base class of video codecs: the parts of a JobCodec that most providers share. `tokens` as for OpenAIChat."""

    locates = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def asks(self, target: Target, path: str, method: str = "GET") -> Call:
        """Return a call without a body."""
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "application/json"
        return Call(method, url, headers)

    def posts(self, target: Target, path: str, body: bytes | MessageBody, warnings: tuple[str, ...]) -> Call:
        """Return a call that starts a task, with `body` as JSON."""
        call = self.asks(target, path, "POST")
        call.headers["content-type"] = "application/json"
        call.body = body
        call.warnings = warnings
        return call

    def read(self, reply: UpstreamReply, relayed: bool) -> VideoTask:
        """Return the task that the provider started. UpstreamFailed for an answer of an unknown shape."""
        wire = read_object(reply.read_all())
        try:
            return self.task_of(wire)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        """Return the task's status. UpstreamFailed for an answer that has an unknown shape or is too large."""
        body = read_small(reply)
        return compute_if(len(body) >= LARGE, self._read_body, body, target)

    def content(self, file: VideoFile, target: Target) -> Call:
        """Raise NotSupported. Providers that store videos override this."""
        raise NotSupported(f"Provider {target.provider.id} does not store videos.")

    def location(self, reply: UpstreamReply, target: Target) -> str:
        """Return "": the answer to `content` is the video. UpstreamFailed for text or JSON."""
        kind = reply.headers.get("content-type", "").lower()
        if "json" in kind or kind.startswith("text/"):
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)
        return ""

    def cancel(self, ident: str, target: Target) -> Call | None:
        """Return None. Providers that can cancel a task override this."""
        return None

    @abstractmethod
    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        """Read the answer that starts a task; raises any of SHAPE_ERRORS for an unknown shape."""

    @abstractmethod
    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        """Read a task's status; raises any of SHAPE_ERRORS for an unknown shape."""

    def _read_body(self, body: bytes, target: Target) -> VideoStatus:
        wire = read_object(body)
        try:
            return self.state_of(wire, target)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None


def read_small(reply: UpstreamReply) -> bytes:
    """Return the body of an answer about a task. UpstreamFailed for a body that is too large or has too many parts."""
    body = bytearray()
    for piece in reply.chunks():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise UpstreamFailed("The provider's answer is too large.", code="response_too_large")
    check_parts(bytes(body))
    return bytes(body)


def job_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error as `upstream_failure` does, but ContentRefused when the code or message mentions a filter."""
    cause = explain(read_refusal(reply), (target.credential.secret,))
    if reply.status in REFUSING and (REFUSAL_WORDS.search(cause.code) or GUIDELINES.search(cause.message)):
        message = cause.message or "The provider refused the content."
        return ContentRefused(message, code=CONTENT_FILTER, upstream_status=reply.status)
    return classify(reply.status, cause, target, retry_after(reply.headers))


def read_apart(reply: UpstreamReply) -> dict[str, Any]:
    """Return the object of an answer that `state_of` does not read. UpstreamFailed as for `read_status`."""
    body = read_small(reply)
    return compute_if(len(body) >= LARGE, read_object, body)


def ident_in(value: Any) -> str:
    """Return the id of a task or a file. ValueError or TypeError for an invalid id."""
    text = str(value) if type(value) is int else value
    if not ID_PATTERN.fullmatch(text) or len(text) > MAX_ID_LENGTH or ".." in text:
        raise ValueError("not an id")
    return str(text)


def segment(ident: str) -> str:
    """Return an id as one segment of a path."""
    return quote(ident, safe="")


def url_in(value: Any) -> str:
    """Return a public URL. ValueError, TypeError or AttributeError for an invalid URL."""
    text = value.strip()
    if not text.lower().startswith(WEB) or len(text) > MAX_URL_LENGTH or not text.isprintable():
        raise ValueError("not a URL")
    return str(text)


def state_in(states: Mapping[str, VideoState], value: Any) -> VideoState:
    """Return the state for a provider's name of it, in any letter case. ValueError, AttributeError for an unknown
    name."""
    state = states.get(value.lower())
    if state is None:
        raise ValueError("an unknown state")
    return state


def progress_in(value: Any) -> int:
    """Return the progress in percent; 0 for a value that is not a number."""
    if type(value) in (int, float) and value == value:
        return int(max(0, min(100, value)))
    return 0


def milliseconds(seconds: Any) -> int | None:
    """Convert a length in seconds, given as a number or a string, to milliseconds; None for an invalid length."""
    try:
        value = float(seconds)
    except (TypeError, ValueError, OverflowError):
        return None
    if 0 < value < DAY_S and not isinstance(seconds, bool):
        return round(value * SECOND_MS)
    return None


def completed(url: Any, video_ms: int | None = None, tokens: int | None = None) -> VideoStatus:
    """Return the status of a finished task with a public URL; a failed status without a URL."""
    if not url:
        return VideoStatus("failed", error_code="no_video", error_message=NO_VIDEO)
    return VideoStatus("completed", 100, files=(VideoFile(url_in(url)),), video_ms=video_ms, tokens=tokens)


def ended(state: VideoState, target: Target, code: Any = "", message: Any = "", refused: bool = False) -> VideoStatus:
    """Return the status of a task that ended without a video, with the provider's code and message, scrubbed.
    `refused`: a filter refused the content; code and message are also searched for that."""
    error_code = _scrub_value(code, target)
    error_message = _scrub_value(message, target)
    if refused or REFUSAL_WORDS.search(f"{error_code} {error_message}"):
        error_code = CONTENT_FILTER
    return VideoStatus(state, error_code=error_code[:MAX_CODE_LENGTH] or state, error_message=error_message or FAILED)


def _scrub_value(value: Any, target: Target) -> str:
    if type(value) in (str, int):
        return scrub(str(value), (target.credential.secret,))
    return ""


def ratio_of(shape: VideoShape, offered: tuple[str, ...]) -> str:
    """Return the provider's aspect ratio that is nearest to the size."""
    return nearest_shape(shape.size, offered)


def content_parts(content: VideosInput, files: Base64Files) -> list[dict[str, Any]]:
    """Return the prompt and its media as parts with roles, the form that several providers use."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": content.prompt}]
    frames = (("first_frame", content.first_frame), ("last_frame", content.last_frame))
    images = [(role, image) for role, image in frames if image is not None]
    images += [("reference_image", image) for image in content.reference_images]
    parts += [_part("image_url", data_url(image, files), role) for role, image in images]
    parts += [_part("video_url", url, "reference_video") for url in content.reference_videos]
    parts += [_part("audio_url", url, "reference_audio") for url in content.reference_audios]
    return parts


def _part(kind: str, url: str, role: str) -> dict[str, Any]:
    return {"type": kind, kind: {"url": url}, "role": role}


def refuse(content: VideosInput, target: Target, *names: str) -> None:
    """Raise NotSupported for a field of the request that the format lacks."""
    for name in names:
        if getattr(content, name):
            what = f"{target.mapping.key} does not support {name.replace('_', ' ')}."
            raise NotSupported(what, param=name, code="unsupported_input")


def sound_warning(content: VideosInput, target: Target) -> tuple[str, ...]:
    """Return a warning when the request sets `audio` and the format cannot switch the sound on or off."""
    known = target.mapping.video_audio or target.mapping.video_without_audio
    if content.audio is not None and not known:
        return (f"audio is not supported by {target.mapping.key} and was left out.",)
    return ()
