"""Shared parts of the codecs of images, videos and speech.

For images: preferences fitted to a model, complete answers as a stream, images fetched by URL, and checks of masks. For
videos: calls about a task, and validation of each field of the answers. For speech: voices and formats of a mapping,
and a binary answer as batches of chunks. For all: multipart forms.
"""

import re
import secrets
import struct
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from gateway.catalogue.video_shapes import VideoShape
from gateway.errors import ContentRefused, GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.events import Batch, Failed, Finished, Heartbeat, ImageMade, MediaPiece, Started
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.neutral.images import AUTO, ENDINGS, ImagesInput, ImagesResult, Picture, nearest_shape, shape_of
from gateway.neutral.parts import WEB, Image, Media
from gateway.neutral.speech import FORMATS, SpeechInput, format_among
from gateway.neutral.videos import CONTENT_FILTER, SECOND_MS, VideoFile, VideosInput, VideoState, VideoStatus, VideoTask
from gateway.providers import upstream_calls
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, check_parts, read_object
from gateway.providers.failures import classify, explain, read_refusal, retry_after, scrub
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_fetching import MAX_BYTES, Fetcher
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.runtime.large_files import MessageBody, StoredFile
from gateway.runtime.threads import Job, compute, compute_if

FETCH_TIMEOUT_S = 60.0
PREFERENCES = (
    "size",
    "quality",
    "aspect_ratio",
    "background",
    "output_format",
    "moderation",
    "style",
    "input_fidelity",
)
STEP = re.compile(r"\dK")  # a size that names the longer edge
SHOWN = 32  # characters of a value that a warning repeats


class ImageChoices(Struct, frozen=True):
    """The values that a model accepts for size, ratio and quality; () where every value is passed on. `fields` are the
    preferences that the format has a field for, `seed` whether it has one for a seed, and `steps` whether the
    sizes 1K, 2K and 4K exist."""

    fields: tuple[str, ...]
    size: tuple[str, ...] = ()
    aspect_ratio: tuple[str, ...] = ()
    quality: tuple[str, ...] = ()
    seed: bool = False
    steps: bool = False


def fit_preferences(content: ImagesInput, target: Target, choices: ImageChoices, warnings: list[str]) -> ImagesInput:
    """Return the input without the preferences that the model cannot fulfil, and add a line to `warnings` for each.

    Later steps must use the result: prices depend on the quality and size that were sent.
    """
    dropped: dict[str, Any] = {}
    for name in PREFERENCES:
        value: str = getattr(content, name)
        reason = _reason_against(name, value, target, choices) if value else ""
        if reason:
            dropped[name] = ""
            if value != AUTO:
                warnings.append(reason)
    if content.seed is not None and not choices.seed:
        dropped["seed"] = None
        warnings.append(_unsupported("seed", target))
    if dropped:
        return replace(content, **dropped)
    return content


def _reason_against(name: str, value: str, target: Target, choices: ImageChoices) -> str:
    """Return why a preference is left out; "" where it is sent."""
    offered: tuple[str, ...] = getattr(choices, name, ())
    if name not in choices.fields:
        return _unsupported(name, target)
    if offered and value not in offered:
        return f"{name} {value[:SHOWN]} was left out: {target.mapping.key} takes {', '.join(offered)}."
    if name == "size" and value != AUTO and not shape_of(value) and not (choices.steps and STEP.fullmatch(value)):
        return f"size {value[:SHOWN]} was left out: it is not a width and height."
    return ""


def _unsupported(name: str, target: Target) -> str:
    return f"{name} is not supported by {target.mapping.key} and was left out."


def refuse_marks(content: ImagesInput, target: Target) -> None:
    """Raise NotSupported for a mask or markup, for a model that accepts neither."""
    if content.marked:
        what = f"{target.mapping.key} does not support {content.marked}."
        raise NotSupported(what, param=content.marked, code="unsupported_input")


