import time
from collections.abc import Callable

import fastjsonschema
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from gateway.neutral import json_extraction
from gateway.neutral.json_extraction import conforms

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "ab"])
NAMES = st.sampled_from("ab")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=6
)
KINDS = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
SMALL = st.integers(0, 3)


def words(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Return schemas with keywords that both validators support, around schemas from `inner`."""
    several = st.lists(inner, min_size=1, max_size=2)
    known = {
        "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=2),
        "const": SCALARS,
        "minimum": SMALL,
        "exclusiveMaximum": SMALL,
        "multipleOf": st.integers(1, 2),
        "minLength": SMALL,
        "maxLength": SMALL,
        "minItems": SMALL,
        "maxItems": SMALL,
        "items": inner | several,
        "additionalItems": inner,
        "uniqueItems": st.booleans(),
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "additionalProperties": inner,
        "minProperties": SMALL,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
    }
    return st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: known[name] for name in names})
    )


SCHEMAS = st.recursive(st.booleans() | st.just({}), words, max_leaves=4)


@settings(deadline=None)
@given(SCHEMAS, VALUES)
def test_it_agrees_with_another_validator(schema: dict | bool, value: object) -> None:
    try:
        validate = fastjsonschema.compile(schema, use_default=False)
    except fastjsonschema.JsonSchemaDefinitionException:
        reject()  # legal, but the reference validator rejects a schema that contradicts itself
    try:
        validate(value)
        expected = True
    except fastjsonschema.JsonSchemaValueException:
        expected = False
    assert conforms(value, schema) == expected


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        }
    },
}


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ({}, {"object"}),
        ([], {"array"}),
        ("", {"string"}),
        (True, {"boolean"}),
        (None, {"null"}),
        (1, {"number", "integer"}),
        (1.0, {"number", "integer"}),
        (0.5, {"number"}),
    ],
    ids=repr,
)
def test_a_value_has_the_types_of_json_schema(value: object, types: set[str]) -> None:
    known = ("object", "array", "string", "boolean", "null", "number", "integer")
    assert {kind for kind in known if conforms(value, {"type": kind})} == types
    assert not any(conforms(value, {"not": {"type": kind}}) for kind in types)
    assert all(conforms(value, {"type": [kind, *types]}) for kind in known)


def test_a_schema_may_refer_to_itself() -> None:
    assert conforms({"name": "a", "kids": [{"name": "b"}]}, TREE)
    assert not conforms({"name": "a", "kids": [{"name": 1}]}, TREE)


MISTAKES = [
    {"$ref": "#"},
    {"$ref": "#/$defs/none"},
    {"$ref": "http://127.0.0.1:1/schema.json"},
    {"type": "text"},
    {"type": 7},
    {"allOf": 7},
    {"required": 7},
    {"properties": []},
    {"multipleOf": 1e-320},
    "a string",
    None,
]


@pytest.mark.parametrize("schema", MISTAKES)
def test_nothing_conforms_to_a_schema_that_cannot_be_followed(schema: object) -> None:
    assert not conforms({"a": 10**400}, schema if schema != {"multipleOf": 1e-320} else {"properties": {"a": schema}})


def test_a_pattern_is_not_run() -> None:
    started = time.process_time()
    assert conforms("a" * 40 + "!", {"type": "string", "pattern": "^(a+)+$"})
    assert time.process_time() - started < 1


def test_a_schema_that_branches_without_end_is_given_up() -> None:
    schema = {"$defs": {"a": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}] * 8}}}, "$ref": "#/$defs/a"}
    value: list = [1]
    for _ in range(12):
        value = [value]
    started = time.process_time()
    assert not conforms(value, schema)
    assert time.process_time() - started < 3


def steps_of(value: object, schema: dict) -> int:
    check = json_extraction._Check(schema)
    check.fits(value, schema, ())
    return check.steps


GROWING = [
    (lambda size: ([1] * size, {"items": {"enum": list(range(size))}})),
    (lambda size: ([{"a": 1}] * size, {"items": {"enum": [{"a": n} for n in range(size)]}})),
    (lambda size: ([[n] for n in range(size)], {"uniqueItems": True})),
    (lambda size: ({str(n): n for n in range(size)}, {"required": [str(n) for n in range(size)]})),
    (lambda size: ([0] * size, {"items": {"$ref": "#/x" + "/y" * size}, "x": _nest(size)})),
]


def _nest(depth: int) -> dict:
    inner: dict = {"type": "integer"}
    for _ in range(depth):
        inner = {"y": inner}
    return inner


@pytest.mark.parametrize("make", GROWING)
def test_twice_the_size_is_twice_the_work(make: Callable) -> None:
    assert steps_of(*make(200)) <= 2.2 * steps_of(*make(100))


def test_lists_that_multiply_are_counted_and_given_up() -> None:
    """47 KB of this schema blocked a worker for nine seconds."""
    check = json_extraction._Check({"items": {"required": ["a"] * 5000}})
    with pytest.raises(json_extraction.Undecided):
        check.fits([{"a": 1}] * 2000, check._root, ())
    assert check.steps <= json_extraction.MAX_STEPS + 5000


@pytest.mark.parametrize(("one", "other"), [(True, 1), ([True], [1]), (0, False), ({"a": 1}, {"a": True}), ("1", 1)])
def test_true_is_not_one(one: object, other: object) -> None:
    assert not conforms(one, {"enum": [other]}) and conforms([one, other], {"uniqueItems": True})
    assert conforms(one, {"const": one})


@pytest.mark.parametrize("schema", [{"prefixItems": {"a": {}}}, {"items": {"$ref": "#/\u00b2"}}, {"anyOf": 3}])
def test_to_words_with_values_of_a_wrong_kind_nothing_conforms(schema):
    assert conforms([1], schema) is False
