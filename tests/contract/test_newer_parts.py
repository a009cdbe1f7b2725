"""Content parts and tools of types that are newer than the gateway: their own vendor gets them as the caller wrote
them, and every other vendor's model answers without them, with a warning."""

import json
from typing import Any

import fakes.anthropic
import fakes.cohere
import fakes.google
import fakes.mistral
import fakes.openai
import fakes.responses
import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import FURTHER, VENDORS, Say

Json = dict[str, Any]
ALL = sorted(VENDORS | FURTHER)
PART: Json = {"type": "hologram", "shape": "cube"}
TOOL: Json = {"type": "hologram", "size": 3}
FUNCTION: Json = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
LATER: Json = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object"}, "hologram": {"size": 3}},
    "hologram_of_tool": True,
}
# The surface, its vendors, and the body with one newer part.
ASKED: dict[str, tuple[frozenset[str], Json]] = {
    "chat": (
        frozenset(("openai", "both", "mistral")),
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "See:"}, PART]}]},
    ),
    "gemini": (
        frozenset(("google",)),
        {"contents": [{"role": "user", "parts": [{"text": "See:"}, {"hologram": {"shape": "cube"}}]}]},
    ),
    "cohere": (
        frozenset(("cohere",)),
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "See:"}, PART]}]},
    ),
}


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendors of a later day, which know more types than the published ones."""
    monkeypatch.setattr(fakes.openai, "check_request", lambda environ, headers, payload: json.loads(payload))
    monkeypatch.setattr(fakes.mistral, "check_body", json.loads)
    monkeypatch.setattr(fakes.cohere, "check_body", lambda body: None)
    monkeypatch.setattr(fakes.anthropic, "check_request", lambda environ, headers, payload: json.loads(payload))
    monkeypatch.setattr(fakes.responses, "check_request", lambda environ, headers, payload, sealed: json.loads(payload))
    checked = fakes.google.check_request

    def check(environ: Json, headers: dict[str, str], payload: bytes, signatures: dict[str, str]) -> Any:
        body = json.loads(payload)
        for content in body["contents"]:
            content["parts"] = [part for part in content["parts"] if "hologram" not in part] or [{"text": "Hi"}]
        model, streamed, _ = checked(environ, headers, json.dumps(body).encode(), signatures)
        return model, streamed, json.loads(payload)

    monkeypatch.setattr(fakes.google, "check_request", check)


def ask(stage: ContractGateway, surface: str, vendor: str, body: Json) -> Json:
    """Return the body that the vendor got."""
    stage.script(vendor, Say("Done."))
    status, answered = stage.send(surface, {"model": f"{vendor}-able", **body}, described=surface != "gemini")
    assert status == 200, answered
    (sent,) = stage.calls_of(vendor)
    body_sent: Json = sent.body
    return body_sent


def warns(stage: ContractGateway) -> bool:
    return "hologram" in stage.headers.get("x-llmgateway-warnings", "")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("vendor", ALL)
@pytest.mark.parametrize("surface", ASKED)
def test_a_part_of_a_newer_type_is_for_its_own_vendor(stage: ContractGateway, surface: str, vendor: str) -> None:
    vendors, body = ASKED[surface]
    sent = ask(stage, surface, vendor, body)
    assert ("cube" in json.dumps(sent)) is (vendor in vendors)
    assert warns(stage) is (vendor not in vendors)
    if vendor in vendors:
        member = "contents" if surface == "gemini" else "messages"
        parts = "parts" if surface == "gemini" else "content"
        assert sent[member][0][parts][-1] == body[member][0][parts][-1]


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("vendor", ALL)
def test_a_tool_of_a_newer_type_is_for_its_own_vendor(stage: ContractGateway, vendor: str) -> None:
    sent = ask(stage, "chat", vendor, {"messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL, FUNCTION]})
    mine = vendor in ASKED["chat"][0]
    assert (TOOL in sent.get("tools", [])) is mine
    assert warns(stage) is not mine


@pytest.mark.usefixtures("newer")
def test_a_part_of_a_newer_type_stays_in_a_request_that_is_rebuilt(stage: ContractGateway) -> None:
    body = {"reasoning": {"max_tokens": 1024}, **ASKED["chat"][1]}
    assert ask(stage, "chat", "openai", body)["messages"][0]["content"][1] == PART


@pytest.mark.usefixtures("newer")
def test_a_known_part_cannot_hide_in_an_unknown_one(stage: ContractGateway) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://media.example/a.png"}}
    hidden = {"type": "unknown", "kind": "image_url", "body": image}
    stage.script("openai", Say("Done."))
    body = {"model": "openai-able", "messages": [{"role": "user", "content": [hidden]}]}
    stage.send("chat", body)
    assert not any(image in call.body["messages"][0]["content"] for call in stage.calls_of("openai"))


CHOICE: Json = {"type": "hologram", "size": 3}
CHOOSING: dict[str, tuple[frozenset[str], Json]] = {
    "chat": (frozenset(("openai", "both", "mistral")), {"messages": [{"role": "user", "content": "Hi"}]}),
    "messages": (frozenset(("anthropic",)), {"max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}),
    "responses": (frozenset(("responses", "both")), {"input": "Hi"}),
}
TOOLS: Json = {
    "chat": LATER,
    "messages": {"name": "clock", "input_schema": {"type": "object"}, "hologram": 1},
    "responses": {"type": "function", "name": "clock", "parameters": {"type": "object"}, "hologram": 1},
}


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("vendor", ALL)
@pytest.mark.parametrize("surface", CHOOSING)
def test_a_tool_choice_of_a_newer_type_is_for_its_own_vendor(stage: ContractGateway, surface: str, vendor: str) -> None:
    vendors, body = CHOOSING[surface]
    sent = ask(stage, surface, vendor, {**body, "tools": [TOOLS[surface]], "tool_choice": CHOICE})
    mine = vendor in vendors
    assert (sent.get("tool_choice") == CHOICE) is mine
    assert warns(stage) is not mine
    assert ("hologram" in json.dumps(sent.get("tools") or sent.get("toolConfig"))) is mine


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("kind", ["function", "custom"])
def test_members_of_a_tool_that_are_newer_stay_where_they_are(stage: ContractGateway, kind: str) -> None:
    named = {"name": "clock", "hologram": {"size": 3}} | (
        {"parameters": {"type": "object"}} if kind != "custom" else {}
    )
    tool = {"type": kind, kind: named, "hologram_of_tool": True}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    sent = ask(stage, "chat", "openai", body)["tools"][0]
    sent[kind].get("parameters", {}).pop("properties", None)
    assert sent == tool and not warns(stage)
    stage.script("anthropic", Say("Done."))
    stage.send("chat", {"model": "anthropic-able", **body})
    assert "hologram_of_tool, hologram" in stage.headers["x-llmgateway-warnings"]


@pytest.mark.usefixtures("newer")
def test_a_tool_in_the_shape_of_another_format_is_no_newer_one(stage: ContractGateway) -> None:
    flat = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}, "strict": None}
    nested = {"type": "function", "function": {"name": "watch", "title": None}, "strict": True}
    sent = ask(stage, "chat", "openai", {"messages": [{"role": "user", "content": "Hi"}], "tools": [flat, nested]})
    assert [set(tool) for tool in sent["tools"]] == [{"type", "function"}] * 2
    assert set(sent["tools"][1]["function"]) <= {"name", "parameters"}


@pytest.mark.parametrize("vendor", ALL)
def test_arguments_of_an_earlier_call_may_be_null(stage: ContractGateway, vendor: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "null"}
    items = [{"role": "user", "content": "Hi"}, call, {"type": "function_call_output", "call_id": "c1", "output": "1"}]
    tool = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
    ask(stage, "responses", vendor, {"input": items, "tools": [tool]})
