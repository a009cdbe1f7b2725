"""Answers as structs: read from the program's objects, written as JSON and described from one definition."""

from typing import Annotated, NamedTuple, TypedDict

import pytest
from msgspec import UNSET, Meta, UnsetType, json

from gateway.surfaces.web.answer_structs import Answer, ModelApiAnswer, Time, Usd, describe_answer


class PartAnswer(Answer):
    id: str


class WholeAnswer(Answer):
    id: str
    spent: Usd
    max_spend: Usd | None
    created_at: Time
    parts: list[PartAnswer]
    more: int | UnsetType = UNSET


class Source(NamedTuple):
    id: str
    spent_nusd: int = 1_500_000_000
    max_spend_nusd: int | None = None
    created_at_us: int = 0
    parts: tuple[PartAnswer, ...] = ()
    unknown: int = 1


SOURCE = Source("a")


def test_amounts_and_times_of_a_source_are_written_as_text() -> None:
    written = json.decode(json.encode(WholeAnswer.of(SOURCE)))
    times = {"createdAt": "1970-01-01T00:00:00.000Z"}
    assert written == {"id": "a", "spent": "1.5", "maxSpend": None, "parts": [], **times}


def test_given_values_replace_those_of_the_source_and_are_converted_alike() -> None:
    answer = WholeAnswer.of(SOURCE, max_spend=2_000_000_000, parts=[PartAnswer("b")], more=3)
    written = json.decode(json.encode(answer))
    assert (written["maxSpend"], written["parts"], written["more"]) == ("2", [{"id": "b"}], 3)


def test_a_field_that_no_source_has_is_an_error() -> None:
    with pytest.raises(TypeError, match="spent"):
        WholeAnswer.of(PartAnswer("a"))


def test_the_schema_has_every_part_inside_under_its_name() -> None:
    schema = describe_answer(WholeAnswer)
    assert schema["title"] == "Whole"
    assert schema["required"] == ["id", "spent", "maxSpend", "createdAt", "parts"]
    assert schema["properties"]["parts"]["items"]["title"] == "Part"
    assert schema["properties"]["createdAt"]["format"] == "date-time"


class CountAnswer(ModelApiAnswer, tag_field="object", tag="count"):
    input_tokens: int
    cached_tokens: int = 0
    more: int | UnsetType = UNSET


def test_answers_of_model_apis_keep_their_names() -> None:
    assert json.decode(CountAnswer(3).encode()) == {"object": "count", "input_tokens": 3, "cached_tokens": 0}


def test_fields_with_a_default_are_required_unless_they_are_left_out() -> None:
    assert describe_answer(CountAnswer)["required"] == ["object", "input_tokens", "cached_tokens"]


class LimitedAnswer(TypedDict):
    text: Annotated[str, Meta(max_length=3)]
    count: Annotated[int, Meta(ge=1)]
    share: Annotated[float, Meta(le=1)]
    names: Annotated[list[str], Meta(max_length=5)]
    tags: Annotated[dict[str, str], Meta(max_length=7)]
    choice: Annotated[int | str, Meta(description="A number or a name.")]


def test_limits_of_fields_are_described_with_their_types() -> None:
    fields = describe_answer(LimitedAnswer)["properties"]
    assert fields["text"] == {"type": "string", "maxLength": 3}
    assert fields["count"] == {"type": "integer", "minimum": 1}
    assert fields["share"] == {"type": "number", "maximum": 1}
    assert fields["names"] == {"type": "array", "items": {"type": "string"}, "maxItems": 5}
    assert fields["tags"] == {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 7}
    assert fields["choice"]["description"] == "A number or a name." and len(fields["choice"]["anyOf"]) == 2
