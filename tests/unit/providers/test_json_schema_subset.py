import contextlib
import copy
from typing import Any

import pytest
from support.schema_samples import (
    accepts,
    check,
    google_as_json,
    google_complaints,
    instances_of,
    keywords_of,
    load_schemas,
)

from gateway.errors import InvalidRequest
from gateway.providers import json_schema_subset
from gateway.providers.grammars import (
    ANTHROPIC,
    ANTHROPIC_OUTPUT,
    BEDROCK,
    COHERE,
    GOOGLE,
    GOOGLE_JSON,
    GRAMMARS,
    MISTRAL,
    OPENAI_STRICT,
    PLAIN_GRAMMAR,
    Grammar,
)
from gateway.providers.json_schema_subset import RECURSION, UNRESOLVED, rewrite
from gateway.providers.schema_types import look_up, types_of

SCHEMAS = load_schemas()
OPEN_GRAMMARS = (GOOGLE_JSON, ANTHROPIC, BEDROCK, MISTRAL, COHERE, PLAIN_GRAMMAR)
samples = pytest.mark.parametrize("schema", [schema for _, schema in SCHEMAS], ids=[name for name, _ in SCHEMAS])


def every_schema(test):
    """Fourteen hundred cases: together most of ten seconds."""
    return pytest.mark.slow(samples(test))


STRINGS = {"type": "ARRAY", "items": {"type": "STRING"}}


def of(schema: dict, grammar=GOOGLE) -> dict:
    """The schema of a property `a`, rewritten."""
    return rewrite({"type": "object", "properties": {"a": schema}}, grammar).schema["properties"]["a"]


def test_there_are_two_hundred_samples_and_nearly_all_have_instances():
    assert len(SCHEMAS) >= 200
    assert sum(bool(instances_of(schema)) for _, schema in SCHEMAS) >= 0.95 * len(SCHEMAS)


@every_schema
def test_sample_is_valid_for_google_and_takes_the_same_instances(schema):
    before = copy.deepcopy(schema)
    written = rewrite(schema, GOOGLE).schema
    assert schema == before
    assert google_complaints(written) == []
    valid = check(google_as_json(written))
    assert [instance for instance in instances_of(schema) if not valid(instance)] == []


@every_schema
def test_sample_takes_the_same_instances_in_every_open_grammar(schema):
    instances = instances_of(schema)
    for grammar in OPEN_GRAMMARS:
        valid = check(rewrite(schema, grammar).schema)
        assert [instance for instance in instances if not valid(instance)] == [], grammar.name


@every_schema
def test_sample_has_only_words_of_the_grammar(schema):
    for grammar in GRAMMARS.values():
        written = rewrite(schema, grammar).schema
        if grammar.words is not None:
            assert keywords_of(written) <= grammar.words, grammar.name
        if not grammar.refs:
            assert "$ref" not in keywords_of(written), grammar.name
        if grammar.object_root:
            assert written["type"] in ("object", "OBJECT")
            assert not {"anyOf", "oneOf", "allOf"} & written.keys()


@every_schema
def test_sample_is_closed_where_the_grammar_wants_it(schema):
    for grammar in (OPENAI_STRICT, ANTHROPIC_OUTPUT):
        assert list(_open_objects(rewrite(schema, grammar).schema, grammar.all_required)) == []


def _open_objects(schema, all_required):
    if schema.get("type") == "object" or "object" in (schema.get("type") or ()):
        declared = schema.get("properties")
        if schema.get("additionalProperties") is not False or declared is None:
            yield schema
        if all_required and set(schema["required"]) != set(declared):
            yield schema
    for inner in (*(schema.get("properties") or {}).values(), *schema.get("anyOf", ())):
        yield from _open_objects(inner, all_required)
    if isinstance(schema.get("items"), dict):
        yield from _open_objects(schema["items"], all_required)


def test_rewriting_twice_changes_nothing():
    for _, schema in SCHEMAS[:60]:
        once = rewrite(schema, GOOGLE_JSON).schema
        assert rewrite(once, GOOGLE_JSON).schema == once


