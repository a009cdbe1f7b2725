"""Images in OpenAI's format. Generation requests are JSON, edits are forms.

Source: OpenAI API reference, "Create image", "Create image edit" and their stream events. Models accept different
fields. Fields that a mapping with `supported_parameters` does not list there are left out. Keys of `extra`:
`image_field`: images are sent in JSON under this name (ByteDance API reference); `image_objects`: images are sent as
objects and to the edits URL (xAI API reference); `image_stream`: the model streams; `size_steps`: a size may be 1K, 2K
or 4K.
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.events import Batch, Event, Finished, ImageMade
from gateway.neutral.file_types import type_of
from gateway.neutral.images import (
    AUTO,
    ENDINGS,
    ImageEditsRequest,
    ImagesInput,
    ImagesRequest,
    ImagesResult,
    Picture,
    nearest_shape,
)
from gateway.neutral.parts import Image, Media
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import (
    PREFERENCES,
    FormBody,
    ImageChoices,
    UploadPart,
    WholeImages,
    data_url,
    fit_preferences,
    refuse_marks,
)
from gateway.providers.openai.address import Tokens, address_of, endpoint_of
from gateway.providers.openai.typed_events import TypedEvents
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.providers.sse import read_batches

MAKE = "/images/generations"
EDIT = "/images/edits"
IN_JSON = "image_field"
IN_OBJECTS = "image_objects"
MAX_OBJECTS = 3
BASE64_HEAD = 24  # characters that contain the signature of an image format
STREAMS = "image_stream"
SIZE_STEPS = "size_steps"
MARKS = ("mask", "markup")
EVENT_STREAM = "text/event-stream"
ASKS_BASE64 = "response_format"  # accepted only by models that otherwise return URLs
COMPRESSION = "output_compression"
# The parameters of mappings without `supported_parameters`.
DEFAULT_PARAMETERS = (
    "size",
    "quality",
    "background",
    "output_format",
    "output_compression",
    "moderation",
    "input_fidelity",
    "n",
)


class OpenAIImages(WrittenCodec, WholeImages):
    """The codec of image generations and edits. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """Return the call. NotSupported for a mask that the model does not support."""
        warnings: list[str] = []
        edits = isinstance(request, ImageEditsRequest)
        content = _fit(request.content(), target, edits, warnings)
        body = _body(content, target)
        reader = _ImageReader(content)
        files = Base64Files()
        inline: str = target.mapping.extra.get(IN_JSON) or ""
        if content.pictures and not inline:
            return self._form(body, content, target, tuple(warnings), reader)
        if content.pictures:
            refuse_marks(content, target)
            body |= _inlined([data_url(picture, files) for picture in content.pictures], inline, target)
        streams = _streams(content, target)
        path = EDIT if content.pictures and target.mapping.extra.get(IN_OBJECTS) else MAKE
        endpoint = endpoint_of(target, path, streams, self._tokens)
        return Call(
            "POST",
            endpoint.url,
            endpoint.headers,
            files.encode(body),
            streams,
            tuple(warnings),
            endpoint=endpoint,
            reader=reader,
        )

    def _form(
        self, body: dict[str, Any], content: ImagesInput, target: Target, warnings: tuple[str, ...], reader: Any
    ) -> Call:
        name = "image[]" if len(content.pictures) > 1 else "image"
        files = [_upload(name, picture, number) for number, picture in enumerate(content.pictures)]
        files += [_upload(mark, picture, 0) for mark in MARKS if (picture := getattr(content, mark)) is not None]
        form = FormBody([(field, _form_text(value)) for field, value in body.items()], files)
        url, headers = address_of(target, EDIT, self._tokens)
        streams = _streams(content, target)
        headers["content-type"] = form.content_type
        if streams:
            headers["accept"] = EVENT_STREAM
        else:
            headers["accept"] = "application/json"
        return Call("POST", url, headers, form, streams, warnings, reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """Read an answer without its request. Calls have a `reader`, which knows the request."""
        return _ImageReader(ImagesInput("")).read(reply, relayed)


class _ImageReader(WholeImages):
    """Reads the answer to a request. Quality and size are taken from the request if the answer lacks them."""

    def __init__(self, content: ImagesInput) -> None:
        self._content = content

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        if EVENT_STREAM in reply.headers.get("content-type", "").lower():
            return read_batches(reply, TypedEvents(_ImageEvents(self._content).read))
        return super().read_stream(reply, relayed)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            rows = wire["data"]
            format = _kind_of(
                rows[0]["b64_json"] if rows else "", wire.get("output_format") or self._content.output_format
            )
            images = tuple(Image(Media(media_type=f"image/{format}", data=row["b64_json"])) for row in rows)
            revised = tuple(row.get("revised_prompt") or "" for row in rows)
            quality = wire.get("quality") or self._content.quality
            size = wire.get("size") or self._content.size
            key = f"{quality or AUTO}/{size or AUTO}"
            result = ImagesResult(images, revised, size, quality, wire.get("background") or "", format)
            result.usage = _usage_of(wire.get("usage"), len(images), key)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        if not images or not all(isinstance(image.media.data, str) and image.media.data for image in images):
            raise UpstreamFailed(EMPTY, upstream_status=200)
        return result


class _ImageEvents:
    """Reads stream events: `….partial_image` contains a preview, `….completed` the image and the usage."""

    def __init__(self, content: ImagesInput) -> None:
        self._content = content

    def read(self, wire: dict[str, Any]) -> Batch | Event | None:
        _, _, kind = wire["type"].partition(".")
        if kind not in ("partial_image", "completed"):
            return None
        format = _kind_of(wire["b64_json"], wire.get("output_format") or self._content.output_format)
        image = ImageMade(
            Media(media_type=f"image/{format}", data=wire["b64_json"]),
            wire["partial_image_index"] if kind == "partial_image" else -1,
            edges=wire.get("size") or self._content.size,
            quality=wire.get("quality") or self._content.quality,
            background=wire.get("background") or "",
            output_format=format,
        )
        if kind == "partial_image":
            return image
        key = f"{image.quality or AUTO}/{image.edges or AUTO}"
        return [image, Finished("stop", _usage_of(wire.get("usage"), 1, key))]


def _inlined(urls: list[str], field: str, target: Target) -> dict[str, Any]:
    """Return the fields of a JSON body that contain the images."""
    if not target.mapping.extra.get(IN_OBJECTS):
        return {field: urls[0] if len(urls) == 1 else urls}
    objects = [{"type": "image_url", "url": url} for url in urls]
    if len(objects) > MAX_OBJECTS:
        what = f"{target.mapping.key} accepts at most {MAX_OBJECTS} images."
        raise NotSupported(what, param="images", code="unsupported_input")
    if len(objects) == 1:
        return {field: objects[0]}
    return {f"{field}s": objects}


def _kind_of(data: str, reported: str) -> str:
    """Return the format of an image by its first bytes, otherwise the declared format."""
    try:
        kind = type_of(b64decode(data[:BASE64_HEAD]))
    except ValueError:
        kind = ""
    return ENDINGS.get(kind) or reported or "png"


def _streams(content: ImagesInput, target: Target) -> bool:
    """Whether to request a stream. The stream events of several images cannot be distinguished."""
    return content.stream and content.n == 1 and bool(target.mapping.extra.get(STREAMS))


def _fit(requested: ImagesInput, target: Target, edits: bool, warnings: list[str]) -> ImagesInput:
    """Return the input without the fields that the model does not support. A ratio becomes the nearest size for models
    without ratios. NotSupported for several images where a call returns a single image."""
    mapping = target.mapping
    supported = _supported(target)
    if requested.n > 1 and "n" not in supported:
        raise NotSupported(f"{mapping.key} generates one image per request.", param="n", code="unsupported_n")
    fitted = replace(requested, moderation="", style="") if edits else replace(requested, input_fidelity="")
    if "aspect_ratio" not in supported and (size := nearest_shape(fitted.aspect_ratio, mapping.image_sizes)):
        fitted = replace(fitted, size=size, aspect_ratio="")  # the ratio wins over the size
    if fitted.output_compression is not None and COMPRESSION not in supported:
        fitted = replace(fitted, output_compression=None)
        warnings.append(f"{COMPRESSION} is not supported by {mapping.key} and was left out.")
    choices = ImageChoices(
        supported,
        mapping.image_sizes,
        mapping.image_ratios,
        mapping.image_qualities,
        steps=bool(mapping.extra.get(SIZE_STEPS)),
    )
    return fit_preferences(fitted, target, choices, warnings)


def _supported(target: Target) -> tuple[str, ...]:
    return target.mapping.supported_parameters or DEFAULT_PARAMETERS


def _body(content: ImagesInput, target: Target) -> dict[str, Any]:
    body: dict[str, Any] = {"model": target.mapping.external_id, "prompt": content.prompt}
    body |= {name: value for name in PREFERENCES if (value := getattr(content, name))}
    if content.output_compression is not None:
        body[COMPRESSION] = content.output_compression
    if content.n > 1:
        body["n"] = content.n
    if _streams(content, target):
        body |= {"stream": True} | ({"partial_images": content.partial_images} if content.partial_images else {})
    if ASKS_BASE64 in _supported(target):
        body[ASKS_BASE64] = "b64_json"
    return body


def _form_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _upload(name: str, picture: Picture, number: int) -> UploadPart:
    return UploadPart(name, f"image-{number}.{ENDINGS[picture.media_type]}", picture.media_type, picture.file)


def _usage_of(reported: dict[str, Any] | None, count: int, key: str) -> Usage:
    """Return the usage in tokens and images; only in images where the provider reports no tokens."""
    if not reported or ("input_tokens" not in reported and "output_tokens" not in reported):
        return Usage(images=count, price_key=key)
    details = reported.get("input_tokens_details") or {}
    output_details = reported.get("output_tokens_details") or {}
    text = read_count(details.get("text_tokens"))
    read = read_count(details.get("image_tokens"))
    written = read_count(output_details.get("text_tokens"))
    return Usage(
        input=text if details else read_count(reported.get("input_tokens")),
        input_image=read,
        output=written,
        output_image=max(0, read_count(reported.get("output_tokens")) - written),
        images=count,
        price_key=key,
    )
