"""POST /v1/systemone: questions about a state, answered with choices, scores and odds."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.neutral.structured import DecisionRequest
from gateway.neutral.usage import Units
from gateway.surfaces.answer_structs import ModelApiAnswer
from gateway.surfaces.facts import Facts, RoutingMetadata
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.openai.structured import Json, TokensUsedAnswer, answer, write_tokens
from gateway.surfaces.preference_checks import Routing
from gateway.surfaces.shapes import ANY, one_of, shape
from gateway.surfaces.validation_errors import invalid
from gateway.worker.services import Services

ID_PREFIX = "sone-"
MOST_QUESTIONS = 256
OPTIONS = (2, 255)
LEVELS = (2, 10)
INSTRUCTIONS = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "object", "minProperties": 1},
        {"type": "array", "minItems": 1},
    ]
}
VERDICTS = {"type": "object", "properties": {"true": ANY, "false": ANY}, "additionalProperties": False}
CHOICES = {"type": "object", "minProperties": OPTIONS[0], "maxProperties": OPTIONS[1]}
STEPS = {"type": "array", "minItems": LEVELS[0], "maxItems": LEVELS[1]}
QUESTION = {
    "anyOf": [
        shape({"criteria": VERDICTS}, type={"const": "noul"}, instructions=INSTRUCTIONS),
        shape(type={"const": "choice"}, instructions=INSTRUCTIONS, criteria=CHOICES),
        shape(type={"const": "score"}, instructions=INSTRUCTIONS, criteria=STEPS),
    ]
}
QUESTIONS_SCHEMA = {"minProperties": 1, "maxProperties": MOST_QUESTIONS, "additionalProperties": QUESTION}
DECISION = shape({"confidence": "number", "probabilities": ANY}, type=one_of("noul", "choice", "score"))
Decision = Annotated[Any, Meta(extra_json_schema=DECISION)]  # passed on as the provider wrote it
Questions = Annotated[dict[str, Any], Meta(extra_json_schema=QUESTIONS_SCHEMA)]


class DecisionBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Annotated[str, Meta(min_length=1)]
    state: str | dict[str, Any] | list[Any]
    questions: Questions
    routing: Routing = None


class DecisionsAnswer(ModelApiAnswer):
    id: str
    model: str
    answers: dict[str, Decision]
    usage: TokensUsedAnswer
    metadata: RoutingMetadata


def decide(services: Services, inbound: Inbound) -> Outbound:
    """Answer each question about the state."""
    return answer(services, inbound, DecisionRequest, DECODER, read, ID_PREFIX, write)


def read(body: DecisionBody) -> tuple[Json, Units | None]:
    """Return the upstream body. Raises InvalidRequest with the invalid question."""
    if not 1 <= len(body.questions) <= MOST_QUESTIONS:
        raise invalid("questions", f"expected an object of 1 to {MOST_QUESTIONS} questions by id")
    for name, question in body.questions.items():
        _check(f"questions.{name[:64]}", question)
    return {"state": body.state, "questions": body.questions}, None


def _check(param: str, question: Any) -> None:
    if not isinstance(question, dict):
        raise invalid(param, "expected an object")
    if not question.get("instructions") or isinstance(question["instructions"], int | float):
        raise invalid(f"{param}.instructions", "expected a string, an object or a list")
    criteria = question.get("criteria")
    match question.get("type"):
        case "noul":
            if criteria is not None and not (isinstance(criteria, dict) and criteria.keys() <= {"true", "false"}):
                raise invalid(f"{param}.criteria", "expected an object with true and false")
        case "choice":
            if not isinstance(criteria, dict) or not OPTIONS[0] <= len(criteria) <= OPTIONS[1]:
                raise invalid(f"{param}.criteria", f"expected an object of {OPTIONS[0]} to {OPTIONS[1]} options")
        case "score":
            if not isinstance(criteria, list) or not LEVELS[0] <= len(criteria) <= LEVELS[1]:
                raise invalid(
                    f"{param}.criteria", f"expected a list of {LEVELS[0]} to {LEVELS[1]} levels, lowest first"
                )
        case _:
            raise invalid(f"{param}.type", "expected noul, choice or score")


def write(body: Json, facts: Facts) -> Json:
    """Return the provider's answers."""
    return DecisionsAnswer.extend(
        body, id=facts.answer_id, model=facts.served, usage=write_tokens(facts), metadata=facts.metadata()
    )


DECODER = Decoder(DecisionBody)
ABOUT = About("Make decisions about a state", request=DecisionBody, answer=DecisionsAnswer)
OPERATIONS = (Operation("POST", "/v1/systemone", decide, body="json", paid=True, about=ABOUT),)