def test_reference_is_written_out():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "Mine"}},
        "$defs": {"A": {"type": "string", "description": "Theirs"}},
    }
    result = rewrite(schema, GOOGLE)
    assert result.schema["properties"]["a"] == {"type": "STRING", "description": "Mine"}
    assert result.dropped == ()


def test_a_recursive_reference_is_cut_to_an_open_object_and_reported():
    node = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Node"}}, "required": ["child"]}
    result = rewrite({"$ref": "#/$defs/Node", "$defs": {"Node": node}}, GOOGLE)
    assert RECURSION in result.dropped
    assert google_complaints(result.schema) == []
    assert accepts(google_as_json(result.schema), {"child": {"child": {"child": {}}}})


def test_references_that_multiply_stay_small():
    defs = {
        f"L{n}": {"type": "object", "properties": {c: {"$ref": f"#/$defs/L{n + 1}"} for c in "abcdefgh"}}
        for n in range(12)
    }
    result = rewrite({"$ref": "#/$defs/L0", "$defs": {**defs, "L12": {"type": "string"}}}, GOOGLE_JSON)
    assert {"depth", RECURSION} & set(result.dropped)
    assert len(str(result.schema)) < 2_000_000


@pytest.mark.parametrize("ref", ["https://example.com/a.json", "#/$defs/Missing", "other.json#/A", "#/%"])
def test_foreign_reference_takes_anything_and_is_reported(ref):
    result = rewrite({"type": "object", "properties": {"a": {"$ref": ref}}}, GOOGLE)
    assert result.dropped == (UNRESOLVED,)
    assert accepts(google_as_json(result.schema), {"a": [1]})


def test_nullable_type_becomes_a_mark():
    assert of({"type": ["string", "null"]}) == {"type": "STRING", "nullable": True}
    assert of({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}) == {
        "type": "INTEGER",
        "nullable": True,
    }
    assert of({"type": "string", "nullable": True}, GOOGLE_JSON) == {"type": ["string", "null"]}


def test_each_type_of_a_list_keeps_the_words_that_restrict_it():
    # JSON Schema, validation: sections 6.2 to 6.5.
    words = {
        "string": {"minLength": 1, "maxLength": 9, "pattern": "a"},
        "number": {"minimum": 1, "maximum": 9},
        "array": {"minItems": 1, "maxItems": 9, "items": {"type": "STRING"}},
        "object": {"minProperties": 1, "maxProperties": 9, "properties": {"b": {"type": "STRING"}}, "required": ["b"]},
        "boolean": {},
    }
    written = of({"type": list(words), **{word: value for own in words.values() for word, value in own.items()}})
    assert written["anyOf"] == [{"type": kind.upper(), **own} for kind, own in words.items()]


def test_a_schema_without_restrictions_takes_every_type():
    kinds = ["STRING", "NUMBER", "BOOLEAN", "OBJECT", "ARRAY"]
    assert [branch["type"] for branch in of({})["anyOf"]] == kinds


def test_constant_becomes_an_enum():
    assert of({"const": "on"}) == {"type": "STRING", "enum": ["on"]}
    assert of({"const": 3}, GOOGLE_JSON) == {"enum": [3]}
    assert of({"const": 3}, COHERE) == {"const": 3}


