from typing import Any

import pytest

from gateway.providers.schema_types import merge

NAME = {"type": "string"}
AGE = {"type": "integer"}


@pytest.mark.parametrize(
    ("word", "one", "other", "both"),
    [
        ("type", ["string", "number"], ["integer", "string"], ["string", "integer"]),
        ("type", "number", "integer", "integer"),
        ("properties", {"name": NAME}, {"age": AGE}, {"name": NAME, "age": AGE}),
        ("properties", {"name": NAME}, {"name": {"minLength": 1}}, {"name": {"allOf": [NAME, {"minLength": 1}]}}),
        ("patternProperties", {"^a": NAME}, {"^b": AGE}, {"^a": NAME, "^b": AGE}),
        ("required", ["name"], ["age", "name"], ["name", "age"]),
        ("enum", ["a", "b", 1], ["b", "c", True], ["b"]),
        ("items", NAME, {"minLength": 1}, {"allOf": [NAME, {"minLength": 1}]}),
        ("minimum", 1, 2, 2),
        ("exclusiveMinimum", 1, 2, 2),
        ("minLength", 1, 2, 2),
        ("minItems", 1, 2, 2),
        ("minProperties", 1, 2, 2),
        ("maximum", 9, 8, 8),
        ("exclusiveMaximum", 9, 8, 8),
        ("maxLength", 9, 8, 8),
        ("maxItems", 9, 8, 8),
        ("maxProperties", 9, 8, 8),
    ],
)
def test_a_value_of_all_schemas_keeps_both_constraints(word: str, one: Any, other: Any, both: Any) -> None:
    lost: list[str] = []
    assert merge([{word: one}, {word: other}], lost.append) == {word: both}
    assert lost == []


def test_constraints_that_cannot_be_joined_are_named() -> None:
    lost: list[str] = []
    assert merge([{"pattern": "^a"}, {"pattern": "b$"}], lost.append) == {"pattern": "^a"}
    assert lost == ["pattern"]


def test_words_that_restrict_nothing_are_not_missed_when_two_schemas_have_them() -> None:
    lost: list[str] = []
    for word in ("title", "default", "examples", "$defs", "definitions"):
        assert merge([{word: {"a": 1}}, {word: {"b": 2}}], lost.append) == {word: {"a": 1}}
    assert lost == []
