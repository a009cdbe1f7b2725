"""Generated images as responses and as events of a stream."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from gateway.errors import ContentRefused
from gateway.neutral.events import Batch, Failed, Finished, ImageMade
from gateway.neutral.images import ImagesResult
from gateway.surfaces.answer_structs import ModelApiAnswer, StreamFailure
from gateway.surfaces.facts import CostDetails, Facts, RoutingMetadata
from gateway.surfaces.http_responses import write_event
from gateway.surfaces.openai.chat_writer import KEEP_ALIVE, error_frame

OPERATIONS = ("image_generation", "image_edit")  # the first words of an event's type
PARTIAL = "partial_image"
COMPLETED = "completed"
UNREPORTED = "auto"  # OpenAI's word, in its types of events, for a form that the provider has chosen
PartialType = Annotated[str, Meta(extra_json_schema={"enum": [f"{operation}.{PARTIAL}" for operation in OPERATIONS]})]
FinalType = Annotated[str, Meta(extra_json_schema={"enum": [f"{operation}.{COMPLETED}" for operation in OPERATIONS]})]


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
            for image in finished:
                sent.append(write_event(FinalImageAnswer(kind, **_write_fields(image, facts), usage=usage), kind))
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