def test_an_enum_of_numbers_becomes_words_where_only_texts_are_accepted():
    result = rewrite({"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}}, GOOGLE)
    assert result.schema["properties"]["a"] == {"type": "INTEGER", "description": "One of: 1, 2."}
    assert result.dropped == ("enum",)


def test_one_of_becomes_any_of_with_its_neighbours():
    branches = [{"required": ["x"]}, {"required": ["y"]}]
    schema = {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}, "oneOf": branches}
    written = of(schema)
    assert [branch["required"] for branch in written["anyOf"]] == [["x"], ["y"]]
    assert all(set(branch["properties"]) == {"x", "y"} for branch in written["anyOf"])


def test_all_of_is_joined():
    parts = [
        {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False}
    ]
    written = of({"allOf": [*parts, {"properties": {"x": {"maximum": 5}, "y": {"type": "string"}}, "required": ["y"]}]})
    assert written["properties"] == {"x": {"type": "NUMBER", "maximum": 5}, "y": {"type": "STRING"}}
    assert written["required"] == ["x", "y"]


def test_joining_keeps_declarations_of_other_parts():
    closed = {"type": "object", "properties": {"x": {}}, "additionalProperties": False}
    written = of({"allOf": [closed, {"properties": {"y": {}}}]}, GOOGLE_JSON)
    assert "additionalProperties" not in written


def test_an_object_that_is_closed_stays_closed():
    closed = {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}
    assert of(closed, COHERE)["additionalProperties"] is False


@pytest.mark.parametrize("count", [0, 1])
def test_a_list_keeps_the_least_counts_that_anthropic_accepts(count):
    items = {"type": "array", "items": {"type": "string"}, "minItems": count}
    assert of({"type": "object", "properties": {"a": items}}, ANTHROPIC_OUTPUT)["properties"]["a"]["minItems"] == count


def test_dropped_pattern_properties_do_not_leave_a_closed_object():
    schema = {"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
    result = rewrite({"type": "object", "properties": {"a": schema}}, GOOGLE_JSON)
    assert accepts(result.schema, {"a": {"x1": "v"}})
    assert result.dropped == ("patternProperties",)


def test_unsupported_words_are_reported_and_annotations_are_not():
    schema = {"type": "string", "contentEncoding": "base64", "examples": ["a"], "format": "uuid", "x-order": 1}
    result = rewrite({"type": "object", "properties": {"a": schema}, "dependentRequired": {"a": ["b"]}}, GOOGLE)
    assert result.schema["properties"]["a"] == {"type": "STRING"}
    assert result.dropped == ("format (uuid)", "dependentRequired") or set(result.dropped) == {
        "format (uuid)",
        "dependentRequired",
    }


def test_exclusive_limit_of_an_integer_is_exact():
    assert of({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}) == {
        "type": "INTEGER",
        "minimum": 1,
        "maximum": 9,
    }
    assert rewrite({"properties": {"a": {"type": "number", "exclusiveMinimum": 0}}}, GOOGLE).dropped == (
        "exclusiveMinimum",
    )


@pytest.mark.parametrize(
    ("word", "value", "grammar"),
    [
        ("format", "phone", COHERE),
        ("minItems", 2, ANTHROPIC_OUTPUT),
        ("required", "b", PLAIN_GRAMMAR),
        ("enum", [], PLAIN_GRAMMAR),
        ("anyOf", [], PLAIN_GRAMMAR),
        ("oneOf", {}, PLAIN_GRAMMAR),
        ("allOf", {}, PLAIN_GRAMMAR),
        ("prefixItems", {}, PLAIN_GRAMMAR),
        ("properties", [], PLAIN_GRAMMAR),
        ("patternProperties", [], PLAIN_GRAMMAR),
        ("dependentSchemas", [], PLAIN_GRAMMAR),
        ("$defs", [], PLAIN_GRAMMAR),
        ("definitions", [], PLAIN_GRAMMAR),
    ],
)
def test_a_value_that_no_upstream_accepts_is_left_out_and_reported(word, value, grammar):
    result = rewrite({"type": "object", "properties": {"a": {"type": "string", word: value}}}, grammar)
    assert word not in result.schema["properties"]["a"]
    assert [lost.partition(" ")[0] for lost in result.dropped] == [word]


@pytest.mark.parametrize(
    ("node", "written"),
    [
        ({"const": "x"}, {"type": "STRING", "enum": ["x"]}),
        ({"type": "integer", "exclusiveMinimum": 1}, {"type": "INTEGER", "minimum": 2}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "INTEGER", "maximum": 8}),
        ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, STRINGS),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, STRINGS),
    ],
)
def test_each_word_that_an_upstream_lacks_is_replaced_by_its_equivalent(node, written):
    assert of(node) == written


