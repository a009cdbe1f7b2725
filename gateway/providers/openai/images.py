"""Images in OpenAI's format: made from a prompt by JSON, changed by a form.

Facts: Images API reference, "Create image", "Create image edit". Models take different fields: what a mapping does not
name among its `supported_parameters` (where it names any) is left out. `image_field` in `extra`: pictures go in JSON
under that name (ByteDance's reference).
"""

from base64 import b64encode
from typing import Any

from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import AUTO, ENDINGS, ImageEditsRequest, ImagesInput, ImagesRequest, ImagesResult, Picture
from gateway.neutral.parts import Image, Media
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answers import EMPTY, ODD, SHAPE_ERRORS, counts_images, read_object
from gateway.providers.multipart import FormBody, UploadPart
from gateway.providers.openai.address import Tokens, address_of, way_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec

MAKE, EDIT = "/images/generations", "/images/edits"
IN_JSON = "image_field"
ASKS_BASE64 = "response_format"  # models that give addresses unless asked take this field; the others refuse it
FIELDS = ("size", "quality", "background", "output_format", "moderation", "style", "input_fidelity", "aspect_ratio")
EDITS_ONLY, MAKES_ONLY = ("input_fidelity",), ("moderation", "style")
# What every model takes whose mapping names none.
USUAL = ("size", "quality", "background", "output_format", "output_compression", "moderation", "input_fidelity", "n")


class OpenAIImages(WrittenCodec):
    """`tokens` as for OpenAIChat. One object serves both operations."""

    dialect = dialect.NAME

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """The call. NotSupported for a mask where none is taken."""
        wanted: ImagesInput = request.content()
        warnings: list[str] = []
        body = _body(wanted, target, isinstance(request, ImageEditsRequest), warnings)
        reader = _ImageReader(wanted, counts_images(target))
        inline: str = target.mapping.extra.get(IN_JSON) or ""
        if wanted.pictures and not inline:
            return self._form(body, wanted, target, tuple(warnings), reader)
        if wanted.pictures:
            if wanted.mask is not None:
                raise NotSupported(f"{target.mapping.key} takes no mask.", param="mask", code="unsupported_input")
            found = [_data_url(one) for one in wanted.pictures]
            body[inline] = found[0] if len(found) == 1 else found
        way = way_of(target, MAKE, False, self._tokens)
        return Call("POST", way.url, way.headers, json.encode(body), False, tuple(warnings), way=way, reader=reader)

    def _form(
        self, body: dict[str, Any], wanted: ImagesInput, target: Target, warnings: tuple[str, ...], reader: Any
    ) -> Call:
        name = "image[]" if len(wanted.pictures) > 1 else "image"
        files = [_upload(name, one, number) for number, one in enumerate(wanted.pictures)]
        if wanted.mask is not None:
            files.append(_upload("mask", wanted.mask, 0))
        form = FormBody([(field, str(value)) for field, value in body.items()], files)
        url, headers = address_of(target, EDIT, self._tokens)
        headers["content-type"], headers["accept"] = form.content_type, "application/json"
        return Call("POST", url, headers, form, False, warnings, reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """As of a request that named nothing; a call brings its own reader."""
        return _ImageReader(ImagesInput("")).read(reply, relayed)


class _ImageReader:
    """Reads the answer to what was wanted, of which it may not tell the quality and size."""

    def __init__(self, wanted: ImagesInput, counts: bool = False) -> None:
        self._wanted, self._counts = wanted, counts

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            rows = wire["data"]
            made = wire.get("output_format") or self._wanted.output_format or "png"
            images = tuple(Image(Media(media_type=f"image/{made}", data=row["b64_json"])) for row in rows)
            revised = tuple(row.get("revised_prompt") or "" for row in rows)
            quality, size = wire.get("quality") or self._wanted.quality, wire.get("size") or self._wanted.size
            key = f"{quality or AUTO}/{size or AUTO}"
            result = ImagesResult(images, revised, size, quality, wire.get("background") or "", made)
            result.usage = _usage_of(wire.get("usage"), len(images), key, self._counts)
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        if not images or not all(isinstance(one.media.data, str) and one.media.data for one in images):
            raise UpstreamFailed(EMPTY, upstream_status=200)
        return result


def _body(wanted: ImagesInput, target: Target, edits: bool, warnings: list[str]) -> dict[str, Any]:
    taken = target.mapping.supported_parameters or USUAL
    body: dict[str, Any] = {"model": target.mapping.external_id, "prompt": wanted.prompt}
    given: dict[str, Any] = {name: value for name in FIELDS if (value := getattr(wanted, name))}
    if wanted.n > 1:
        given["n"] = wanted.n
    if wanted.output_compression is not None:
        given["output_compression"] = wanted.output_compression
    for name, value in given.items():
        if name in (MAKES_ONLY if edits else EDITS_ONLY):
            continue
        if name == "size" and value not in (target.mapping.image_sizes or (value,)):
            sizes = ", ".join(target.mapping.image_sizes)
            what = f"{target.mapping.key} makes no images of {value[:32]}; it makes {sizes}."
            raise NotSupported(what, param="size", code="unsupported_size")
        if name in taken:
            body[name] = value
        elif name == "n":
            raise NotSupported(f"{target.mapping.key} makes one image at a time.", param="n", code="unsupported_n")
        else:
            warnings.append(f"{name} is not supported by {target.mapping.key} and was left out.")
    if ASKS_BASE64 in taken:
        body[ASKS_BASE64] = "b64_json"
    return body


def _upload(name: str, picture: Picture, number: int) -> UploadPart:
    return UploadPart(name, f"image-{number}.{ENDINGS[picture.media_type]}", picture.media_type, picture.file)


def _data_url(picture: Picture) -> str:
    return f"data:{picture.media_type};base64,{b64encode(picture.file.read_all()).decode()}"


def _usage_of(told: dict[str, Any] | None, count: int, key: str, counts: bool) -> Usage | None:
    """Tokens, and how many images they were; without tokens the images alone, where those are billed (`counts`)."""
    if not told or "input_tokens" not in told:
        return Usage(images=count, price_key=key) if counts else None
    details, made = told.get("input_tokens_details") or {}, told.get("output_tokens_details") or {}
    text, read = read_count(details.get("text_tokens")), read_count(details.get("image_tokens"))
    written = read_count(made.get("text_tokens"))
    return Usage(
        input=text if details else read_count(told["input_tokens"]),
        input_image=read,
        output=written,
        output_image=max(0, read_count(told.get("output_tokens")) - written),
        images=count,
        price_key=key,
    )
