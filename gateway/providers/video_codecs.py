"""What all video codecs share: calls that ask about a task, and answers read field by field, whatever they hold."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gateway.catalogue.videos import VideoShape
from gateway.errors import ContentRefused, GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.images import nearest_shape
from gateway.neutral.videos import REFUSED, SECOND_MS, VideoFile, VideosInput, VideoState, VideoStatus, VideoTask
from gateway.providers.answer_checks import ODD, SHAPE_ERRORS, check_parts, read_object
from gateway.providers.base64_files import Base64Files
from gateway.providers.failures import classify, explain, read_refusal, retry_after, scrub
from gateway.providers.image_codecs import data_url
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec
from gateway.runtime.large_files import MessageBody
from gateway.runtime.threads import compute_if

LARGE = 1 << 17  # bytes of an answer that a thread reads
MOST_ANSWER = 1 << 20  # of one about a task: hundreds are asked for at once, some of anybody's own servers
MOST_IDENT = 512
MOST_URL = 8192
MOST_CODE = 64
DAY_S = 86_400
IDENT = re.compile(r"[\w.:/@=+-]+", re.ASCII)  # of a task or file, as text or as digits of a number
FAILED = "The provider could not make the video."
NO_VIDEO = "The provider finished without a video."
# Words of providers' codes and messages for what their filters let not pass.
REFUSALS = re.compile(
    r"moderat|(?<!case.)sensitive|safety|content[ _-]?polic|usage guidelines|inspection|infringement|prohibited|nsfw"
    r"|responsible ai",
    re.IGNORECASE,
)
GUIDELINES = re.compile(r"usage guidelines|content polic", re.IGNORECASE)
REFUSING = (400, 403, 422)  # statuses of a refusal by a filter


class JobReader(WrittenCodec):
    """A codec of videos; what most providers have in common of a JobCodec. `tokens` as for OpenAIChat."""

    locates = False

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def asks(self, target: Target, path: str, method: str = "GET") -> Call:
        """A call without a body."""
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "application/json"
        return Call(method, url, headers)

    def posts(self, target: Target, path: str, body: bytes | MessageBody, warnings: tuple[str, ...]) -> Call:
        """A call that begins a task, with `body` as JSON."""
        call = self.asks(target, path, "POST")
        call.headers["content-type"] = "application/json"
        call.body = body
        call.warnings = warnings
        return call

    def read(self, reply: UpstreamReply, relayed: bool) -> VideoTask:
        """The task that was begun. UpstreamFailed for an answer of an unknown shape."""
        wire = read_object(reply.read_all())
        try:
            return self.task_of(wire)
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        """UpstreamFailed for an answer of an unknown shape, that is large, or of too many parts."""
        body = read_small(reply)
        return compute_if(len(body) >= LARGE, self._read_body, body, target)

    def content(self, file: VideoFile, target: Target) -> Call:
        """Of a provider that names URLs alone: NotSupported."""
        raise NotSupported(f"Provider {target.provider.id} keeps no videos.")

    def location(self, reply: UpstreamReply, target: Target) -> str:
        """ "": its answers to `content` are the video. UpstreamFailed for a page or an object instead."""
        kind = reply.headers.get("content-type", "").lower()
        if "json" in kind or kind.startswith("text/"):
            raise UpstreamFailed(ODD, upstream_status=200)
        return ""

    def cancel(self, ident: str, target: Target) -> Call | None:
        """Of a provider that cannot: None."""
        return None

    def task_of(self, wire: dict[str, Any]) -> VideoTask:
        """What the answer to its call says; raises any of SHAPE_ERRORS where it is of an unknown shape."""
        raise NotImplementedError

    def state_of(self, wire: dict[str, Any], target: Target) -> VideoStatus:
        """What an answer says; raises any of SHAPE_ERRORS where it is of an unknown shape."""
        raise NotImplementedError

    def _read_body(self, body: bytes, target: Target) -> VideoStatus:
        wire = read_object(body)
        try:
            return self.state_of(wire, target)
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None


def read_small(reply: UpstreamReply) -> bytes:
    """The body of an answer about a task. UpstreamFailed for one that is large or of too many parts."""
    body = bytearray()
    for piece in reply.chunks():
        body += piece
        if len(body) > MOST_ANSWER:
            raise UpstreamFailed("The provider sent too large an answer.", code="response_too_large")
    check_parts(bytes(body))
    return bytes(body)


def job_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """As `upstream_failure`; a refusal whose code or message tells of a filter is the content's fault, not theirs."""
    cause = explain(read_refusal(reply), (target.credential.secret,))
    if reply.status in REFUSING and (REFUSALS.search(cause.code) or GUIDELINES.search(cause.message)):
        message = cause.message or "The provider refused the content."
        return ContentRefused(message, code=REFUSED, upstream_status=reply.status)
    return classify(reply.status, cause, target, retry_after(reply.headers))