def test_a_tuple_becomes_a_list_of_anything():
    tuples = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}
    for grammar in (COHERE, ANTHROPIC_OUTPUT):
        assert "items" in of(tuples, grammar) and "prefixItems" not in of(tuples, grammar)


def test_list_without_items_gets_some():
    assert "items" in of({"type": "array"})
    assert accepts(google_as_json(of({"type": "array"})), ["a", 1, {}, None])


def test_required_names_are_declared():
    assert "required" not in rewrite({"type": "object", "required": ["ghost"]}, GOOGLE).schema


def test_root_union_becomes_one_object():
    branches = [{"properties": {"x": {"type": "string"}}, "required": ["x", "z"]}, {"$ref": "#/$defs/B"}]
    schema = {"anyOf": branches, "$defs": {"B": {"properties": {"y": {"type": "integer"}}, "required": ["z"]}}}
    result = rewrite(schema, ANTHROPIC)
    assert set(result.schema["properties"]) == {"x", "y"}
    assert (result.schema["required"], result.dropped) == (["z"], ("anyOf",))


def test_a_strict_object_requires_every_property_and_accepts_null_for_optional_ones():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["x"]}}, "required": ["a"]}
    written = rewrite(schema, OPENAI_STRICT).schema
    assert (written["required"], written["additionalProperties"]) == (["a", "b"], False)
    assert written["properties"]["b"] == {"enum": ["x", None]}


def test_a_schema_that_is_no_object_counts_as_an_open_one():
    for odd in (None, True, [], "x", {}):
        assert rewrite(odd, GOOGLE).schema == {"type": "OBJECT"}


def steps_of(schema: dict, grammar: Grammar) -> int:
    work = json_schema_subset._Rewriter(schema, grammar)
    work.write_root()
    return work.steps


def properties(count: int, kind: str = "string") -> dict:
    return {f"p{number}": {"type": kind} for number in range(count)}


# These schemas took up to 45 seconds of the event loop; each is a function of its size.
GROWING = {
    "a long allOf": lambda size: {"allOf": [{"properties": {f"p{n}": {}}, "required": [f"p{n}"]} for n in range(size)]},
    "a long anyOf": lambda size: {"anyOf": [{"properties": {f"p{n}": {}}} for n in range(size)]},
    "an anyOf of values": lambda size: {"properties": {"a": {"anyOf": [{"const": n} for n in range(size)]}}},
    "one name in every branch": lambda size: {"anyOf": [{"properties": {"a": {"const": n}}} for n in range(size)]},
    "many properties, all required": lambda size: {"properties": properties(size), "required": list(properties(size))},
    "a long reference": lambda size: {"properties": {str(n): {"$ref": "#/x" + "/y" * size} for n in range(size)}},
}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("make", GROWING.values(), ids=GROWING)
def test_twice_the_schema_is_twice_the_work(make, grammar):
    small, large = steps_of(make(200), grammar), steps_of(make(400), grammar)
    assert large <= 2.2 * small + 10


def doubling(depth: int) -> dict:
    """Each definition holds the next one twice."""
    defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{depth}": {"type": "object"}}}


MULTIPLYING = {
    "references that double": doubling(40),
    "branches that all hold what stands beside them": {
        "properties": {"a": {"properties": properties(3000), "anyOf": [{"required": [f"p{n}"]} for n in range(3000)]}}
    },
    "a chain of references": {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)},
    },
}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("schema", MULTIPLYING.values(), ids=MULTIPLYING)
def test_a_schema_that_multiplies_is_cut_after_so_many_steps(schema, grammar):
    assert steps_of(schema, grammar) < 2 * json_schema_subset.STEP_LIMIT


