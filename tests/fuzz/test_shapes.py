"""Values and schemas of every shape: nothing raises what it should not, and the steps taken stay in proportion."""

import contextlib
import json

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.configuration import settings as settings_module
from gateway.engine import stored_responses
from gateway.errors import InvalidRequest
from gateway.neutral import json_extraction
from gateway.neutral.chat import ResponseFormat
from gateway.neutral.json_extraction import heal
from gateway.providers import json_schema_subset
from gateway.providers.grammars import GRAMMARS
from gateway.providers.sandbox import instances
from gateway.surfaces.anthropic import schema as messages_schema
from gateway.surfaces.openai import chat

LIMITS = settings_module.load({"GATEWAY_ENV": "test"}).limits
NAMES = st.sampled_from(["a", "b", "p0", "p1", "", "$ref", "type"])
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1e300, "", "a", "é", "x" * 50])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)
KINDS = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null", "other"])
REFS = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/nowhere", "http://x/", "#/$defs/a/allOf/0"])
PATTERNS = st.sampled_from(["^a+$", "(a|b){2,5}", "[^\\w]", "(?=x)", "{" * 40, "a{9999}", "((((a))))*", "\\u12"])


def schemas_of(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Schemas around schemas, and now and then a word with a value of the wrong kind."""
    several = st.lists(inner, max_size=4)
    named = st.dictionaries(NAMES, inner, max_size=4)
    keywords = {
        "type": KINDS | st.lists(KINDS, max_size=4),
        "enum": st.lists(VALUES, max_size=4),
        "const": VALUES,
        "$ref": REFS,
        "pattern": PATTERNS,
        "required": st.lists(NAMES, max_size=6),
        "minItems": st.integers(0, 2000),
        "maxItems": st.integers(0, 3),
        "minLength": st.integers(0, 200_000),
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.integers(0, 3),
        "nullable": st.booleans(),
        "uniqueItems": st.booleans(),
        "items": inner | several,
        "additionalProperties": inner | st.booleans(),
        "properties": named,
        "patternProperties": named,
        "$defs": named,
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(("not", "if", "then", "contains"), inner),
    }
    right = st.fixed_dictionaries({}, optional=keywords)
    wrong = st.dictionaries(st.sampled_from(sorted(keywords)), VALUES, max_size=2)
    return right | right | right | wrong


SCHEMAS = st.recursive(st.just({}) | st.booleans(), schemas_of, max_leaves=12)


def size_of(value: object) -> int:
    return len(json.dumps(value))


@given(VALUES, SCHEMAS)
def test_conformity_says_yes_or_no_within_its_steps(value: object, schema: object) -> None:
    assert json_extraction.conforms(value, schema) in (True, False)
    check = json_extraction._Check(schema)
    with contextlib.suppress(
        json_extraction.Undecided, RecursionError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError
    ):
        check.fits(value, schema, ())
    assert check.steps <= json_extraction.MAX_STEPS + size_of(value) + size_of(schema)


@given(SCHEMAS, st.sampled_from(sorted(GRAMMARS)))
def test_a_schema_is_rewritten_or_refused_within_its_steps(schema: object, name: str) -> None:
    before = json.dumps(schema)
    with contextlib.suppress(InvalidRequest):
        written = json_schema_subset.rewrite(schema, GRAMMARS[name])
        orjson.dumps(written.schema)
    assert json.dumps(schema) == before
    work = json_schema_subset._Rewriter(schema if isinstance(schema, dict) else {}, GRAMMARS[name])
    with contextlib.suppress(TypeError, ValueError, AttributeError, LookupError, RecursionError):
        work.write_root()
    assert work.steps <= json_schema_subset.STEP_LIMIT + 100 * size_of(schema)


@given(SCHEMAS)
def test_the_sandbox_makes_a_value_or_refuses_within_its_work(schema: object) -> None:
    generator = instances.InstanceGenerator(schema)
    with contextlib.suppress(
        InvalidRequest, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError
    ):
        generator.make(schema, "value", 0, 0)
    assert generator.work <= instances.MAX_WORK + instances.MAX_CHARACTERS + instances.KEYWORD_WORK * size_of(schema)
    with contextlib.suppress(InvalidRequest):
        orjson.dumps(instances.write_instance(schema))


ALMOST = st.lists(
    st.sampled_from(["{", "}", "[", "]", ",", ":", '"', "'", "a", "1", " ", "\n", "```", "```json", "//", "/*", "*/"])
    | st.sampled_from(["\\", "\\u", "true", "NaN", "-", ".", "e", "#", "\ufeff", "“", "”"]),
    max_size=60,
).map("".join)


@given(ALMOST, st.sampled_from(["json_object", "json_schema"]))
def test_repaired_text_is_valid_json(text: str, kind: str) -> None:
    healed = heal(text, ResponseFormat(kind, schema={} if kind == "json_schema" else None))
    if healed is not None:
        json.loads(healed.text)


@given(VALUES, VALUES, VALUES)
def test_a_body_of_any_shape_is_read_or_refused(messages: object, tools: object, fields: object) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": messages, "tools": tools, "response_format": fields}
    raw = orjson.dumps(body)
    with contextlib.suppress(InvalidRequest):
        chat.read_body(LIMITS, raw)[1].conversation()
    with contextlib.suppress(InvalidRequest):
        messages_schema.decode(raw)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        chat.read_body(LIMITS, raw)


@given(VALUES)
def test_documents_stored_in_pieces_are_restored(value: object) -> None:
    segments, parts = stored_responses.split(value, lambda data: str(hash(data)).encode())
    stored = stored_responses.unpack_segments(stored_responses.pack_segments(segments))
    assert orjson.loads(stored_responses.join(stored, parts)) == orjson.loads(orjson.dumps(value))
