"""The keywords of each type are those that a validator of JSON Schema applies to instances of that type."""

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from gateway.providers.schema_types import WORDS_OF_TYPE, types_of

INSTANCES = {"object": {"a": 1}, "array": [1, 1], "string": "ab", "number": 7.5, "integer": 7}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": False}},
        {"required": ["b"]},
        {"additionalProperties": False},
        {"patternProperties": {"": False}},
        {"minProperties": 2},
        {"maxProperties": 0},
        {"items": False},
        {"prefixItems": [False]},
        {"minItems": 3},
        {"maxItems": 1},
        {"uniqueItems": True},
        {"pattern": "^b"},
        {"minLength": 3},
        {"maxLength": 1},
        {"minimum": 8},
        {"maximum": 6},
        {"multipleOf": 4},
        {"title": "Any"},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_a_keyword_belongs_to_the_types_that_it_constrains(schema: dict[str, Any]) -> None:
    valid = Draft202012Validator(schema).is_valid
    constrained = [kind for kind, instance in INSTANCES.items() if not valid(instance)]
    assert [kind for kind in INSTANCES if not WORDS_OF_TYPE[kind].isdisjoint(schema)] == constrained
    assert types_of(schema) == constrained[:1]


def test_a_format_implies_a_string_and_an_order_of_properties_an_object() -> None:
    assert types_of({"format": "date"}) == ["string"]
    assert types_of({"format": "float", "minimum": 0}) == ["number"]
    assert types_of({"propertyOrdering": ["b", "a"]}) == ["object"]
