"""Large chat requests of each dialect: those of agents, and those with as many parts as the limits allow."""

import json
import random
import string
from collections.abc import Callable
from typing import Any

PARTS = 54_000
CODE = 'def f(a, b):\n    return {"x": [1, 2, 3], "y": (a, b)}\n\n'
WORDS = ["".join(random.Random(place).choices(string.ascii_lowercase, k=3 + place % 7)) for place in range(2000)]
SIZES = random.Random(1)

Body = dict[str, Any]


def text(size: int) -> str:
    return " ".join(SIZES.choices(WORDS, k=size // 7))


def code() -> str:
    return CODE * SIZES.randint(5, 100)


def call(place: int) -> Body:
    return {"path": f"src/package/module_{place}.py", "limit": 200, "offset": place}


def schema() -> Body:
    fields = {f"field_{place}": {"type": "string", "description": text(60)} for place in range(6)}
    return {"type": "object", "properties": fields, "required": ["field_0"]}


def agent_chat(turns: int) -> Body:
    """A conversation of a coding agent in OpenAI's format."""
    messages: list[Body] = [{"role": "system", "content": text(8000)}]
    for turn in range(turns):
        ident = f"call_{turn}"
        function = {"name": "read_file", "arguments": json.dumps(call(turn))}
        calls = [{"id": ident, "type": "function", "function": function}]
        messages += [
            {"role": "user", "content": text(300)},
            {"role": "assistant", "content": text(120), "tool_calls": calls},
            {"role": "tool", "tool_call_id": ident, "content": code()},
        ]
    function = {"name": "read_file", "description": text(600), "parameters": schema()}
    return {"messages": messages, "tools": [{"type": "function", "function": function}]}


def agent_messages(turns: int) -> Body:
    """The same in Anthropic's format."""
    messages: list[Body] = []
    for turn in range(turns):
        ident = f"toolu_{turn}"
        used = {"type": "tool_use", "id": ident, "name": "read_file", "input": call(turn)}
        result = {"type": "tool_result", "tool_use_id": ident, "content": [{"type": "text", "text": code()}]}
        messages += [
            {"role": "user", "content": [{"type": "text", "text": text(300)}]},
            {"role": "assistant", "content": [{"type": "text", "text": text(120)}, used]},
            {"role": "user", "content": [result]},
        ]
    tools = [{"name": "read_file", "description": text(600), "input_schema": schema()}]
    return {"max_tokens": 100, "messages": messages, "tools": tools}


def agent_responses(turns: int) -> Body:
    """The same in the format of OpenAI's Responses."""
    items: list[Body] = []
    for turn in range(turns):
        ident = f"call_{turn}"
        items += [
            {"role": "user", "content": [{"type": "input_text", "text": text(300)}]},
            {"type": "function_call", "call_id": ident, "name": "read_file", "arguments": json.dumps(call(turn))},
            {"type": "function_call_output", "call_id": ident, "output": code()},
        ]
    return {
        "input": items,
        "store": False,
        "tools": [{"type": "function", "name": "read_file", "parameters": schema()}],
    }


def agent_contents(turns: int) -> Body:
    """The same in Google's format."""
    contents: list[Body] = []
    for turn in range(turns):
        result = {"name": "read_file", "response": {"output": code()}}
        contents += [
            {"role": "user", "parts": [{"text": text(300)}]},
            {"role": "model", "parts": [{"functionCall": {"name": "read_file", "args": call(turn)}}]},
            {"role": "user", "parts": [{"functionResponse": result}]},
        ]
    return {"contents": contents}


def user(parts: list[Body]) -> Body:
    return {"messages": [{"role": "user", "content": parts}]}


def letters(name: str, count: int, **more: str) -> list[Body]:
    return [{**more, name: string.ascii_letters[place % 52]} for place in range(count)]


# Path, body without its model, and whether it is a usual one.
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GEMINI = "/v1beta/models/{model}:generateContent"
KINDS: dict[str, tuple[str, Callable[[], Body], bool]] = {
    "chat, agent": (CHAT, lambda: agent_chat(250), True),
    "messages, agent": (MESSAGES, lambda: agent_messages(250), True),
    "responses, agent": (RESPONSES, lambda: agent_responses(250), True),
    "gemini, agent": (GEMINI, lambda: agent_contents(250), True),
    "chat, letters": (CHAT, lambda: user(letters("text", PARTS, type="text")), False),
    "chat, words": (
        CHAT,
        lambda: user([{"type": "text", "text": f"w{place}"} for place in range(PARTS)]),
        False,
    ),
    "chat, messages": (
        CHAT,
        lambda: {"messages": [{"role": "user", "content": f"w{place}"} for place in range(9_000)]},
        False,
    ),
    "chat, one text": (CHAT, lambda: user([{"type": "text", "text": text(4_000_000)}]), False),
    "chat, emoji": (CHAT, lambda: user([{"type": "text", "text": "\U0001f600" + "x" * 2_000_000}]), False),
    "messages, letters": (MESSAGES, lambda: {"max_tokens": 100, **user(letters("text", PARTS, type="text"))}, False),
    "responses, letters": (
        RESPONSES,
        lambda: {"input": [{"role": "user", "content": letters("text", PARTS, type="input_text")}], "store": False},
        False,
    ),
    "responses, items": (
        RESPONSES,
        lambda: {"input": [{"role": "user", "content": f"w{place}"} for place in range(9_000)], "store": False},
        False,
    ),
    "gemini, letters": (GEMINI, lambda: {"contents": [{"role": "user", "parts": letters("text", PARTS)}]}, False),
}
