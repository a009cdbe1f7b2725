from dataclasses import replace

import gevent
import orjson
import pytest

from gateway.configuration import settings as settings_module
from gateway.errors import InvalidRequest
from gateway.surfaces.openai import chat, moderations
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.caps import is_deeper

LIMITS = settings_module.load({"GATEWAY_ENV": "test"}).limits


def body(**more: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **more})


def tool(name: str, schema: dict) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOO_MUCH = {
    "max_messages": body(messages=[{"role": "user", "content": "hi"}] * 20_001),
    "max_tools": body(tools=[tool(f"t{n}", {}) for n in range(2049)]),
    "max_schema_nodes": body(tools=[tool("t", {"anyOf": [{}] * 50_001})]),
    "max_enum": body(tools=[tool("t", {"properties": {"a": {"enum": list(range(10_001))}}})]),
    "max_json_nodes": body(metadata=[0] * 500_001),
    "max_json_containers": body(metadata=[{"a": 1}] * 100_000),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_request_with_too_many_parts_names_the_exceeded_limit(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"limits.{name}") as caught:
        chat.read_body(LIMITS, TOO_MUCH[name])
    assert (caught.value.status, caught.value.code) == (400, "request_too_complex")


def test_the_cap_of_an_answers_schema_is_that_of_tools() -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": list(range(10_001))}}}
    with pytest.raises(InvalidRequest, match=r"limits\.max_enum"):
        chat.read_body(LIMITS, body(response_format=response_format))


@pytest.mark.parametrize("name", TOO_MUCH)
def test_zero_is_no_cap(name: str) -> None:
    try:
        chat.read_body(replace(LIMITS, **{name: 0}), TOO_MUCH[name])
    except InvalidRequest as error:
        assert error.code != "request_too_complex"


def test_a_small_cap_holds_for_small_bodies_too() -> None:
    with pytest.raises(InvalidRequest, match="max_messages"):
        chat.read_body(replace(LIMITS, max_messages=1), body(messages=[{"role": "user", "content": "hi"}] * 2))
    with pytest.raises(InvalidRequest, match="max_enum"):
        chat.read_body(replace(LIMITS, max_enum=2), body(tools=[tool("t", {"enum": [1, 2, 3]})]))


def test_requests_of_real_clients_pass() -> None:
    """A long day of a coding agent: 4,000 messages, 500 tools with thirty fields each, texts full of code."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "enum": ["a", "b"]} for n in range(30)}}
    code = "if (a[0], {b: [1, 2]}) { c(); }\n" * 40
    messages = [{"role": "user", "content": code}] * 4_000
    _, request = chat.read_body(LIMITS, body(messages=messages, tools=[tool(f"t{n}", schema) for n in range(500)]))
    assert request.requirements.messages == 4_000 and request.large


def test_the_longest_batch_of_embeddings_passes() -> None:
    """2,048 texts as 300,000 token numbers, the most that the largest vendor accepts in one request."""
    inputs = [[7] * 146] * 2_048
    raw = orjson.dumps({"model": "m", "input": inputs})
    assert sum(map(len, inputs)) > 299_000 and caps_module.read(LIMITS, raw, orjson.loads, raw)["input"] == inputs


@pytest.mark.parametrize("raw", [b'"' * 300_001, b'"' + b"\\" * 300_001, b'{"a":"' + b"\\x" * 200_000, b"[" * 300_000])
def test_a_body_that_is_no_json_is_counted_in_one_pass(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        chat.read_body(replace(LIMITS, max_json_nodes=1000), raw)


def test_other_callers_have_their_turn_while_a_large_body_is_read() -> None:
    turns = []

    def neighbour() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0)

    other = gevent.spawn(neighbour)
    gevent.sleep(0)
    before = len(turns)
    _, request = chat.read_body(LIMITS, body(messages=[{"role": "user", "content": "hi"}] * 20_000))
    request.conversation()
    other.kill()
    assert len(turns) > before + 20


def test_inputs_to_judge_have_a_cap() -> None:
    """400,000 inputs kept one worker busy for half a minute, and blocked all other requests for 17 s of it."""
    wanted = moderations.DECODER.decode(orjson.dumps({"input": ["a"] * (LIMITS.max_inputs + 1)}))
    with pytest.raises(InvalidRequest, match=r"limits\.max_inputs"):
        moderations.read_moderation(LIMITS, wanted)
    assert moderations.read_moderation(replace(LIMITS, max_inputs=0), wanted)[0]["input"]


@pytest.mark.parametrize("mark", ["[]", "{}"])
def test_the_depth_of_a_text_is_that_of_its_objects_and_lists(mark: str) -> None:
    deep = (('{"a":' if mark == "{}" else "[") * 9 + "[]" + mark[1] * 9).encode()
    assert is_deeper(deep, 8) and not is_deeper(deep, 9)
    assert not is_deeper(b'["' + mark.encode() * 50 + b'", [], {"a": []}]', 2)
