"""POST /v1/moderations."""

from functools import partial
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.neutral.structured import ModerationRequest
from gateway.neutral.usage import Units
from gateway.surfaces.bodies.preference_checks import Routing
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.openai.structured import Json, TokensUsedAnswer, answer, write_tokens
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, describe_answer
from gateway.surfaces.web.facts import Facts, RoutingMetadata
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "modr-"
DEFAULT = "auto"


class ModeratedText(Struct, tag_field="type", tag="text"):
    text: str


class ModeratedUrl(Struct):
    url: str


class ModeratedImage(Struct, tag_field="type", tag="image_url"):
    image_url: ModeratedUrl


Text = Annotated[str, Meta(min_length=1)]
Part = Text | ModeratedText | ModeratedImage
Parts = Annotated[list[Part], Meta(min_length=1)]
# The input itself is passed on, with members that only the provider knows.
Input = Text | Annotated[list[Any], Meta(extra_json_schema=describe_answer(Parts))]


class ModerationBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    input: Input
    model: Annotated[str, Meta(min_length=1)] = DEFAULT
    routing: Routing = None


class ModerationResult(TypedDict):
    """The result of an input as the provider wrote it."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    category_applied_input_types: NotRequired[dict[str, list[str]]]


class ModerationAnswer(ModelApiAnswer):
    id: str
    model: str
    results: list[ModerationResult]
    usage: TokensUsedAnswer
    metadata: RoutingMetadata


def moderate(services: Services, inbound: Inbound) -> Outbound:
    """Classify each text, or all parts together."""
    reader = partial(read_moderation, services.settings.limits)
    return answer(services, inbound, ModerationRequest, DECODER, reader, ID_PREFIX, write, count_images)


def read_moderation(limits: LimitSettings, body: ModerationBody) -> tuple[Json, Units | None]:
    """Return the upstream body. Raises InvalidRequest for an input of another shape, or for too many inputs."""
    given = body.input
    if isinstance(given, list):
        caps_module.check_inputs(limits, given)
    try:
        convert(given, Text | Parts)
    except ValidationError:
        text = "expected a string, a list of strings, or a list of parts of type text or image_url"
        raise invalid("input", text) from None
    return {"input": given}, None


def count_images(body: ModerationBody) -> int:
    """Count the images among the parts: neither their bytes nor their URLs tell how many tokens they count as."""
    return sum(isinstance(part, dict) and part["type"] == "image_url" for part in body.input)


def write(body: Json, facts: Facts) -> Json:
    """Return the provider's results."""
    return ModerationAnswer.extend(
        body, id=facts.answer_id, model=facts.served, usage=write_tokens(facts), metadata=facts.metadata()
    )


DECODER = Decoder(ModerationBody)
ABOUT = About("Moderate texts and images", request=ModerationBody, answer=ModerationAnswer)
OPERATIONS = (Operation("POST", "/v1/moderations", moderate, body="json", paid=True, about=ABOUT),)
