"""POST /v1/images/generations and /v1/images/edits."""

import re
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from msgspec import UNSET, DecodeError, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from gateway.billing.context import RequestContext
from gateway.errors import ContentRefused
from gateway.neutral.events import Batch, Failed, Finished, ImageMade
from gateway.neutral.images import ImageEditsRequest, ImagesInput, ImagesRequest, ImagesResult, Picture, units_of
from gateway.neutral.parts import WEB
from gateway.neutral.request import Options, Requirements
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.validation_errors import explain, invalid, read_json, words_of
from gateway.surfaces.description.examples import PICTURE
from gateway.surfaces.openai.chat_writer import KEEP_ALIVE, error_frame
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, StreamFailure
from gateway.surfaces.web.facts import CostDetails, Facts, RoutingMetadata, headers_of
from gateway.surfaces.web.forms import FILE, Form, FormLimits, describe_fields, describe_form, read_form
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import write_event
from gateway.worker.services import Services

# Generated images as responses and as events of a stream.

IMAGE_OPERATIONS = ("image_generation", "image_edit")  # the first words of an event's type
PARTIAL = "partial_image"
COMPLETED = "completed"
UNREPORTED = "auto"  # OpenAI's word, in its types of events, for a form that the provider has chosen
PartialType = Annotated[
    str, Meta(extra_json_schema={"enum": [f"{operation}.{PARTIAL}" for operation in IMAGE_OPERATIONS]})
]
FinalType = Annotated[
    str, Meta(extra_json_schema={"enum": [f"{operation}.{COMPLETED}" for operation in IMAGE_OPERATIONS]})
]


class ImageTokensAnswer(ModelApiAnswer):
    image_tokens: int
    text_tokens: int


class ImagesUsageAnswer(ModelApiAnswer):
    input_tokens: int
    input_tokens_details: ImageTokensAnswer
    output_tokens: int
    output_tokens_details: ImageTokensAnswer
    total_tokens: int
    cost: float
    is_byok: bool
    cost_details: CostDetails


class ImageAnswer(ModelApiAnswer):
    b64_json: str
    revised_prompt: str | UnsetType = UNSET


class ImagesAnswer(ModelApiAnswer, kw_only=True):
    created: int
    data: list[ImageAnswer]
    background: str | UnsetType = UNSET
    output_format: str | UnsetType = UNSET
    quality: str | UnsetType = UNSET
    size: str | UnsetType = UNSET
    model: str
    usage: ImagesUsageAnswer
    metadata: RoutingMetadata


class PartialImageAnswer(ModelApiAnswer):
    """A preview of an unfinished image."""

    type: PartialType
    b64_json: str
    created_at: int
    size: str
    quality: str
    background: str
    output_format: str
    partial_image_index: int


class FinalImageAnswer(ModelApiAnswer):
    """A finished image, with the usage of the whole request."""

    type: FinalType
    b64_json: str
    created_at: int
    size: str
    quality: str
    background: str
    output_format: str
    usage: ImagesUsageAnswer


ImageEvent = PartialImageAnswer | FinalImageAnswer | StreamFailure


def write(result: ImagesResult, facts: Facts) -> ImagesAnswer:
    """Return the body of the response."""
    images = [ImageAnswer(image.media.data) for image in result.images]
    for image, revised in zip(images, result.revised, strict=False):
        if revised:
            image.revised_prompt = revised
    return ImagesAnswer(
        created=facts.created,
        data=images,
        background=result.background or UNSET,
        output_format=result.output_format or UNSET,
        quality=result.quality or UNSET,
        size=result.size or UNSET,
        model=facts.served,
        usage=_write_usage(facts),
        metadata=facts.metadata(),
    )


def write_events(facts: Facts, operation: str, finished: list[ImageMade], batch: Batch) -> bytes:
    """Write events. Finished images wait in `finished` for the settlement, since their events report the usage."""
    sent = []
    for event in batch:
        if type(event) is ImageMade and event.partial < 0:
            finished.append(event)
        elif type(event) is ImageMade:
            kind = f"{operation}.{PARTIAL}"
            fields = _write_fields(event, facts)
            sent.append(write_event(PartialImageAnswer(kind, **fields, partial_image_index=event.partial), kind))
        elif type(event) is Failed:
            sent.append(error_frame(event.error))
        elif type(event) is Finished:
            kind = f"{operation}.{COMPLETED}"
            usage = _write_usage(facts)
            sent.extend(
                write_event(FinalImageAnswer(kind, **_write_fields(image, facts), usage=usage), kind)
                for image in finished
            )
            if not finished:
                sent.append(error_frame(ContentRefused("The provider's content filter rejected all images.")))
    return b"".join(sent) or KEEP_ALIVE


