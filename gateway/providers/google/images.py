"""Images of Google's models: generateContent with image output, and :predict for Imagen.

Wire facts: Gemini API, "Image generation": responseModalities, imageConfig (image_config.py has ratios and sizes);
Vertex AI reference, Imagen: instances, parameters, predictions with bytesBase64Encoded.
"""

from typing import Any

from msgspec.structs import replace

from gateway.dialects import google as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import AUTO, ImagesInput, ImagesRequest, ImagesResult, nearest_shape, shape_of
from gateway.neutral.parts import Image, Media
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, read_object
from gateway.providers.google.generate import GENERATE_CONTENT, Authorize, address_of
from gateway.providers.google.request import DEFAULT_SIZE, IMAGE_SIZES, PREDICTED_RATIOS, ratios_of, sizes_of
from gateway.providers.google.traits import Traits, traits_of
from gateway.providers.inline_files import Base64Files
from gateway.providers.media_codecs import SHOWN, ImageChoices, WholeImages, fit_preferences, refuse_marks
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec

PREDICT = "predict"
PREDICTS = "imagen"  # prefix of the models that are called by :predict
MAX_PREDICTIONS = 4
LARGE_SIZE = "2K"
HUGE_SIZE = "4K"
LARGE_EDGE = 1536
HUGE_EDGE = 3072
FIELDS = ("size", "aspect_ratio")


class GoogleImages(WrittenCodec, WholeImages):
    """POST {address}/models/{model}:generateContent, or :predict. `authorize` adds the credential to the headers."""

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """Build the call. NotSupported for a mask, and for more images than one call returns."""
        content: ImagesInput = request.content()
        refuse_marks(content, target)
        predicts = target.mapping.external_id.startswith(PREDICTS)
        _check(content, target, predicts)
        warnings: list[str] = []
        fitted = _fit(content, target, predicts, warnings)
        files = Base64Files()
        body = _predict(fitted) if predicts else _generate(fitted, traits_of(target), files)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        url = address_of(target, PREDICT if predicts else GENERATE_CONTENT)
        reader = _ImageReader(fitted.price_key)
        return Call("POST", url, headers, files.encode(body), warnings=tuple(warnings), reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """Read the response to a request without a size; every call has its own reader for the others."""
        return _ImageReader(f"{AUTO}/{AUTO}").read(reply, relayed)


class _ImageReader(WholeImages):
    """Reads a response. Its number of images is the usage if the response reports no tokens."""

    def __init__(self, key: str) -> None:
        self._key = key

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            if "predictions" in wire:
                pictures, blocked = _predictions(wire)
            else:
                pictures, blocked = _parts(wire)
            images = tuple(Image(Media(media_type=kind, data=data)) for kind, data in pictures)
            reported = wire.get("usageMetadata")
            count = len(images)
            usage = _usage_of(reported, count, self._key) if reported else Usage(images=count, price_key=self._key)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        if not images and not blocked:
            raise UpstreamFailed(EMPTY, upstream_status=200)
        return ImagesResult(images, blocked=blocked, usage=usage, model=str(wire.get("modelVersion") or ""))


def _check(content: ImagesInput, target: Target, predicts: bool) -> None:
    """Raise NotSupported for editing and for numbers of images that one call of the model does not support."""
    key = target.mapping.key
    limit = MAX_PREDICTIONS if predicts else 1
    if predicts and content.pictures:
        raise NotSupported(f"{key} does not edit images.", param="images", code="unsupported_input")
    if content.n > limit:
        raise NotSupported(f"{key} makes up to {limit} images at a time.", param="n", code="unsupported_n")


def _fit(content: ImagesInput, target: Target, predicts: bool, warnings: list[str]) -> ImagesInput:
    """Return the input without unsupported preferences. A size in pixels counts as its ratio and as 1K, 2K or 4K."""
    ratios = PREDICTED_RATIOS if predicts else ratios_of(traits_of(target))
    sizes = (DEFAULT_SIZE,) if predicts else sizes_of(traits_of(target))
    fitted = fit_preferences(content, target, ImageChoices(FIELDS, aspect_ratio=ratios, steps=True), warnings)
    size = fitted.size
    if size in ("", AUTO) or ((size in sizes or shape_of(size)) and (size_of(fitted) or DEFAULT_SIZE) in sizes):
        return fitted
    # An unsupported size in pixels still determines the aspect ratio.
    note = ", its shape kept" if shape_of(size) else ""
    warnings.append(f"size {size[:SHOWN]} was left out{note}: {target.mapping.key} takes {', '.join(sizes)}.")
    return replace(fitted, aspect_ratio=ratio_of(fitted, ratios), size="")


def _generate(content: ImagesInput, traits: Traits, files: Base64Files) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": content.prompt}]
    parts.extend(
        {"inlineData": {"mimeType": picture.media_type, "data": files.hold(picture.file)}}
        for picture in content.pictures
    )
    size = size_of(content)
    if size == DEFAULT_SIZE or size not in sizes_of(traits):
        size = ""
    config = {"aspectRatio": ratio_of(content, ratios_of(traits)), "imageSize": size}
    chosen = {name: value for name, value in config.items() if value}
    return {
        "contents": [{"role": "user", "parts": parts}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]} | ({"imageConfig": chosen} if chosen else {}),
    }


