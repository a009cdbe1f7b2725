"""POST /v1/systemone: questions about a state, answered with choices, scores and odds."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.neutral.structured import DecisionRequest
from gateway.neutral.usage import Units
from gateway.surfaces.bodies.preference_checks import Routing
from gateway.surfaces.bodies.validation_errors import invalid, read_part, tags_of
from gateway.surfaces.openai.structured import Json, TokensUsedAnswer, answer, write_tokens
from gateway.surfaces.web.answer_structs import ModelApiAnswer, describe_answer
from gateway.surfaces.web.facts import Facts, RoutingMetadata
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "sone-"
MAX_QUESTIONS = 256
Instructions = (
    Annotated[str, Meta(min_length=1)]
    | Annotated[dict[str, Any], Meta(min_length=1)]
    | Annotated[list[Any], Meta(min_length=1)]
)


class OddsCriteria(Struct, forbid_unknown_fields=True):
    true: Any = UNSET
    false: Any = UNSET


class OddsQuestion(Struct, tag_field="type", tag="noul"):
    """A question about how likely a statement is."""

    instructions: Instructions
    criteria: OddsCriteria | UnsetType | None = UNSET


class ChoiceQuestion(Struct, tag_field="type", tag="choice"):
    """A question that chooses one of several options."""

    instructions: Instructions
    criteria: Annotated[dict[str, Any], Meta(min_length=2, max_length=255)]


class ScoreQuestion(Struct, tag_field="type", tag="score"):
    """A question for a level, the lowest first."""

    instructions: Instructions
    criteria: Annotated[list[Any], Meta(min_length=2, max_length=10)]


Question = OddsQuestion | ChoiceQuestion | ScoreQuestion
# The questions themselves are passed on, with members that only the provider knows.
Questions = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "minProperties": 1,
            "maxProperties": MAX_QUESTIONS,
            "additionalProperties": describe_answer(Question),
        }
    ),
]


class DecisionBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Annotated[str, Meta(min_length=1)]
    state: str | dict[str, Any] | list[Any]
    questions: Questions
    routing: Routing = None


class Decision(TypedDict):
    """A decision as the provider wrote it."""

    type: Annotated[str, Meta(extra_json_schema={"enum": tags_of(Question)})]
    confidence: NotRequired[float]
    probabilities: NotRequired[Any]


class DecisionsAnswer(ModelApiAnswer):
    id: str
    model: str
    answers: dict[str, Decision]
    usage: TokensUsedAnswer
    metadata: RoutingMetadata


def decide(services: Services, inbound: Inbound) -> Outbound:
    """Answer each question about the state."""
    return answer(services, inbound, DecisionRequest, DECODER, read_decision, ID_PREFIX, write)


def read_decision(body: DecisionBody) -> tuple[Json, Units | None]:
    """Return the upstream body. Raises InvalidRequest with the invalid question."""
    if not 1 <= len(body.questions) <= MAX_QUESTIONS:
        raise invalid("questions", f"expected an object of 1 to {MAX_QUESTIONS} questions by id")
    for name, question in body.questions.items():
        read_part(f"questions.{name[:64]}", question, Question)
    return {"state": body.state, "questions": body.questions}, None


def write(body: Json, facts: Facts) -> Json:
    """Return the provider's answers."""
    return DecisionsAnswer.extend(
        body, id=facts.answer_id, model=facts.served, usage=write_tokens(facts), metadata=facts.metadata()
    )


DECODER = Decoder(DecisionBody)
ABOUT = About(
    "Make decisions about a state",
    request=DecisionBody,
    answer=DecisionsAnswer,
    example={
        "model": "auto",
        "state": "The kettle boils.",
        "questions": {"tea": {"type": "noul", "instructions": "Is it time for tea?"}},
    },
)
OPERATIONS = (Operation("POST", "/v1/systemone", decide, body="json", paid=True, about=ABOUT),)
