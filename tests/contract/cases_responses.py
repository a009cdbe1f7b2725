"""The contract's cases as responses."""

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
    return {"type": "function", "name": name, "description": "Tells it.", "parameters": PLACE, "strict": False, **more}


def text(words: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": words}


def ask(content: Any = "Hello", **more: Any) -> Json:
    told = content if isinstance(content, str) else [said(content)]
    return {"input": told, "store": False, "include": ["reasoning.encrypted_content"], **more}


def talk(items: list[Json], **more: Any) -> Json:
    return {"input": items, "store": False, **more}


TOOLS = {"tools": [tool("weather"), tool("clock")]}
PICTURE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
BY_URL = {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}
PAPER = {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
PAPER_URL = {"type": "input_file", "file_url": "https://papers.example/a.pdf"}
SOUND = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
SCHEMA = {"text": {"format": {"type": "json_schema", "name": "city", "schema": ANSWER, "strict": True}}}
ROLES = [
    said("Be brief.", "system"),
    said("Speak Norwegian.", "developer"),
    said("Hello"),
    said("Now be loud.", "system"),
]
ODD = [
    said([text("I spoke first.", "output_text")], "assistant"),
    said("One."),
    said("Two."),
    said([text("Yes.", "output_text")], "assistant"),
    said("Three."),
]
PAST = [
    said("Weather?"),
    {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": "{}"},
    {"type": "function_call", "call_id": "call_b", "name": "clock", "arguments": '{"city":"Rome"}'},
    {"type": "function_call_output", "call_id": "call_b", "output": "Noon."},
    {"type": "function_call_output", "call_id": "call_a", "output": [text("Rain."), text("Wind.")]},
    said("And then?"),
]
NAMESPACE = {
    "type": "namespace",
    "name": "mcp__files",
    "description": "Files.",
    "tools": [{name: value for name, value in tool("read").items()}],
}
SEARCH = {
    "type": "web_search",
    "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"},
    "search_context_size": "low",
    "filters": {"allowed_domains": ["news.example"]},
}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
UNKNOWN = {"frobnicate": {"a": 1}, "seed": 7, "stop": ["END"], "n": 3}

CASES: dict[str, Case] = {
    "text": Case(ask(), (HELLO, Say("Still here."))),
    "cached prompt": Case(ask(), (Say("Good day.", cached=9),)),
    "instructions": Case(ask(instructions="Be brief.")),
    "system and developer": Case(talk(ROLES)),
    "odd role order": Case(talk(ODD)),
    "tool loop": Case(ask(**TOOLS), (CALLS, HELLO)),
    "past calls": Case(talk(PAST, **TOOLS)),
    "parallel calls": Case(ask(**TOOLS), (THREE, HELLO)),
    "text and calls": Case(ask(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO)),
    "one call at a time": Case(ask(**TOOLS, parallel_tool_calls=False), (CALLS,)),
    "must call": Case(ask(**TOOLS, tool_choice="required"), (CALLS,)),
    "must call one": Case(ask(**TOOLS, tool_choice={"type": "function", "name": "clock"}), (CALLS,)),
    "must not call": Case(ask(**TOOLS, tool_choice="none")),
    "image from a tool": Case(ask(**TOOLS), (CALLS, HELLO), [text("See:"), PICTURE]),
    "image alone from a tool": Case(ask(**TOOLS), (CALLS, HELLO), [PICTURE]),
    "PDF from a tool": Case(ask(**TOOLS), (CALLS, HELLO), [text("See:"), PAPER]),
    "custom tool": Case(ask(tools=[{"type": "custom", "name": "patch", "format": GRAMMAR}])),
    "tools of a namespace": Case(ask(tools=[NAMESPACE])),
    "a maker's own tool": Case(ask(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])),
    "image by URL": Case(ask([text("What is it?"), BY_URL])),
    "image as bytes": Case(ask([text("What is it?"), PICTURE])),
    "PDF": Case(ask([text("Sum it up."), PAPER])),
    "PDF by URL": Case(ask([text("Sum it up."), PAPER_URL])),
    "sound": Case(ask([text("What is it?"), SOUND])),
    "file by id": Case(ask([text("Sum it up."), {"type": "input_file", "file_id": "file-1"}])),
    "reasoning in a tool loop": Case(ask(**TOOLS, reasoning={"effort": "high", "summary": "auto"}), (THOUGHT, HELLO)),
    "reasoning then text": Case(ask(reasoning={"effort": "low"}), (Say("Aha.", thinking="Hm."), HELLO)),
    "no reasoning": Case(ask(reasoning={"effort": "none"})),
    "schema": Case(ask(**SCHEMA), (JSON,)),
    "JSON object": Case(ask("Answer in JSON.", text={"format": {"type": "json_object"}}), (JSON,)),
    "schema and tools": Case(ask(**TOOLS, **SCHEMA), (CALLS, JSON)),
    "empty result": Case(ask(**TOOLS), (CALLS, HELLO), ""),
    "call without result": Case(talk([*PAST[:4], said("Never mind.")], **TOOLS), faulty=True),
    "result without call": Case(talk([said("Hello"), PAST[3]], **TOOLS), faulty=True),
    "history of tools without tools": Case(talk(PAST)),
    "pro mode": Case(ask(reasoning={"effort": "high", "mode": "pro"})),
    "refusal": Case(ask(), (Say(refusal="I cannot help with that."), HELLO)),
    "length": Case(ask(max_output_tokens=16), (Say("Cut sh", finish="length"),)),
    "filtered": Case(ask(), (Say("Half an ans", finish="filter"),)),
    "search": Case(ask(tools=[SEARCH]), (SEARCHED, HELLO)),
    "search and tools": Case(ask(tools=[tool("weather"), {"type": "web_search"}]), (SEARCHED,)),
    "unknown fields": Case(ask(**UNKNOWN)),
    "hot": Case(ask(temperature=2, top_p=0.9)),
    "verbosity and user": Case(ask(text={"verbosity": "low"}, user="u-1")),
    "one search at most": Case(ask(max_tool_calls=1, tools=[{"type": "web_search"}])),
    **{f"status {code}": Case(ask(), (Say(broken=code),) * 4, streams=False) for code in (400, 401, 429, 500, 503)},
}
