"""The contract's cases as chat completions."""

from typing import Any

from contract.cases import (
    ANSWER,
    CALLS,
    HELLO,
    IMAGE_URL,
    JSON,
    PDF,
    PLACE,
    PNG,
    SEARCHED,
    THOUGHT,
    THREE,
    WAV,
    Case,
    Json,
)  # fmt: skip
from contract.vendors import Say


def said(content: Any, role: str = "user") -> Json:
    return {"role": role, "content": content}


def tool(name: str, **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, "description": "Tells it.", "parameters": PLACE}, **more}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def request(content: Any = "Hello", **more: Any) -> Json:
    return {"messages": [said(content)], **more}


TOOLS = {"tools": [tool("weather"), tool("clock")]}
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
BY_URL = {"type": "image_url", "image_url": {"url": IMAGE_URL}}
SOUND = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
PAPER = {"type": "file", "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
PDF_IMAGE = {"type": "image_url", "image_url": {"url": f"data:application/pdf;base64,{PDF}"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": ANSWER, "strict": True}}
HOUR, MINUTES = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
MARKED = [
    said([text("Be brief.", cache_control=HOUR)], "system"),
    said([text("A long text.", cache_control=MINUTES), text("Sum it up.")]),
]
ROLES = [
    said("Be brief.", "system"),
    said("Speak Norwegian.", "developer"),
    said("Hello", "user"),
    said("Now be loud.", "system"),
    said("Again", "user"),
]
ODD = [
    said("I spoke first.", "assistant"),
    said("One.", "user"),
    said("Two.", "user"),
    said("", "assistant"),
    said("Three.", "user"),
]
PAST = [
    said("Weather?"),
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"id": "call_b", "type": "function", "function": {"name": "clock", "arguments": '{"city":"Rome"}'}},
    ]},
    {"role": "tool", "tool_call_id": "call_b", "content": "Noon."},
    {"role": "tool", "tool_call_id": "call_a", "content": [text("Rain."), text("Wind.")]},
    said("And then?"),
]  # fmt: skip
SEARCH = {
    "type": "web_search",
    "user_location": {"city": "Oslo", "country": "NO"},
    "search_context_size": "low",
    "max_uses": 2,
    "allowed_domains": ["news.example"],
}
UNKNOWN = {"frobnicate": {"a": 1}, "seed": 7, "logit_bias": {"1": 2}, "stop": ["END"], "logprobs": True, "store": True}
HOT = {"temperature": 2, "top_p": 0.9, "frequency_penalty": 1, "presence_penalty": -1}

CASES: dict[str, Case] = {
    "text": Case(request(), (HELLO, Say("Still here."))),
    "cached prompt": Case(request(), (Say("Good day.", cached=9),)),
    "system and developer": Case({"messages": ROLES}),
    "odd role order": Case({"messages": ODD}),
    "tool loop": Case(request(**TOOLS), (CALLS, HELLO)),
    "past calls": Case({"messages": PAST, **TOOLS}),
    "parallel calls": Case(request(**TOOLS), (THREE, HELLO)),
    "text and calls": Case(request(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO)),
    "one call at a time": Case(request(**TOOLS, parallel_tool_calls=False), (CALLS,)),
    "must call": Case(request(**TOOLS, tool_choice="required"), (CALLS,)),
    "must call one": Case(request(**TOOLS, tool_choice={"type": "function", "function": {"name": "clock"}}), (CALLS,)),
    "must not call": Case(request(**TOOLS, tool_choice="none")),
    "image from a tool": Case(request(**TOOLS), (CALLS, HELLO), [text("See:"), PICTURE]),
    "image alone from a tool": Case(request(**TOOLS), (CALLS, HELLO), [PICTURE]),
    "custom tool": Case(request(tools=[{"type": "custom", "custom": {"name": "patch", "description": "Patches."}}])),
    "deferred tools": Case(request(tools=[tool("weather", defer_loading=True), {"type": "tool_search"}])),
    "image by URL": Case(request([text("What is it?"), BY_URL])),
    "image as bytes": Case(request([text("What is it?"), PICTURE])),
    "image for the system": Case({"messages": [said([text("Like this:"), PICTURE], "system"), said("Hello")]}),
    "PDF": Case(request([text("Sum it up."), PAPER])),
    "PDF alone": Case(request([PAPER])),
    "PDF as an image": Case(request([text("Sum it up."), PDF_IMAGE])),
    "instructions alone": Case({"messages": [said("Greet me.", "system")]}),
    "sound": Case(request([text("What is it?"), SOUND])),
    "file by id": Case(request([text("Sum it up."), {"type": "file", "file": {"file_id": "file-1"}}])),
    "reasoning in a tool loop": Case(request(**TOOLS, reasoning_effort="high"), (THOUGHT, HELLO)),
    "reasoning then text": Case(request(reasoning_effort="low"), (Say("Aha.", thinking="Hm."), HELLO)),
    "reasoning budget": Case(request(reasoning={"max_tokens": 4096}), (Say("Aha.", thinking="Hm."),)),
    "no reasoning": Case(request(reasoning_effort="none")),
    "schema": Case(request(response_format=SCHEMA), (JSON,)),
    "JSON object": Case(request("Answer in JSON.", response_format={"type": "json_object"}), (JSON,)),
    "schema and tools": Case(request(**TOOLS, response_format=SCHEMA), (CALLS, JSON)),
    "cache marks": Case({"messages": MARKED, "tools": [tool("weather", cache_control=HOUR)]}),
    "names": Case(
        {"messages": [{**said("Hello"), "name": "ann"}, {**said("Hi", "assistant"), "name": "bo"}, said("x")]}
    ),
    "empty result": Case(request(**TOOLS), (CALLS, HELLO), ""),
    "call without result": Case({"messages": [*PAST[:3], said("Never mind.")], **TOOLS}, faulty=True),
    "result without call": Case({"messages": [said("Hello"), PAST[2]], **TOOLS}, faulty=True),
    "history of tools without tools": Case({"messages": PAST}),
    "pro mode": Case(request(reasoning={"effort": "high", "mode": "pro"})),
    "output effort": Case(request(effort="low")),
    "refusal": Case(request(), (Say(refusal="I cannot help with that."), HELLO)),
    "length": Case(request(max_tokens=16), (Say("Cut sh", finish="length"),)),
    "filtered": Case(request(), (Say("Half an ans", finish="filter"),)),
    "search": Case(request(tools=[SEARCH]), (SEARCHED, HELLO)),
    "search and tools": Case(request(tools=[tool("weather"), {"type": "web_search"}]), (SEARCHED,)),
    "two choices": Case(request(n=2), (Say("Heads.", n=2),), streams=False),
    "unknown fields": Case(request(**UNKNOWN)),
    "hot": Case(request(**HOT)),
    "verbosity and user": Case(request(verbosity="low", user="u-1")),
    **{f"status {code}": Case(request(), (Say(broken=code),) * 4, streams=False) for code in (400, 401, 429, 500, 503)},
}
