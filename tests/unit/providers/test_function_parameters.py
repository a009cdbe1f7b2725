"""Parameters of functions that services refuse are completed; good ones stay the same object."""

from collections.abc import Callable
from functools import partial

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from support.pattern_attacks import growth_of

from gateway.neutral.chat import Conversation, CustomTool, FunctionTool
from gateway.providers.function_parameters import NO_PARAMETERS, complete, complete_relayed, with_complete_schemas
from gateway.surfaces.bodies.chat_options import FunctionSpec
from gateway.surfaces.bodies.chat_options import FunctionTool as RelayedTool

TEXT = {"type": "string"}


def objects(**properties: object) -> dict:
    return {"type": "object", "properties": properties}


GOOD = [
    NO_PARAMETERS,
    objects(x=TEXT, y={"type": "array", "items": TEXT}),
    {**objects(x={"$ref": "#/$defs/a"}), "$defs": {"a": {"anyOf": [TEXT, {"type": "null"}]}}},
    objects(x={"type": "object", "additionalProperties": False}),
    objects(tree={"$ref": "#"}),
    objects(type=TEXT, items=TEXT),
]


@pytest.mark.parametrize("schema", GOOD)
def test_a_good_schema_stays_the_same_object(schema: dict) -> None:
    assert complete(schema) is schema
    talk = Conversation((), (FunctionTool("f", "", schema), FunctionTool("g"), CustomTool("h")))
    assert with_complete_schemas(talk) is talk
    tools = [{"type": "function", "name": "f", "parameters": schema}, {"type": "web_search"}]
    assert complete_relayed(tools) is tools


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, NO_PARAMETERS),
        ({}, NO_PARAMETERS),
        (True, NO_PARAMETERS),
        ({"properties": {"x": TEXT}}, objects(x=TEXT)),
        ({"type": ["object", "null"], "properties": {"x": TEXT}}, objects(x=TEXT)),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"type": "array", "items": TEXT}, {"type": "object", "properties": {}}),
        (objects(x={"type": "array"}), objects(x={"type": "array", "items": {}})),
        (objects(x={"type": ["array", "null"]}), objects(x={"type": ["array", "null"], "items": {}})),
        (objects(x={"type": "array", "items": True}), objects(x={"type": "array", "items": {}})),
        (
            objects(x={"type": "array", "items": [TEXT, {"type": "array"}]}),
            objects(x={"type": "array", "items": {"anyOf": [TEXT, {"type": "array", "items": {}}]}}),
        ),
        (objects(x=True, y=None), objects(x={}, y={})),
        (objects(x={"$ref": "#/$defs/none", "description": "d"}), objects(x={"description": "d"})),
        (objects(x={"$ref": "https://a.org/schema.json"}), objects(x={})),
        (
            {"anyOf": [{**objects(a=TEXT, b=TEXT), "required": ["a", "b"]}, {**objects(a=TEXT), "required": ["a"]}]},
            {**objects(a=TEXT, b=TEXT), "required": ["a"]},
        ),
        (
            {"allOf": [{**objects(a=TEXT), "required": ["a"]}, {"$ref": "#/$defs/b"}], "$defs": {"b": objects(b=TEXT)}},
            {**objects(a=TEXT, b=TEXT), "$defs": {"b": objects(b=TEXT)}, "required": ["a"]},
        ),
        (
            {"$ref": "#/definitions/a", "definitions": {"a": objects(a=TEXT)}},
            {**objects(a=TEXT), "definitions": {"a": objects(a=TEXT)}},
        ),
        (
            {"type": "object", "oneOf": [{"required": ["a"]}], "properties": {"a": TEXT}},
            objects(a=TEXT),
        ),
    ],
)
def test_a_refused_schema_is_completed(schema: object, expected: dict) -> None:
    before = orjson.dumps(schema)
    assert complete(schema) == expected
    assert orjson.dumps(schema) == before
    assert complete(complete(schema)) == expected
    text = RelayedTool(FunctionSpec("f", parameters=Raw(before)))
    (tool,) = complete_relayed([text])
    assert orjson.loads(bytes(memoryview(tool.function.parameters))) == expected
    inner = {"type": "function", "name": "f", "parameters": schema if schema is not None else {}}
    (space,) = complete_relayed([{"type": "namespace", "name": "n", "tools": [inner]}])
    assert space["tools"][0]["parameters"] == expected


def test_a_deep_and_a_wide_schema_are_completed_in_time() -> None:
    deep: dict = {"type": "array"}
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    assert complete(objects(x=deep))["properties"]["x"]["items"]
    wide = objects(**{f"p{number}": {"type": "array"} for number in range(20_000)})
    assert all("items" in inner for inner in complete(wide)["properties"].values())


def many_alternatives(count: int) -> dict:
    return {"anyOf": [objects(**{f"p{number}": TEXT}) for number in range(count)]}


def many_references(count: int) -> dict:
    large = objects(**{f"p{number}": TEXT for number in range(count)})
    return {"$defs": {"large": large}, "oneOf": [{"$ref": "#/$defs/large"} for _ in range(count)]}


@pytest.mark.parametrize("make", [many_alternatives, many_references])
def test_alternatives_of_a_root_take_time_by_the_size_of_the_schema(make: Callable[[int], dict]) -> None:
    assert growth_of(lambda size: partial(complete, make(size))) < 9.0
    assert len(complete(make(50))["properties"]) == 50


schemas = st.recursive(
    st.sampled_from([TEXT, {"type": "array"}, True, None, {"$ref": "#/x"}, {"$ref": "#"}, {}, {"type": "object"}]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner).map(lambda named: {"type": "object", "properties": named}),
        inner.map(lambda one: {"type": "array", "items": one}),
        st.lists(inner, min_size=1).map(lambda many: {"anyOf": many}),
        st.lists(inner).map(lambda many: {"items": many}),
    ),
    max_leaves=20,
)


@given(schemas)
def test_every_completed_schema_is_a_valid_object_without_faults(schema: object) -> None:
    completed = complete(schema)
    assert completed["type"] == "object" and complete(completed) is completed
    jsonschema.Draft202012Validator.check_schema(completed)