def _write_fields(image: ImageMade, facts: Facts) -> dict[str, Any]:
    return {
        "b64_json": image.media.data,
        "created_at": facts.created,
        "size": image.edges or UNREPORTED,
        "quality": image.quality or UNREPORTED,
        "background": image.background or UNREPORTED,
        "output_format": image.output_format or image.media.media_type.removeprefix("image/") or "png",
    }


def _write_usage(facts: Facts) -> ImagesUsageAnswer:
    used = facts.usage
    return ImagesUsageAnswer(
        input_tokens=used.input_total,
        input_tokens_details=ImageTokensAnswer(used.input_image, used.input),
        output_tokens=used.output_total,
        output_tokens_details=ImageTokensAnswer(used.output_image, used.output),
        total_tokens=used.input_total + used.output_total,
        **facts.cost(),
    )


ID_PREFIX = "img-"
OLD_QUALITIES = {"standard": "medium", "hd": "high"}
MAX_IMAGES = 16
LIMITS = FormLimits(parts=64, files=MAX_IMAGES + 2, field_bytes=128 << 10, file_bytes=uploads_module.MAX_BYTES)
NUMBERS = ("n", "output_compression", "partial_images")
DIGITS = re.compile(r"[0-9]{1,9}")
NULL = b"null"
MARKS = ("mask", "markup")  # masks and similar images laid over the first image, by field name
Marks = dict[str, Picture]
Word = Annotated[str, Meta(max_length=64)]
Quality = Literal["low", "medium", "high", "auto", "xhigh", "max", "standard", "hd"]


class ImagesFields(Struct, kw_only=True, gc=False):
    """Every field that has an effect, except for the images; all others are accepted and dropped."""

    prompt: Annotated[str, Meta(min_length=1, max_length=100_000)]
    model: str = uploads_module.AUTO
    n: Annotated[int, Meta(ge=1, le=10)] | None = None
    size: Word | None = None
    quality: Quality | None = None
    aspect_ratio: Word | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    output_format: Literal["png", "jpeg", "webp"] | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    moderation: Literal["auto", "low"] | None = None
    style: Literal["vivid", "natural"] | None = None
    input_fidelity: Literal["high", "low"] | None = None
    stream: bool = False
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None
    service_tier: Word | None = None
    routing: Routing = None
    user: str | None = None


class PictureAddress(Struct, kw_only=True, gc=False):
    """The URL of an image: an http address, or a data URL in base64."""

    image_url: Annotated[str, Meta(extra_json_schema={"pattern": "^(https?://|data:)"})]


