"""Bodies in the format of their target, of which only what the target would refuse is changed."""

from typing import Any

import orjson
import pytest
from fakes.anthropic_checks import check_body, sign

from gateway.catalogue.entries import Mapping, Provider
from gateway.neutral.chat import ChatRequest
from gateway.providers.anthropic.messages import AnthropicMessages
from gateway.providers.protocol import Call, Credential, Target
from gateway.surfaces.anthropic import reader, schema

PROTOCOL = AnthropicMessages()
FIELDS: dict[str, Any] = {"reasoning": True, "max_output": 64_000, "web_search": True}
OLD = Mapping("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5", **FIELDS)
NEW = Mapping("anthropic", "claude-opus-5", "claude-opus-5", reasoning_efforts=("low", "medium", "high"), **FIELDS)
# Members that the neutral form lacks.
TOOL = {
    "name": "f",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer", "x-hint": 1}}},
    "eager_input_streaming": True,
    "input_examples": [{"a": 1}],
}
OWN = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}, "tools": [TOOL]}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 9000}
GO: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "go"}]}


def target(mapping: Mapping, *quirks: str, cap: int | None = None) -> Target:
    provider = Provider("anthropic", "Anthropic", "anthropic", auth="x-api-key", quirks=quirks)
    return Target(provider, mapping, Credential("k"), "https://api.anthropic.com/v1", output_cap=cap)


def read(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 100, "messages": list(messages)} | OWN | fields
    raw = orjson.dumps(body)
    return reader.read_messages(schema.decode(raw), raw=raw)


def relayed(request: ChatRequest, to: Target) -> tuple[dict[str, Any], Call]:
    assert request.native is not None
    call = PROTOCOL.relay(request.native, request, to)
    body = orjson.loads(call.body)
    check_body({name: value for name, value in body.items() if name != "context_management"})
    return body, call


def turn(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def use(ident: str = "t1") -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {"a": 1}}


def answer(ident: str = "t1") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": "x"}]}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": sign("hm")}
BLANK: dict[str, Any] = {"type": "text", "text": " "}
UNSIGNED = {"type": "thinking", "thinking": "hm", "signature": ""}
RULE = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([GO, turn(BLANK, use()), answer()], {}),
        ([GO, turn(UNSIGNED, use()), answer()], {}),
        ([GO, turn(use()), answer()], BUDGET),
        ([GO, turn(use()), answer(), RULE], BUDGET),
        ([GO, RULE, turn(THOUGHT, use()), answer()], BUDGET),
        ([RULE, GO], {}),
        ([GO, turn({"type": "text", "text": "yes"}), RULE], {}),
        ([GO, turn(use("functions.f:0")), answer("functions.f:0")], {}),
        ([GO], {"temperature": 0.3, "top_p": 0.9}),
        ([GO], BUDGET),
        ([GO], {"output_config": {"effort": "high"}}),
        ([GO], {"thinking": {"type": "adaptive", "display": "omitted"}, "max_tokens": 9000}),
    ],
)
@pytest.mark.parametrize("mapping", [OLD, NEW])
def test_a_body_that_needs_a_change_keeps_everything_else(messages: list, fields: dict, mapping: Mapping) -> None:
    body, _ = relayed(read(*messages, **fields), target(mapping))
    assert {name: body[name] for name in OWN} == OWN


def test_thinking_is_off_for_a_request_whose_calls_came_from_a_model_without() -> None:
    body, call = relayed(read(GO, turn(use()), answer(), **BUDGET), target(OLD))
    assert body["thinking"] == {"type": "disabled"} and "without the thinking" in call.warnings[0]
    with_thoughts = read(GO, turn(use()), answer(), turn(THOUGHT, use("t2")), answer("t2"), **BUDGET)
    body, call = relayed(with_thoughts, target(OLD))
    assert body["thinking"] == BUDGET["thinking"] and not call.warnings


def test_a_budget_that_the_model_no_longer_takes_becomes_adaptive_thinking() -> None:
    body, _ = relayed(read(GO, **BUDGET), target(NEW))
    assert body["thinking"]["type"] == "adaptive"


def test_instructions_are_where_the_caller_put_them() -> None:
    request = read(GO, RULE, turn({"type": "text", "text": "yes"}), GO, system="First.")
    body, _ = relayed(request, target(NEW))
    assert body["system"] == "First." and [message["role"] for message in body["messages"]][1] == "system"
    body, _ = relayed(request, target(OLD))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"][1]["text"] == "<system-reminder>\nBe brief.\n</system-reminder>"
    body, _ = relayed(read(RULE, GO, system="First."), target(OLD))
    assert [block["text"] for block in body["system"]] == ["First.", "Be brief."]


def test_a_hosts_model_gets_media_in_place_and_loads_no_address() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    request = read({"role": "user", "content": [picture]})
    assert request.native is not None
    body = orjson.loads(PROTOCOL.relay(request.native, request, target(OLD, "vertex_raw_predict")).body)
    assert body["messages"][0]["content"] == [picture] and body["context_management"] == OWN["context_management"]


def test_a_cap_lowers_the_budget_of_a_changed_body() -> None:
    body, _ = relayed(read(GO, turn(BLANK, use()), answer(), **BUDGET), target(OLD, cap=1500))
    assert body["max_tokens"] == 1500