class WholeImages(ABC):
    """A codec or reader of a provider that returns all images at once."""

    @abstractmethod
    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """Return all images. UpstreamFailed."""

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield all images at the end of the stream."""
        try:
            result: ImagesResult = upstream_calls.read_answer(self, reply, relayed)
        except GatewayError as error:
            yield [Failed(error)]
            return
        yield [Started(result.model, result.upstream_id), *_made(result)]
        yield [Finished("content_filter" if result.blocked else "stop", result.usage)]


def _made(result: ImagesResult) -> Iterator[ImageMade]:
    for image in result.images:
        yield ImageMade(
            image.media,
            edges=result.size,
            quality=result.quality,
            background=result.background,
            output_format=result.output_format,
        )


def data_url(picture: Picture, files: Base64Files) -> str:
    """Return the data URL of an image in a JSON body; `files` encodes the image while it sends the body."""
    return f"data:{picture.media_type};base64,{files.hold(picture.file)}"


def load_images(fetcher: Fetcher, urls: Sequence[str]) -> tuple[Image, ...]:
    """Return the images that an answer refers to by URL, fetched concurrently through the SSRF guard.
    UpstreamFailed."""
    jobs = [Job(_load, fetcher, url) for url in urls]
    try:
        return tuple(job.result(FETCH_TIMEOUT_S) for job in jobs)
    except TimeoutError:
        raise UpstreamFailed("The images at the provider's URLs could not be loaded in time.") from None
    finally:
        for job in jobs:
            job.stop()


def _load(fetcher: Fetcher, url: str) -> Image:
    try:
        answer = fetcher.fetch(url, MAX_BYTES, timeout_s=FETCH_TIMEOUT_S, headers={})
    except GatewayError as error:
        raise UpstreamFailed(f"An image at the provider's URL could not be loaded ({error.code}).") from None
    kind = type_of(answer.body[:HEAD_BYTES])
    if answer.status != 200 or kind not in ENDINGS:
        raise UpstreamFailed("The provider's URL did not lead to an image.", upstream_status=200)
    return Image(Media(media_type=kind, data=compute(b64encode, answer.body).decode()))


# The base class and readers of all video codecs: calls about a task, and validation of each field of the answers.

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


# Functions for all speech codecs: voices and formats of a mapping, and a binary answer as batches of chunks.

WAV_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")


def format_of(content: SpeechInput, target: Target) -> str:
    """Return the audio format to request. NotSupported for a format that the mapping lacks."""
    offered = target.mapping.formats or tuple(FORMATS)
    chosen = format_among(content.format, offered)
    if chosen not in offered:
        raise NotSupported(
            f"{target.mapping.key} does not support the format {chosen}; it supports {', '.join(offered)}.",
            param="response_format",
            code="unsupported_format",
        )
    return chosen


def voice_of(content: SpeechInput, target: Target) -> str:
    """Return the voice in the mapping's spelling, or its first voice if none was requested. NotSupported for an unknown
    voice."""
    offered = target.mapping.voices
    if not offered:
        return content.voice
    if not content.voice:
        return offered[0]
    if content.own_voice:
        message = f"{target.mapping.key} does not support custom voices."
        raise NotSupported(message, param="voice", code="unsupported_voice")
    known = next((voice for voice in offered if voice.lower() == content.voice.lower()), "")
    if not known:
        raise NotSupported(
            f"{target.mapping.key} has no voice {content.voice[:64]!r}; it has {', '.join(offered)}.",
            param="voice",
            code="unsupported_voice",
        )
    return known


def read_binary(reply: UpstreamReply) -> Iterator[Batch]:
    """Yield the bytes of a 2xx response as they arrive. Yields Failed for text or JSON, and for an empty response."""
    kind = reply.headers.get("content-type", "").lower()
    if "json" in kind or kind.startswith("text/"):
        yield [Failed(UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200))]
        return
    yield [Started()]
    has_sound = False
    try:
        for chunk in reply.chunks():
            has_sound = has_sound or bool(chunk)
            yield [MediaPiece(chunk)] if chunk else [Heartbeat()]
    except GatewayError as error:
        yield [Failed(error)]
        return
    yield [Finished("stop", None)] if has_sound else [Failed(UpstreamFailed(EMPTY, upstream_status=200))]


def as_wav(samples: bytes, rate: int) -> bytes:
    """Return PCM samples of 16 bits, one channel, as a WAV file."""
    frame = 2
    size = len(samples)
    head = WAV_HEAD.pack(
        b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * frame, frame, 8 * frame, b"data", size
    )
    return head + samples


# Multipart forms for upstreams, with fields and stored files. They are sent in pieces and can be sent again.

QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})  # WHATWG HTML, multipart/form-data


class UploadPart(NamedTuple):
    """A file of a form. `filename` indicates the format to upstreams and is never a path of this system."""

    name: str
    filename: str
    media_type: str
    file: StoredFile


class FormBody:
    """A form as a message body; `content_type` contains its boundary."""

    __slots__ = ("_parts", "_size", "content_type")

    def __init__(self, fields: list[tuple[str, str]], files: list[UploadPart]) -> None:
        boundary = f"llmgateway-{secrets.token_hex(16)}"
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._parts: list[bytes | StoredFile] = []
        for name, value in fields:
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote(name)}"\r\n\r\n{value}\r\n'
            self._parts.append(head.encode())
        for part in files:
            head = (
                f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote(part.name)}"; '
                f'filename="{_quote(part.filename)}"\r\nContent-Type: {part.media_type}\r\n\r\n'
            )
            self._parts += (head.encode(), part.file, b"\r\n")
        self._parts.append(f"--{boundary}--\r\n".encode())
        self._size = sum(map(len, self._parts))

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, StoredFile):
                yield from part.pieces()
            else:
                yield part


def _quote(text: str) -> str:
    return text.translate(QUOTED)
