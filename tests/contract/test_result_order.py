"""A message between a call and its result, and a text in front of a result: every vendor gets the results directly
behind their calls, also where the body is relayed."""

import json
from typing import Any

import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import FURTHER, VENDORS, Say

Json = dict[str, Any]
TOOL: Json = {"name": "look", "description": "Looks."}
EMPTY: Json = {"type": "object", "properties": {}}
ASK: Json = {"role": "user", "content": "Look."}
HURRY: Json = {"role": "user", "content": "Hurry."}
ALL = sorted(VENDORS | FURTHER)


def calling(*idents: str) -> Json:
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": ident, "type": "function", "function": function} for ident in idents]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(ident: str) -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": f"seen by {ident}"}


def using(*idents: str) -> Json:
    calls = [{"type": "tool_use", "id": ident, "name": "look", "input": {}} for ident in idents]
    return {"role": "assistant", "content": calls}


def answering(*blocks: str) -> Json:
    """Return a user message of results, and of texts for words with a blank."""
    content = [
        {"type": "text", "text": word} if " " in word else {"type": "tool_result", "tool_use_id": word, "content": word}
        for word in blocks
    ]
    return {"role": "user", "content": content}


CHATS = {
    "a message between": [ASK, calling("a"), HURRY, result("a")],
    "half of the results": [ASK, calling("a", "b"), result("b"), HURRY, result("a")],
    "two calls apart": [ASK, calling("a"), calling("b"), result("a"), result("b")],
    "a later turn": [ASK, calling("a", "c"), result("a"), calling("b"), result("b"), result("c")],
}
TALKS = {
    "a text in front": [ASK, using("a"), answering("And now?", "a")],
    "a text between": [ASK, using("a", "b"), answering("a", "And now?", "b")],
    "a message between": [ASK, using("a"), HURRY, answering("a")],
    "an answer between": [ASK, using("a"), HURRY, {"role": "assistant", "content": "Yes."}, answering("a")],
    "a later turn": [ASK, using("a", "c"), answering("a"), using("b"), answering("b", "c")],
}


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("vendor", ALL)
def test_results_of_a_chat_come_behind_their_calls(stage: ContractGateway, vendor: str, name: str) -> None:
    stage.script(vendor, Say("Done."))
    tools = [{"type": "function", "function": {**TOOL, "parameters": EMPTY}}]
    status, answered = stage.send("chat", {"model": f"{vendor}-able", "messages": CHATS[name], "tools": tools})
    assert status == 200, answered


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize("vendor", ALL)
def test_results_of_messages_come_behind_their_calls(stage: ContractGateway, vendor: str, name: str) -> None:
    stage.script(vendor, Say("Done."))
    body = {"model": f"{vendor}-able", "max_tokens": 500, "tools": [{**TOOL, "input_schema": EMPTY}]}
    status, answered = stage.send("messages", {**body, "messages": TALKS[name]})
    assert status == 200, answered


def test_a_relayed_body_keeps_its_further_members(stage: ContractGateway) -> None:
    stage.script("anthropic", Say("Done."))
    tool = {**TOOL, "input_schema": EMPTY, "input_examples": [{}]}
    body = {"model": "anthropic-able", "max_tokens": 500, "tools": [tool]}
    status, answered = stage.send("messages", {**body, "messages": TALKS["a text in front"]})
    (sent,) = stage.calls_of("anthropic")
    assert status == 200 and sent.body["tools"] == [tool], answered
    kinds = [block["type"] for block in sent.body["messages"][-1]["content"]]
    assert kinds == ["tool_result", "text"], json.dumps(sent.body)