def read_apart(reply: UpstreamReply) -> dict[str, Any]:
    """The object of an answer that no `state_of` reads. UpstreamFailed as `read_status`."""
    body = read_small(reply)
    return compute_if(len(body) >= LARGE, read_object, body)


def ident_in(value: Any) -> str:
    """The id of a task or a file. ValueError, TypeError for what is none."""
    if type(value) is int:
        text = str(value)
    else:
        text = value
    if not IDENT.fullmatch(text) or len(text) > MOST_IDENT or ".." in text:
        raise ValueError("not an id")
    return str(text)


def segment(ident: str) -> str:
    """An id as one segment of a path."""
    return quote(ident, safe="")


def url_in(value: Any) -> str:
    """An address that anybody may load. ValueError, TypeError for what is none."""
    text = value.strip()
    if not text.lower().startswith(("https://", "http://")) or len(text) > MOST_URL or not text.isprintable():
        raise ValueError("not an address")
    return str(text)


def state_in(states: Mapping[str, VideoState], value: Any) -> VideoState:
    """Its word for a state, in any case. ValueError, AttributeError for an unknown one."""
    state = states.get(value.lower())
    if state is None:
        raise ValueError("an unknown state")
    return state


def progress_in(value: Any) -> int:
    """Of a hundred; 0 for what is no number."""
    if type(value) in (int, float) and value == value:
        return int(max(0, min(100, value)))
    return 0


def milliseconds(seconds: Any) -> int | None:
    """Of a length in seconds as a number or its text; None for what is none."""
    try:
        value = float(seconds)
    except (TypeError, ValueError, OverflowError):
        return None
    if 0 < value < DAY_S and not isinstance(seconds, bool):
        return round(value * SECOND_MS)
    return None


def completed(url: Any, video_ms: int | None = None, tokens: int | None = None) -> VideoStatus:
    """A finished task whose video anybody may load; one that failed, where there is no address."""
    if not url:
        return VideoStatus("failed", error_code="no_video", error_message=NO_VIDEO)
    return VideoStatus("completed", 100, files=(VideoFile(url_in(url)),), video_ms=video_ms, tokens=tokens)


def ended(state: VideoState, target: Target, code: Any = "", message: Any = "", refused: bool = False) -> VideoStatus:
    """A task that ended without a video, with the provider's own words for why, scrubbed. `refused`: by a filter, as
    also some of these words tell."""
    words = tuple(str(one) if type(one) in (str, int) else "" for one in (code, message))
    ident, text = (scrub(one, (target.credential.secret,)) for one in words)
    if refused or REFUSALS.search(f"{ident} {text}"):
        ident = REFUSED
    return VideoStatus(state, error_code=ident[:MOST_CODE] or state, error_message=text or FAILED)


def ratio_of(shape: VideoShape, offered: tuple[str, ...]) -> str:
    """Of a provider's aspect ratios the one that is most like the size."""
    return nearest_shape(shape.size, offered)


def content_parts(wanted: VideosInput, files: Base64Files) -> list[dict[str, Any]]:
    """The prompt and what goes with it as parts, each with its role: the form of several providers."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": wanted.prompt}]
    frames = (("first_frame", wanted.first_frame), ("last_frame", wanted.last_frame))
    images = [(role, one) for role, one in frames if one is not None]
    images += [("reference_image", one) for one in wanted.reference_images]
    parts += [_part("image_url", data_url(one, files), role) for role, one in images]
    parts += [_part("video_url", url, "reference_video") for url in wanted.reference_videos]
    parts += [_part("audio_url", url, "reference_audio") for url in wanted.reference_audios]
    return parts


def _part(kind: str, url: str, role: str) -> dict[str, Any]:
    return {"type": kind, kind: {"url": url}, "role": role}


def refuse(wanted: VideosInput, target: Target, *names: str) -> None:
    """NotSupported for fields that are given and that the format has no place for."""
    for name in names:
        if getattr(wanted, name):
            what = f"{target.mapping.key} takes no {name.replace('_', ' ')}."
            raise NotSupported(what, param=name, code="unsupported_input")


def sound_warning(wanted: VideosInput, target: Target) -> tuple[str, ...]:
    """Of a format that cannot ask for sound or silence: the warning where the caller did."""
    told = target.mapping.video_audio or target.mapping.video_without_audio
    left = wanted.audio is not None and not told
    if left:
        return (f"audio is not supported by {target.mapping.key} and was left out.",)
    return ()
