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


def request(content: Any = "Hello", **more: Any) -> Json:
    input_ = content if isinstance(content, str) else [said(content)]
    return {"input": input_, "store": False, "include": ["reasoning.encrypted_content"], **more}


def talk(items: list[Json], **more: Any) -> Json:
    return {"input": items, "store": False, **more}


TOOLS = {"tools": [tool("weather"), tool("clock")]}
PICTURE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
BY_URL = {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}
PAPER = {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
PDF_IMAGE = {"type": "input_image", "image_url": f"data:application/pdf;base64,{PDF}"}
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
    "text": Case(request(), (HELLO, Say("Still here."))),
    "cached prompt": Case(request(), (Say("Good day.", cached=9),)),
    "instructions": Case(request(instructions="Be brief.")),
    "system and developer": Case(talk(ROLES)),
    "odd role order": Case(talk(ODD)),
    "tool loop": Case(request(**TOOLS), (CALLS, HELLO)),
    "past calls": Case(talk(PAST, **TOOLS)),
    "parallel calls": Case(request(**TOOLS), (THREE, HELLO)),
    "text and calls": Case(request(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO)),
    "one call at a time": Case(request(**TOOLS, parallel_tool_calls=False), (CALLS,)),
    "must call": Case(request(**TOOLS, tool_choice="required"), (CALLS,)),
    "must call one": Case(request(**TOOLS, tool_choice={"type": "function", "name": "clock"}), (CALLS,)),
    "must not call": Case(request(**TOOLS, tool_choice="none")),
    "image from a tool": Case(request(**TOOLS), (CALLS, HELLO), [text("See:"), PICTURE]),
    "image alone from a tool": Case(request(**TOOLS), (CALLS, HELLO), [PICTURE]),
    "PDF from a tool": Case(request(**TOOLS), (CALLS, HELLO), [text("See:"), PAPER]),
    "custom tool": Case(request(tools=[{"type": "custom", "name": "patch", "format": GRAMMAR}])),
    "tools of a namespace": Case(request(tools=[NAMESPACE])),
    "a maker's own tool": Case(request(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])),
    "image by URL": Case(request([text("What is it?"), BY_URL])),
    "image as bytes": Case(request([text("What is it?"), PICTURE])),
    "PDF": Case(request([text("Sum it up."), PAPER])),
    "PDF as an image": Case(request([text("Sum it up."), PDF_IMAGE])),
    "PDF by URL": Case(request([text("Sum it up."), PAPER_URL])),
    "sound": Case(request([text("What is it?"), SOUND])),
    "file by id": Case(request([text("Sum it up."), {"type": "input_file", "file_id": "file-1"}])),
    "reasoning in a tool loop": Case(
        request(**TOOLS, reasoning={"effort": "high", "summary": "auto"}), (THOUGHT, HELLO)
    ),
    "reasoning then text": Case(request(reasoning={"effort": "low"}), (Say("Aha.", thinking="Hm."), HELLO)),
    "no reasoning": Case(request(reasoning={"effort": "none"})),
    "schema": Case(request(**SCHEMA), (JSON,)),
    "JSON object": Case(request("Answer in JSON.", text={"format": {"type": "json_object"}}), (JSON,)),
    "schema and tools": Case(request(**TOOLS, **SCHEMA), (CALLS, JSON)),
    "empty result": Case(request(**TOOLS), (CALLS, HELLO), ""),
    "call without result": Case(talk([*PAST[:4], said("Never mind.")], **TOOLS), faulty=True),
    "result without call": Case(talk([said("Hello"), PAST[3]], **TOOLS), faulty=True),
    "history of tools without tools": Case(talk(PAST)),
    "pro mode": Case(request(reasoning={"effort": "high", "mode": "pro"})),
    "refusal": Case(request(), (Say(refusal="I cannot help with that."), HELLO)),
    "length": Case(request(max_output_tokens=16), (Say("Cut sh", finish="length"),)),
    "filtered": Case(request(), (Say("Half an ans", finish="filter"),)),
    "search": Case(request(tools=[SEARCH]), (SEARCHED, HELLO)),
    "search and tools": Case(request(tools=[tool("weather"), {"type": "web_search"}]), (SEARCHED,)),
    "unknown fields": Case(request(**UNKNOWN)),
    "hot": Case(request(temperature=2, top_p=0.9)),
    "verbosity and user": Case(request(text={"verbosity": "low"}, user="u-1")),
    "one search at most": Case(request(max_tool_calls=1, tools=[{"type": "web_search"}])),
    **{f"status {code}": Case(request(), (Say(broken=code),) * 4, streams=False) for code in (400, 401, 429, 500, 503)},
}
