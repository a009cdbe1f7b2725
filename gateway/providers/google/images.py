"""Images of Google's models: generateContent with images in the answer, and Imagen's :predict.

Facts: Gemini API, "Image generation": responseModalities, imageConfig (gateway/providers/google/image_config.py has
ratios and sizes); Vertex AI reference, Imagen: instances, parameters, predictions with bytesBase64Encoded.
"""

from dataclasses import replace
from typing import Any

from gateway.dialects import google as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.images import AUTO, ImagesInput, ImagesRequest, ImagesResult, nearest_shape, shape_of
from gateway.neutral.parts import Image, Media
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, ODD, SHAPE_ERRORS, read_object
from gateway.providers.base64_files import Base64Files
from gateway.providers.google.generate import WHOLE, Authorize, address_of
from gateway.providers.google.image_config import IMAGE_SIZES, PREDICTED_RATIOS, USUAL_SIZE, ratios_of, sizes_of
from gateway.providers.google.traits import Traits, traits_of
from gateway.providers.image_codecs import SHOWN, ImageChoices, WholeImages, fit_preferences, refuse_marks
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec

PREDICT = "predict"
PREDICTS = "imagen"  # how models that are asked by :predict begin
MOST_PREDICTED = 4
LARGE_SIZE = "2K"
HUGE_SIZE = "4K"
LARGE_EDGE = 1536
HUGE_EDGE = 3072
LOST = ("quality", "background", "output_format", "moderation", "style", "input_fidelity")
BLOCKED = ("IMAGE_SAFETY", "PROHIBITED_CONTENT", "SAFETY", "BLOCKLIST", "IMAGE_PROHIBITED_CONTENT", "RECITATION")


class GoogleImages(WrittenCodec, WholeImages):
    """POST {address}/models/{model}:generateContent, or :predict. `authorize` puts the credential into headers."""

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: ImagesRequest, target: Target) -> Call:
        """The call. NotSupported for a mask, and for several images where one call makes one."""
        asked: ImagesInput = request.content()
        refuse_marks(asked, target)
        predicts = target.mapping.external_id.startswith(PREDICTS)
        _check(asked, target, predicts)
        warnings: list[str] = []
        wanted = _fit(asked, target, predicts, warnings)
        files = Base64Files()
        if predicts:
            body = _predict(wanted)
        else:
            body = _generate(wanted, traits_of(target), files)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        url = address_of(target, PREDICT if predicts else WHOLE)
        reader = _ImageReader(wanted.price_key)
        return Call("POST", url, headers, files.encode(body), warnings=tuple(warnings), reader=reader)

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        """As of a request that named no size; a call brings its own reader."""
        return _ImageReader(f"{AUTO}/{AUTO}").read(reply, relayed)


class _ImageReader(WholeImages):
    """Reads an answer; the number of its images is the usage where nothing else is reported."""

    def __init__(self, key: str) -> None:
        self._key = key

    def read(self, reply: UpstreamReply, relayed: bool) -> ImagesResult:
        wire = read_object(reply.read_all())
        try:
            if "predictions" in wire:
                found, blocked = _predictions(wire)
            else:
                found, blocked = _parts(wire)
            images = tuple(Image(Media(media_type=kind, data=data)) for kind, data in found)
            reported = wire.get("usageMetadata")
            count = len(images)
            if reported:
                usage = _usage_of(reported, count, self._key)
            else:
                usage = Usage(images=count, price_key=self._key)
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        if not images and not blocked:
            raise UpstreamFailed(EMPTY, upstream_status=200)
        return ImagesResult(images, blocked=blocked, usage=usage, model=str(wire.get("modelVersion") or ""))


def _check(wanted: ImagesInput, target: Target, predicts: bool) -> None:
    """NotSupported for what one call of the model does not make."""
    key = target.mapping.key
    most = MOST_PREDICTED if predicts else 1
    if predicts and wanted.pictures:
        raise NotSupported(f"{key} changes no images.", param="images", code="unsupported_input")
    if wanted.n > most:
        raise NotSupported(f"{key} makes up to {most} images at a time.", param="n", code="unsupported_n")


