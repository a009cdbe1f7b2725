"""Values made from schemas satisfy them, as an independent validator sees it."""

from typing import Any

import fastjsonschema
import pytest

from gateway.errors import InvalidRequest
from gateway.providers.sandbox.instances import MAX_CHARACTERS, MAX_WORK, InstanceGenerator, write_instance

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "right": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "left", "right", "children"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS = {
    "const": {"const": {"a": 1}},
    "enum": {"enum": ["red", "green"]},
    "nullable type": {"type": ["null", "string"], "minLength": 40},
    "short string": {"type": "string", "maxLength": 2},
    "empty string": {"type": "string", "maxLength": 0},
    "pattern with an example": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}$", "examples": ["AB-1234"]},
    "string with a default": {"type": "string", "default": "UTC"},
    "default of another type": {"type": "string", "default": 5, "examples": [None, "x" * 9], "maxLength": 3},
    "integer range": {"type": "integer", "minimum": 5, "maximum": 7},
    "negative integer": {"type": "integer", "maximum": -3},
    "exclusive integer": {"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6},
    "fractional limits": {"type": "integer", "minimum": 1.2, "maximum": 2.9},
    "exclusive number": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.1},
    "open number": {"type": "number", "exclusiveMinimum": 7},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 15},
    "multiple of a fraction": {"type": "number", "multipleOf": 0.5, "minimum": 2.6},
    "array size": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4},
    "unique items": {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
    "unique enum": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
    "no items": {"type": "array", "maxItems": 0},
    "untyped object": {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
    "required only": {"type": "object", "required": ["a", "b"]},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "required": ["a"]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    },
    "one of": {"oneOf": [{"type": "string", "format": "date"}, {"type": "integer"}]},
    "reference with siblings": {
        "definitions": {"a/b": {"type": "string"}},
        "properties": {"x": {"$ref": "#/definitions/a~1b", "description": "d"}},
    },
    "tree": TREE,
    "anything": {},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_value_satisfies_its_schema(schema):
    fastjsonschema.compile(schema)(write_instance(schema))


@pytest.mark.parametrize("name", ["date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"])
def test_format_is_kept(name):
    schema = {"type": "string", "format": name}
    fastjsonschema.compile(schema)(write_instance(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"additionalProperties": False},
        {"items": {"type": "string"}, "minItems": 2},
        {"minimum": 3, "maximum": 3},
    ],
)
def test_a_schema_without_a_type_has_that_of_its_words(schema):
    value = write_instance(schema)
    assert not isinstance(value, str)
    fastjsonschema.compile(schema)(value)


def test_a_duration_is_one_of_iso_8601():
    assert write_instance({"type": "string", "format": "duration"}).startswith("PT")


def test_no_schema_is_an_empty_object():
    assert write_instance(None) == {}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "integer", "minimum": 1.2, "maximum": 1.8},
        {"type": "shape"},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"type": "string", "minLength": "x"},
        {"type": "object", "properties": ["a"]},
        {"type": "string", "pattern": "^a$"},
        {"anyOf": [False]},
    ],
)
def test_schema_without_a_value_is_refused(schema):
    with pytest.raises(InvalidRequest):
        write_instance(schema)


def test_schema_that_demands_itself_is_refused():
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    with pytest.raises(InvalidRequest):
        write_instance(schema)


def test_wide_schema_that_contains_itself_stays_small():
    node = {"type": "object", "properties": {f"p{number}": {"$ref": "#"} for number in range(12)}}
    assert len(str(write_instance(node))) < 200_000


def work_of(schema: dict) -> int:
    generator = InstanceGenerator(schema)
    generator.make(schema, "value", 0, 0)
    return generator.work


def named(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


GROWING = {
    "required times properties": lambda size: {"properties": {n: {} for n in named(size)}, "required": named(size)},
    "an allOf": lambda size: {"allOf": [{"properties": {n: {}}} for n in named(size)]},
    "alternatives": lambda size: {"anyOf": [{"type": "null"}] * size},
}


@pytest.mark.parametrize("make", [GROWING["required times properties"], GROWING["alternatives"]])
def test_twice_the_schema_is_twice_the_work(make):
    assert work_of(make(1000)) <= 2.2 * work_of(make(500))


HUGE = {
    "an allOf that is joined one by one": GROWING["an allOf"](5000),
    "long texts, often": {"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 90_000}},
    "a large constant, often": {"type": "array", "minItems": 1000, "items": {"const": "x" * 50_000}},
    "alternatives, often": {"type": "array", "minItems": 1000, "items": {"anyOf": [{"type": "null"}] * 1000}},
}


@pytest.mark.parametrize("schema", HUGE.values(), ids=HUGE)
def test_a_schema_that_takes_too_much_is_refused_after_counted_work(schema):
    generator = InstanceGenerator(schema)
    with pytest.raises(InvalidRequest):
        generator.make(schema, "value", 0, 0)
    assert generator.work < MAX_WORK + 2 * MAX_CHARACTERS


def test_a_string_takes_the_values_that_its_schema_names():
    assert write_instance({"type": "string", "default": "UTC"}) == "UTC"
    both = {"type": "string", "default": "UTC", "examples": ["Europe/Paris"]}
    assert write_instance(both) == "Europe/Paris"
    three = {"type": "array", "items": both, "minItems": 3, "maxItems": 3}
    assert write_instance(three) == ["Europe/Paris", "UTC", "sample value 3"]


def test_schema_of_shared_references_is_refused_before_it_holds_up_others() -> None:
    visited: list[int] = []

    class Counted(InstanceGenerator):
        def make(self, schema: Any, name: str, depth: int, turn: int) -> Any:
            visited.append(depth)
            return super().make(schema, name, depth, turn)

    definitions = {
        f"d{level}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{level + 1}"} for side in ("left", "right")},
            "required": ["left", "right"],
        }
        for level in range(40)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d40": {"type": "string"}}}
    with pytest.raises(InvalidRequest, match="too large"):
        Counted(schema).make(schema, "value", 0, 0)
    assert len(visited) < 10_000  # some three microseconds each
