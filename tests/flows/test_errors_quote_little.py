"""Errors quote only the beginning of a request at every surface, and blame the caller for its nesting."""

import json
from typing import Any

import httpx
import pytest
from support.gateways import LocalGateway

LONG = "A" * 300_000
MAX_BYTES = 8_000  # bytes of an error body
HELLO = [{"role": "user", "content": "Hello"}]
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
CASES: list[tuple[str, str, Any]] = [
    ("POST", CHAT, {"model": LONG, "messages": HELLO}),
    ("POST", CHAT, {"model": f"openai/{LONG}", "messages": HELLO}),
    ("POST", CHAT, {"model": f"dynamic/{LONG}", "messages": HELLO}),
    ("POST", CHAT, {"model": "auto", "messages": [{"role": LONG, "content": "x"}]}),
    ("POST", CHAT, {"model": "auto", "messages": HELLO, "tool_choice": LONG}),
    ("POST", CHAT, {"model": "auto", "messages": HELLO, "tool_choice": {"type": LONG}}),
    ("POST", CHAT, {"model": "auto", "messages": HELLO, "response_format": {"type": LONG}}),
    ("POST", CHAT, {"model": "auto", "messages": HELLO, "reasoning_effort": LONG}),
    ("POST", CHAT, {"model": "auto", "messages": HELLO, "temperature": LONG}),
    ("POST", CHAT, {"model": "auto", "messages": [{"role": "user", "content": [{"type": LONG}]}]}),
    ("POST", CHAT, {"model": "auto", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": LONG}}]}]}),
    ("POST", MESSAGES, {"model": LONG, "max_tokens": 5, "messages": HELLO}),
    ("POST", MESSAGES, {"model": "auto", "max_tokens": 5, "messages": HELLO, "tool_choice": {"type": LONG}}),
    ("POST", MESSAGES, {"model": "auto", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": LONG}]}]}),
    ("POST", RESPONSES, {"model": LONG, "input": "x"}),
    ("POST", RESPONSES, {"model": "auto", "input": "x", "previous_response_id": LONG}),
    ("POST", RESPONSES, {"model": "auto", "input": [{"type": LONG}]}),
    ("POST", RESPONSES, {"model": "auto", "input": [{"type": "item_reference", "id": LONG}]}),
    ("POST", RESPONSES, {"model": "auto", "input": "x", "tools": [{"type": LONG}], "tool_choice": {"type": LONG}}),
    ("POST", "/v1/route/explain", {"model": LONG, "messages": HELLO}),
    ("POST", "/auth/sign-in/email", {"email": LONG, "password": "x"}),
    ("POST", "/auth/sign-in/email", {LONG: 1}),
    ("POST", "/auth/invitation", {"token": LONG}),
    ("POST", "/auth/device/token", {"client_id": LONG, "device_code": LONG, "grant_type": LONG}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_an_error_about_a_long_value_is_short(gateway: LocalGateway, number: int) -> None:
    method, path, body = CASES[number]
    headers = {"Authorization": f"Bearer {gateway.key}", "x-request-id": "mine"}
    with httpx.Client(timeout=30, headers=headers) as http:
        answer = http.request(method, gateway.address + path, json=body)
    assert len(answer.content) < MAX_BYTES and "A" * 3_000 not in answer.text, answer.text[:500]
    assert answer.status_code < 500 or answer.json()["error"]["code"] != "internal_error"


@pytest.mark.parametrize("model", ["sandbox", "openai/gpt-5-nano"])
@pytest.mark.parametrize("depth", [260, 900])
def test_a_body_that_is_nested_too_deep_is_the_callers_mistake(gateway: LocalGateway, model: str, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    text = {"model": model, "messages": HELLO, "input": "x", "max_tokens": 5}
    tools = [{"type": "function", "function": {"name": "f", "parameters": "DEEP"}}]
    named = [{"type": "function", "name": "f", "parameters": "DEEP", "input_schema": "DEEP"}]
    codes = {}
    with httpx.Client(timeout=30, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        for path, body in (
            (CHAT, text | {"tools": tools}),
            (CHAT, text | {"tools": tools, "stream": True}),
            (MESSAGES, text | {"tools": named}),
            (f"{MESSAGES}/count_tokens", text | {"tools": named}),
            (RESPONSES, text | {"tools": named}),
            (RESPONSES, text | {"metadata": {"a": "DEEP"}}),
        ):
            content = json.dumps(body).replace('"DEEP"', deep)
            answer = http.post(gateway.address + path, content=content, headers={"content-type": "application/json"})
            code = "" if answer.status_code == 200 else answer.json()["error"]["code"]
            codes[path, answer.status_code, code] = answer.text[:200]
    assert all(status < 500 for _, status, _ in codes), codes
    assert any(code == "request_too_complex" for _, _, code in codes), codes
