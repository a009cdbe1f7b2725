"""Tool names that a format refuses are replaced in the call and restored in the answer."""

import re

import pytest

from gateway.neutral.chat import ChatRequest, Conversation, CustomTool, FunctionTool, Requirements, ToolChoice
from gateway.neutral.parts import Message, Text, ToolCall, ToolResult
from gateway.providers import tool_names
from gateway.providers.prepared_requests import prepare
from gateway.providers.tool_names import NameWriter

# As the services word them in their errors.
PATTERNS = {
    "OPENAI": r"[a-zA-Z0-9_-]{1,64}",
    "ANTHROPIC": r"[a-zA-Z0-9_-]{1,128}",
    "BEDROCK": r"[a-zA-Z0-9_-]{1,64}",
    "GOOGLE": r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}",
    "COHERE": r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
}
LONG = "mcp__" + "x" * 90
NAMES = ("plain", LONG, LONG[:-1] + "y", "look.at", "look:at", "look/at", "1st", "größe", "a-b")


def request_of(*names: str) -> ChatRequest:
    calls = tuple(ToolCall(f"c{place}", name, "{}") for place, name in enumerate(names))
    results = tuple(ToolResult(each.id, (Text("x"),), each.name) for each in calls)
    talk = (Message("user", (Text("go"),)), Message("assistant", calls), Message("tool", results))
    tools = (*(FunctionTool(name) for name in names[:-1]), CustomTool(names[-1]))
    conversation = Conversation(talk, tools, ToolChoice("tool", names[1]))
    return ChatRequest("m", Requirements(tools=True), lambda: conversation)


@pytest.mark.parametrize("rule", PATTERNS)
def test_every_name_is_one_that_the_service_takes_and_leads_back_to_the_callers(rule: str) -> None:
    writer: NameWriter = getattr(tool_names, rule)
    prepared = prepare(request_of(*NAMES), "acme", writer, [])
    talk = prepared.request.conversation()
    sent = [tool.name for tool in talk.tools]
    assert all(re.fullmatch(PATTERNS[rule], name) for name in sent) and len(set(sent)) == len(NAMES)
    assert [prepared.renamed.get(name, name) for name in sent] == list(NAMES)
    assert [part.name for part in talk.messages[1].parts] == [part.name for part in talk.messages[2].parts] == sent
    assert talk.tool_choice == ToolChoice("tool", sent[1])
    assert sent[0] == "plain"


def test_valid_names_change_nothing() -> None:
    request = request_of("a", "b", "c")
    prepared = prepare(request, "acme", tool_names.OPENAI, [], free_text=True)
    assert prepared.request is request and prepared.renamed == {}