def _fit(asked: ImagesInput, target: Target, predicts: bool, warnings: list[str]) -> ImagesInput:
    """The input without what the model has no word for. A size in pixels counts as its ratio and as 1K, 2K or 4K."""
    ratios = PREDICTED_RATIOS if predicts else ratios_of(traits_of(target))
    sizes = (USUAL_SIZE,) if predicts else sizes_of(traits_of(target))
    wanted = fit_preferences(asked, target, ImageChoices(aspect_ratio=ratios, lost=LOST), warnings)
    size = wanted.size
    if size in ("", AUTO) or (size in sizes or shape_of(size)) and (size_of(wanted) or USUAL_SIZE) in sizes:
        return wanted
    # The shape of a size in pixels is kept where its number is not.
    kept = ", its shape kept" if shape_of(size) else ""
    warnings.append(f"size {size[:SHOWN]} was left out{kept}: {target.mapping.key} takes {', '.join(sizes)}.")
    return replace(wanted, aspect_ratio=ratio_of(wanted, ratios), size="")


def _generate(wanted: ImagesInput, traits: Traits, files: Base64Files) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": wanted.prompt}]
    for one in wanted.pictures:
        parts.append({"inlineData": {"mimeType": one.media_type, "data": files.hold(one.file)}})
    size = size_of(wanted)
    if size == USUAL_SIZE or size not in sizes_of(traits):
        size = ""
    config = {"aspectRatio": ratio_of(wanted, ratios_of(traits)), "imageSize": size}
    chosen = {name: value for name, value in config.items() if value}
    return {
        "contents": [{"role": "user", "parts": parts}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]} | ({"imageConfig": chosen} if chosen else {}),
    }


def _predict(wanted: ImagesInput) -> dict[str, Any]:
    parameters: dict[str, Any] = {"sampleCount": wanted.n}
    if ratio := ratio_of(wanted, PREDICTED_RATIOS):
        parameters["aspectRatio"] = ratio
    return {"instances": [{"prompt": wanted.prompt}], "parameters": parameters}


def ratio_of(wanted: ImagesInput, offered: tuple[str, ...]) -> str:
    """The aspect ratio: as named, else the nearest to that of the size; "" where neither is given."""
    return wanted.aspect_ratio or nearest_shape(wanted.size, offered)


def size_of(wanted: ImagesInput) -> str:
    """1K, 2K or 4K, as named or by the longer edge; "" for the usual."""
    if wanted.size in IMAGE_SIZES:
        return wanted.size
    edges = [int(one) for one in wanted.size.split("x") if one.isdecimal()]
    longest = max(edges, default=0)
    if longest <= LARGE_EDGE:
        return ""
    if longest <= HUGE_EDGE:
        return LARGE_SIZE
    return HUGE_SIZE


def _parts(wire: dict[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    candidates = wire.get("candidates") or []
    reason = (wire.get("promptFeedback") or {}).get("blockReason") or ""
    found = []
    for one in candidates:
        reason = reason or one.get("finishReason") or ""
        for part in (one.get("content") or {}).get("parts") or []:
            if "inlineData" in part and not part.get("thought"):
                found.append((part["inlineData"]["mimeType"], part["inlineData"]["data"]))
    return found, not found and (reason in BLOCKED or bool(wire.get("promptFeedback")))


def _predictions(wire: dict[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    rows = wire["predictions"]
    found = [
        (row.get("mimeType") or "image/png", row["bytesBase64Encoded"]) for row in rows if "bytesBase64Encoded" in row
    ]
    return found, not found and any("raiFilteredReason" in row for row in rows)


def _usage_of(reported: dict[str, Any], count: int, key: str) -> Usage:
    """Tokens by what they are of, where that is reported."""
    read = {one.get("modality"): read_count(one.get("tokenCount")) for one in reported.get("promptTokensDetails") or []}
    made = {
        one.get("modality"): read_count(one.get("tokenCount")) for one in reported.get("candidatesTokensDetails") or []
    }
    prompt = read_count(reported.get("promptTokenCount"))
    output = read_count(reported.get("candidatesTokenCount"))
    thought = read_count(reported.get("thoughtsTokenCount"))
    seen = min(read.get("IMAGE", 0), prompt)
    drawn = min(made.get("IMAGE", output if not made else 0), output)
    return Usage(
        input=prompt - seen,
        input_image=seen,
        output=output - drawn + thought,
        reasoning=thought,
        output_image=drawn,
        images=count,
        price_key=key,
    )
