"""POST /v1/moderations."""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.neutral.structured import ModerationRequest
from gateway.neutral.usage import Units
from gateway.surfaces import caps
from gateway.surfaces.answer_structs import ModelApiAnswer
from gateway.surfaces.facts import Facts, RoutingMetadata
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.openai.structured import Json, TokensUsedAnswer, answer, write_tokens
from gateway.surfaces.preference_checks import Routing
from gateway.surfaces.shapes import map_of, shape
from gateway.surfaces.validation_errors import invalid
from gateway.worker.services import Services

ID_PREFIX = "modr-"
DEFAULT = "omni-moderation-latest"
PARTS = {"text": str, "image_url": dict}
TEXT = {"type": "string", "minLength": 1}
PART = {
    "anyOf": [
        TEXT,
        shape(type={"const": "text"}, text="string"),
        shape(type={"const": "image_url"}, image_url=shape(url="string")),
    ]
}
RESULT = shape(
    {"category_applied_input_types": map_of(["string"])},
    flagged="boolean",
    categories=map_of("boolean"),
    category_scores=map_of("number"),
)
Result = Annotated[Any, Meta(extra_json_schema=RESULT)]  # passed on as the provider wrote it
Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Parts = Annotated[list[Any], Meta(extra_json_schema={"minItems": 1, "items": PART})]


class ModerationBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    input: Text | Parts
    model: Annotated[str, Meta(min_length=1)] = DEFAULT
    routing: Routing = None


class ModerationAnswer(ModelApiAnswer):
    id: str
    model: str
    results: list[Result]
    usage: TokensUsedAnswer
    metadata: RoutingMetadata


def moderate(services: Services, inbound: Inbound) -> Outbound:
    """Classify each text, or all parts together."""
    reader = partial(read, services.settings.limits)
    return answer(services, inbound, ModerationRequest, DECODER, reader, ID_PREFIX, write, count_images)


def read(limits: LimitSettings, body: ModerationBody) -> tuple[Json, Units | None]:
    """Return the upstream body. Raises InvalidRequest for an input of another shape, or for too many inputs."""
    given = body.input
    if isinstance(given, list):
        caps.check_inputs(limits, given)
    if not given or (isinstance(given, list) and not all(map(_is_input, given))):
        raise invalid("input", "expected a string, a list of strings, or a list of parts of type text or image_url")
    return {"input": given}, None


def count_images(body: ModerationBody) -> int:
    """Count the images among the parts: neither their bytes nor their URLs tell how many tokens they count as."""
    return sum(isinstance(one, dict) and one["type"] == "image_url" for one in body.input)


def _is_input(one: Any) -> bool:
    if isinstance(one, dict):
        kind = one.get("type")
        return kind in PARTS and isinstance(one.get(kind), PARTS[kind])
    return isinstance(one, str) and bool(one)


def write(body: Json, facts: Facts) -> Json:
    """Return the provider's results."""
    return ModerationAnswer.extend(
        body, id=facts.answer_id, model=facts.served, usage=write_tokens(facts), metadata=facts.metadata()
    )


DECODER = Decoder(ModerationBody)
ABOUT = About("Moderation", request=ModerationBody, answer=ModerationAnswer)
OPERATIONS = (Operation("POST", "/v1/moderations", moderate, body="json", paid=True, about=ABOUT),)
