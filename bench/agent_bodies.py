"""The requests of a coding agent with a long conversation, in each dialect: 20 tools, 20 turns with a call each."""

import json
import random
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]

TURNS, TOOLS, RESULT = 20, 20, 7_200  # of a body with some 200 KB; RESULT is the length of a tool's result
SMALL = "Say hello."
WORDS = [
    "the",
    "file",
    "reads",
    "each",
    "value",
    "once",
    "and",
    "gives",
    "it",
    "to",
    "a",
    "caller",
    "that",
    "waits",
    "for",
    "its",
    "result",
    "until",
    "it",
    "is",
    "there",
]
CODE = 'def read(path: str) -> dict[str, int]:\n    """Read it."""\n    return {"x": 1, "y": len(path)}  # größer\n\n'
CHANCE = random.Random(1)


def text(length: int) -> str:
    return " ".join(CHANCE.choices(WORDS, k=length // 5))


def schema() -> Body:
    fields = {f"field_{place}": {"type": "string", "description": text(90)} for place in range(8)}
    return {"type": "object", "properties": fields, "required": ["field_0"], "additionalProperties": False}


# Name, description and schema of each tool; text, arguments, result and next question of each turn.
SYSTEM = text(8_000)
DEFINITIONS = [(f"tool_{place}", text(500), schema()) for place in range(TOOLS)]
STEPS = [
    (text(150), {"path": f"src/module_{place}.py", "limit": 200}, (CODE * RESULT)[:RESULT], text(300))
    for place in range(TURNS)
]


def chat() -> Body:
    """Chat completions of OpenAI."""
    messages: list[Body] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text(300)}]
    for place, (said, arguments, result, question) in enumerate(STEPS):
        function = {"name": "tool_1", "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{place}", "type": "function", "function": function}]
        messages += [
            {"role": "assistant", "content": said, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"call_{place}", "content": result},
            {"role": "user", "content": question},
        ]
    tools = [
        {"type": "function", "function": {"name": name, "description": about, "parameters": form}}
        for name, about, form in DEFINITIONS
    ]
    return {"max_tokens": 200, "messages": messages, "tools": tools}


def messages() -> Body:
    """Messages of Anthropic, with the marks of a cache that agents set."""
    turns: list[Body] = [{"role": "user", "content": [{"type": "text", "text": text(300)}]}]
    for place, (said, arguments, result, question) in enumerate(STEPS):
        call = {"type": "tool_use", "id": f"toolu_{place}", "name": "tool_1", "input": arguments}
        content = [{"type": "text", "text": result}]
        turns += [
            {"role": "assistant", "content": [{"type": "text", "text": said}, call]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"toolu_{place}", "content": content},
                    {"type": "text", "text": question},
                ],
            },
        ]
    turns[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": name, "description": about, "input_schema": form} for name, about, form in DEFINITIONS]
    system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    return {"max_tokens": 200, "system": system, "messages": turns, "tools": tools}


def responses() -> Body:
    """Responses of OpenAI."""
    items: list[Body] = [{"role": "user", "content": [{"type": "input_text", "text": text(300)}]}]
    for place, (said, arguments, result, question) in enumerate(STEPS):
        ident = f"call_{place}"
        items += [
            {"role": "assistant", "content": [{"type": "output_text", "text": said}]},
            {"type": "function_call", "call_id": ident, "name": "tool_1", "arguments": json.dumps(arguments)},
            {"type": "function_call_output", "call_id": ident, "output": result},
            {"role": "user", "content": [{"type": "input_text", "text": question}]},
        ]
    tools = [
        {"type": "function", "name": name, "description": about, "parameters": form}
        for name, about, form in DEFINITIONS
    ]
    return {"max_output_tokens": 200, "store": False, "instructions": SYSTEM, "input": items, "tools": tools}


def contents() -> Body:
    """Contents of Gemini."""
    turns: list[Body] = [{"role": "user", "parts": [{"text": text(300)}]}]
    for said, arguments, result, question in STEPS:
        turns += [
            {"role": "model", "parts": [{"text": said}, {"functionCall": {"name": "tool_1", "args": arguments}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "tool_1", "response": {"output": result}}}, {"text": question}],
            },
        ]
    declared = [{"name": name, "description": about, "parametersJsonSchema": form} for name, about, form in DEFINITIONS]
    return {
        "systemInstruction": {"parts": [{"text": SYSTEM}]},
        "contents": turns,
        "tools": [{"functionDeclarations": declared}],
        "generationConfig": {"maxOutputTokens": 200},
    }


# Dialect → path, body of an agent, small body.
DIALECTS: dict[str, tuple[str, Callable[[], Body], Body]] = {
    "chat": ("/v1/chat/completions", chat, {"max_tokens": 200, "messages": [{"role": "user", "content": SMALL}]}),
    "messages": ("/v1/messages", messages, {"max_tokens": 200, "messages": [{"role": "user", "content": SMALL}]}),
    "responses": ("/v1/responses", responses, {"max_output_tokens": 200, "store": False, "input": SMALL}),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        contents,
        {"contents": [{"role": "user", "parts": [{"text": SMALL}]}]},
    ),
}