@pytest.mark.parametrize("word", ["properties", "required", "anyOf", "allOf", "enum", "type", "items", "$ref"])
@pytest.mark.parametrize("value", [7, "x", None, [7], [[7]], {"a": 7}, True])
def test_a_word_with_a_wrong_value_is_refused_or_let_be(word, value):
    for grammar in GRAMMARS.values():
        for schema in ({word: value}, {"type": "object", "properties": {"a": {word: value}}, "required": ["a"]}):
            with contextlib.suppress(InvalidRequest):
                rewrite(schema, grammar)


@pytest.mark.parametrize("step", ["²", "9" * 5_000, "7"])
def test_a_pointer_to_no_item_of_a_list_leads_nowhere(step):
    assert look_up({"anyOf": [{"type": "string"}]}, "#/anyOf/0") == {"type": "string"}
    assert look_up({"anyOf": [{"type": "string"}]}, f"#/anyOf/{step}") is None


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_definitions_that_stay_are_brought_to_the_current_draft(place: str) -> None:
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    schema = {"type": "object", "properties": {"a": {"$ref": f"#/{place}/pair"}}, place: {"pair": pair}}
    found = rewrite(schema, ANTHROPIC).schema[place]["pair"]
    assert found["prefixItems"] == pair["items"]


@pytest.mark.parametrize(
    "word",
    [
        "properties",
        "patternProperties",
        "dependentSchemas",
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "additionalItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "anyOf",
        "oneOf",
        "allOf",
        "prefixItems",
    ],
)
def test_references_are_expanded_wherever_a_schema_may_stand(word: str) -> None:
    """Bedrock knows no definitions: a reference that is left over is an error there."""
    name = {"$ref": "#/$defs/name"}
    inner: Any = name
    if word in ("properties", "patternProperties", "dependentSchemas"):
        inner = {"a": name}
    elif word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner = [name, {"type": "integer"}]
    schema = {"type": "object", "properties": {"x": {word: inner}}, "$defs": {"name": {"type": "string"}}}
    found = repr(rewrite(schema, BEDROCK).schema["properties"]["x"])
    assert "$ref" not in found and ("string" in found or word == "allOf")


WORDLESS = Grammar("wordless", words=frozenset(("type", "properties")))


@pytest.mark.parametrize(
    "word",
    [
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "example",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "externalDocs",
        "xml",
        "contentMediaType",
        "contentEncoding",
        "propertyOrdering",
        "strict",
        "x-order",
    ],
)
def test_words_that_restrict_no_value_are_left_out_without_a_warning(word: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", word: {}}}}
    assert rewrite(schema, WORDLESS).dropped == ()
    assert rewrite({"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}}, WORDLESS).dropped


@pytest.mark.parametrize(
    ("node", "kinds"),
    [
        ({"required": ["a"]}, ["object"]),
        ({"properties": {}, "pattern": "a"}, ["object"]),
        ({"additionalProperties": False}, ["object"]),
        ({"patternProperties": {}}, ["object"]),
        ({"minProperties": 1}, ["object"]),
        ({"items": {}}, ["array"]),
        ({"prefixItems": []}, ["array"]),
        ({"uniqueItems": True}, ["array"]),
        ({"maxLength": 3}, ["string"]),
        ({"format": "date"}, ["string"]),
        ({"multipleOf": 2}, ["number"]),
        ({"type": "STRING"}, ["string"]),
        ({"type": "NUMBER"}, ["number"]),
        ({"type": "BOOLEAN"}, ["boolean"]),
        ({"type": "ARRAY"}, ["array"]),
        ({"type": "OBJECT"}, ["object"]),
        ({"type": ["INTEGER", "null"]}, ["integer", "null"]),
        ({"enum": [None, True, 1, 0.5, "a", []]}, ["null", "boolean", "integer", "number", "string", "array"]),
        ({"description": "anything"}, []),
    ],
)
def test_a_schema_without_a_type_has_the_one_that_its_words_imply(node: dict[str, Any], kinds: list[str]) -> None:
    assert types_of(node) == kinds