class DescribedEdits(ImagesFields, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    images: Annotated[list[PictureAddress], Meta(min_length=1, max_length=MAX_IMAGES)]
    mask: PictureAddress | None = None
    markup: PictureAddress | None = None


class EditsBody(ImagesFields, kw_only=True, gc=False):
    """The body of an edit, with images left undecoded."""

    images: Raw = Raw(NULL)
    mask: Raw = Raw(NULL)
    markup: Raw = Raw(NULL)


DECODER = Decoder(ImagesFields)
EDITS = Decoder(EditsBody)
ROWS = Decoder(list[Raw] | None)
ROW = Decoder(dict[str, Any])


def make(services: Services, inbound: Inbound) -> Outbound:
    """Generate images from a prompt, in base64."""
    context = auth_module.admit(services, inbound, ImagesRequest.operation)
    body = read_json(services.settings.limits, DECODER, inbound.body)
    return _answer(services, context, request_of(services, context, body, ImagesRequest, (), {}), body.stream)


def edit(services: Services, inbound: Inbound) -> Outbound:
    """Edit images by a prompt. The images are sent as files of a form, or as URLs in JSON."""
    context = auth_module.admit(services, inbound, ImageEditsRequest.operation, form=True)
    if inbound.upload is None:
        body, pictures, marks = _read_json(services, inbound)
    else:
        form = read_form(inbound, LIMITS, services.settings.spool_dir)
        if inbound.payload is not None:
            inbound.payload.send_instead(describe_form(form))
        body, pictures, marks = _read_form(form)
    if not 1 <= len(pictures) <= MAX_IMAGES:
        raise invalid("images" if inbound.upload is None else "image", f"send from 1 to {MAX_IMAGES} images")
    return _answer(
        services, context, request_of(services, context, body, ImageEditsRequest, pictures, marks), body.stream
    )


def _read_json(services: Services, inbound: Inbound) -> tuple[ImagesFields, tuple[Picture, ...], Marks]:
    """Read a JSON body and decode its images one after the other, since the body holds all of them in memory."""
    body = read_json(services.settings.limits, EDITS, inbound.body)

    def load(row: Raw, param: str) -> Picture:
        return uploads_module.load(services, inbound, _address_of(row, param), param)

    pictures = tuple(load(one, f"images.{number}.image_url") for number, one in enumerate(_rows_of(body.images)))
    marks = {name: load(row, name) for name in MARKS if bytes(row := getattr(body, name)) != NULL}
    return body, pictures, marks


def _rows_of(images: Raw) -> list[Raw]:
    try:
        return (ROWS.decode(images) or [])[: MAX_IMAGES + 1]
    except DecodeError:
        raise invalid("images", "expected a list of objects with an image_url") from None


def _address_of(row: Raw, param: str) -> str:
    try:
        url = compute_if(memoryview(row).nbytes > caps_module.LARGE, ROW.decode, row).get("image_url")
    except DecodeError:
        raise invalid(param, "expected an object with an image_url") from None
    if isinstance(url, dict):
        url = url.get("url")
    if not isinstance(url, str) or not url.startswith((*WEB, "data:")):
        raise invalid(param, "expected an https URL or a data URL")
    return url


def _read_form(form: Form) -> tuple[ImagesFields, tuple[Picture, ...], Marks]:
    """Read the body from a form, in which numbers are texts."""
    values: dict[str, Any] = {name: value for name, value in form.fields if value != ""}
    for name in NUMBERS:
        if name in values and DIGITS.fullmatch(values[name]):
            values[name] = int(values[name])
    if "stream" in values:
        values["stream"] = str(values["stream"]).lower() in ("true", "1")
    values.pop("images", None)
    try:
        body = DECODER.decode(orjson.dumps(values))
    except ValueError as error:
        raise explain(str(error), words_of(DECODER.type)) from None
    pictures: list[Picture] = []
    marks: Marks = {}
    for file in form.files:
        picture = uploads_module.detect_picture(file.data, file.name[:64])
        if file.name in MARKS:
            marks[file.name] = picture
        else:
            pictures.append(picture)
    return body, tuple(pictures), marks


def request_of(
    services: Services,
    context: RequestContext,
    body: ImagesFields,
    kind: type[ImagesRequest],
    pictures: tuple[Picture, ...],
    marks: Marks,
    seed: int | None = None,
) -> ImagesRequest:
    """Return the request of a validated body with its images."""
    attribution_module.add_body(context, body.user)
    quality = OLD_QUALITIES.get(body.quality or "", body.quality or "")
    content = ImagesInput(
        body.prompt,
        body.n or 1,
        body.size or "",
        quality,
        body.aspect_ratio or "",
        body.background or "",
        body.output_format or "",
        body.output_compression,
        body.moderation or "",
        body.style or "",
        body.input_fidelity or "",
        pictures,
        marks.get("mask"),
        body.stream,
        body.partial_images or 0,
        marks.get("markup"),
        seed,
    )
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=len(body.prompt.encode("utf-8", "replace")),
        messages=1,
        units=units_of(content),
    )
    options = Options(**read_preferences(routing=body.routing), service_tier=body.service_tier or "")
    size = sum(len(picture.file) for picture in pictures)
    return kind(
        uploads_module.model_of(services, context.caller, body.model),
        needs,
        lambda: content,
        options,
        large=size >= caps_module.LARGE,
    )


def _answer(services: Services, context: RequestContext, request: ImagesRequest, streamed: bool) -> Outbound:
    if streamed:
        return _stream(services, context, request)
    answer = services.engine.executor.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses_module.result_reply(answer.result, write, facts, request_id=context.shown_id, headers=headers)


def _stream(services: Services, context: RequestContext, request: ImagesRequest) -> Outbound:
    """Stream an event for each partial and each finished image; comments keep the connection alive."""
    stream = services.engine.executor.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    kind = "image_generation" if request.operation == ImagesRequest.operation else "image_edit"
    frames = http_responses_module.write_frames(stream, partial(write_events, facts, kind, []), error_frame)
    return http_responses_module.stream_reply(frames, context.shown_id, headers)


FILES = {"type": "array", "items": FILE, "minItems": 1, "maxItems": MAX_IMAGES}
FORM_FIELDS = describe_fields(ImagesFields, {"image": FILES, "image[]": FILES, "mask": FILE, "markup": FILE}) | {
    "oneOf": [{"required": ["image"]}, {"required": ["image[]"]}]
}
OPERATIONS = (
    Operation(
        "POST",
        "/v1/images/generations",
        make,
        body="json",
        paid=True,
        about=About("Generate images from a prompt", request=ImagesFields, answer=ImagesAnswer, events=ImageEvent),
    ),
    Operation(
        "POST",
        "/v1/images/edits",
        edit,
        body="form",
        paid=True,
        about=About(
            "Edit images",
            request=DescribedEdits,
            example={"prompt": "Make it blue.", "images": [{"image_url": PICTURE}]},
            form=FORM_FIELDS,
            answer=ImagesAnswer,
            events=ImageEvent,
        ),
    ),
)
