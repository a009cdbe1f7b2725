"""Every text of a request that a model reads counts in its bound, wherever a dialect has a place for it."""

from typing import Any

import orjson
import pytest

from gateway.surfaces.aisdk.prompt import Prompt
from gateway.surfaces.aisdk.schema import decode as decode_call
from gateway.surfaces.anthropic import reader as messages
from gateway.surfaces.anthropic import schema as messages_schema
from gateway.surfaces.openai import chat_reader
from gateway.surfaces.openai.chat_schema import decode as decode_chat
from gateway.surfaces.responses import reader as responses
from gateway.surfaces.responses import schema as responses_schema

LONG = "text " * 10_000
NAME = "n" * 256
USER = {"role": "user", "content": "Hello"}
CALL = {"id": "1", "type": "function", "function": {"name": LONG, "arguments": LONG}}
SCHEMA = {"type": "object", "description": LONG}


def chat(**changes: Any) -> int:
    raw = orjson.dumps({"model": "m", "messages": [USER], **changes})
    return chat_reader.read_chat(decode_chat(raw), raw).requirements.prompt_bytes


@pytest.mark.parametrize(
    "act",
    [
        {"reasoning": LONG},
        {"reasoning_content": LONG},
        {"reasoning_details": [{"type": "reasoning.text", "text": LONG}]},
        {"refusal": LONG},
        {"tool_calls": [CALL]},
        {"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "a", "input": "é" * 25_000}}]},
    ],
    ids=["reasoning", "reasoning content", "reasoning details", "refusal", "call", "custom call"],
)
def test_all_that_an_assistant_did_before_counts_in_chat(act: dict[str, Any]) -> None:
    """Nothing was reserved for a megabyte of earlier reasoning."""
    assert chat(messages=[USER, {"role": "assistant", "content": "Hi", **act}, USER]) >= 50_000


@pytest.mark.parametrize(
    "field",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"tools": [{"type": "custom", "custom": {"name": "a", "description": LONG}}]},
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": SCHEMA}}]},
    ],
    ids=["response format", "custom tool", "function"],
)
def test_schemas_and_tools_count_in_chat(field: dict[str, Any]) -> None:
    assert chat(**field) >= 50_000


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_names_of_messages_count_in_chat(role: str) -> None:
    assert chat(messages=[{"role": role, "content": "a", "name": NAME}, USER]) >= len(NAME)


def test_reasoning_under_both_names_counts_once_in_chat() -> None:
    turn = {"role": "assistant", "content": "a", "reasoning": LONG}
    once = chat(messages=[turn, USER])
    assert chat(messages=[turn | {"reasoning_content": LONG}, USER]) == once >= 50_000


def anthropic(*blocks: dict[str, Any], **changes: Any) -> int:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": list(blocks) or "a"}], **changes}
    raw = orjson.dumps(body)
    prompt = messages.PromptSummary()
    read = messages_schema.decode(raw)
    prompt.add_prompt(read)
    return messages._needs(read, prompt, False).prompt_bytes


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "context": LONG, "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "title": LONG, "source": {"type": "text", "media_type": "text/plain", "data": "a"}},
        {"type": "search_result", "source": "a", "title": LONG, "content": [{"type": "text", "text": "a"}]},
        {"type": "tool_use", "id": "1", "name": LONG, "input": {}},
    ],
    ids=["context", "title", "search result", "name of a tool"],
)
def test_all_texts_of_blocks_count_in_messages(block: dict[str, Any]) -> None:
    assert anthropic(block) >= 50_000


def test_the_schema_of_an_answer_counts_in_messages() -> None:
    shape = {"type": "json_schema", "schema": SCHEMA}
    assert anthropic(output_config={"format": shape}) >= 50_000
    assert anthropic(output_format=shape) >= 50_000


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "1", "name": LONG, "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "1", "name": LONG, "input": "a"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": LONG}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": LONG}]},
    ],
    ids=["call", "custom call", "summary", "reasoning"],
)
def test_all_texts_of_items_count_in_responses(item: dict[str, Any]) -> None:
    assert answered(input=[item, {"role": "user", "content": "a"}]) >= 50_000


def test_the_schema_of_an_answer_counts_in_responses() -> None:
    assert answered(text={"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}) >= 50_000


def answered(**changes: Any) -> int:
    body = {"model": "m", "input": [{"role": "user", "content": "a"}], **changes}
    read = responses_schema.decode(orjson.dumps(body))
    return responses.read_response(read, [], body["input"]).request.requirements.prompt_bytes


def test_names_of_tools_count_in_the_ai_sdk() -> None:
    call = {"type": "tool-call", "toolCallId": "1", "toolName": LONG, "input": {}}
    prompt = decode_call(orjson.dumps({"prompt": [{"role": "assistant", "content": [call]}]})).prompt
    assert Prompt(prompt).text >= 50_000