def _predict(content: ImagesInput) -> dict[str, Any]:
    parameters: dict[str, Any] = {"sampleCount": content.n}
    if ratio := ratio_of(content, PREDICTED_RATIOS):
        parameters["aspectRatio"] = ratio
    return {"instances": [{"prompt": content.prompt}], "parameters": parameters}


def ratio_of(content: ImagesInput, offered: tuple[str, ...]) -> str:
    """Return the requested aspect ratio, or the nearest to the requested size; "" if neither is set."""
    return content.aspect_ratio or nearest_shape(content.size, offered)


def size_of(content: ImagesInput) -> str:
    """Return 1K, 2K or 4K, as requested or by the longer edge in pixels; "" for the default."""
    if content.size in IMAGE_SIZES:
        return content.size
    edges = [int(edge) for edge in content.size.split("x") if edge.isdecimal()]
    longest = max(edges, default=0)
    if longest <= LARGE_EDGE:
        return ""
    if longest <= HUGE_EDGE:
        return LARGE_SIZE
    return HUGE_SIZE


def _parts(wire: dict[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    candidates = wire.get("candidates") or []
    reason = (wire.get("promptFeedback") or {}).get("blockReason") or ""
    pictures: list[tuple[str, str]] = []
    for candidate in candidates:
        reason = reason or candidate.get("finishReason") or ""
        pictures.extend(
            (part["inlineData"]["mimeType"], part["inlineData"]["data"])
            for part in (candidate.get("content") or {}).get("parts") or []
            if "inlineData" in part and not part.get("thought")
        )
    filtered = dialect.FINISH_READ.get(reason) == "content_filter"
    return pictures, not pictures and (filtered or bool(wire.get("promptFeedback")))


def _predictions(wire: dict[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    rows = wire["predictions"]
    pictures = [
        (row.get("mimeType") or "image/png", row["bytesBase64Encoded"]) for row in rows if "bytesBase64Encoded" in row
    ]
    return pictures, not pictures and any("raiFilteredReason" in row for row in rows)


def _usage_of(reported: dict[str, Any], count: int, key: str) -> Usage:
    """Return the tokens by modality, as far as the response reports it."""
    read = _tokens_by_modality(reported.get("promptTokensDetails"))
    written = _tokens_by_modality(reported.get("candidatesTokensDetails"))
    prompt = read_count(reported.get("promptTokenCount"))
    output = read_count(reported.get("candidatesTokenCount"))
    thought = read_count(reported.get("thoughtsTokenCount"))
    seen = min(read.get("IMAGE", 0), prompt)
    drawn = min(written.get("IMAGE", output if not written else 0), output)
    return Usage(
        input=prompt - seen,
        input_image=seen,
        output=output - drawn + thought,
        reasoning=thought,
        output_image=drawn,
        images=count,
        price_key=key,
    )


def _tokens_by_modality(details: Any) -> dict[Any, int]:
    return {entry.get("modality"): read_count(entry.get("tokenCount")) for entry in details or []}
