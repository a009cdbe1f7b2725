"""The contract's cases as messages."""

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
    Case,
    Json,
)  # fmt: skip
from contract.vendors import Say


def said(content: Any, role: str = "user") -> Json:
    return {"role": role, "content": content}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "description": "Tells it.", "input_schema": PLACE, **more}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def request(content: Any = "Hello", **more: Any) -> Json:
    return {"max_tokens": 4000, "messages": [said(content)], **more}


def bytes_of(kind: str, media: str, data: str) -> Json:
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": data}}


TOOLS = {"tools": [tool("weather"), tool("clock")]}
PICTURE = bytes_of("image", "image/png", PNG)
BY_URL = {"type": "image", "source": {"type": "url", "url": IMAGE_URL}}
PAPER = {**bytes_of("document", "application/pdf", PDF), "title": "A paper"}
PAPER_URL = {"type": "document", "source": {"type": "url", "url": "https://papers.example/a.pdf"}}
PLAIN = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Words."}}
HOUR, MINUTES = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
MARKED: Json = {
    "system": [text("Be brief.", cache_control=HOUR)],
    "tools": [tool("weather", cache_control=HOUR)],
    **request([text("A long text.", cache_control=MINUTES), text("Sum it up.")]),
}
ODD = [
    said("I spoke first.", "assistant"),
    said("One.", "user"),
    said([text("Two.")], "user"),
    said("Now be loud.", "system"),
    said("Three.", "user"),
]
PAST = [
    said("Weather?"),
    said(
        [
            text("Let me see."),
            {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {}},
            {"type": "tool_use", "id": "toolu_b", "name": "clock", "input": {"city": "Rome"}},
        ],
        "assistant",
    ),
    said(
        [
            {"type": "tool_result", "tool_use_id": "toolu_b", "content": "No such clock.", "is_error": True},
            {"type": "tool_result", "tool_use_id": "toolu_a", "content": [text("Rain."), text("Wind.")]},
            text("And then?"),
        ]
    ),
]
SEARCH = {
    "type": "web_search_20250305",
    "name": "web_search",
    "max_uses": 2,
    "allowed_domains": ["news.example"],
    "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"},
}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
ADAPTIVE = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
SCHEMA = {"output_config": {"format": {"type": "json_schema", "schema": ANSWER}}}
UNKNOWN = {"frobnicate": {"a": 1}, "seed": 7, "n": 3, "frequency_penalty": 1, "container": "c"}
FOUND = {
    "type": "search_result",
    "source": "https://news.example/today",
    "title": "News",
    "content": [text("It rains.")],
    "citations": {"enabled": True},
}
UNSIGNED = said([{"type": "thinking", "thinking": "Hm.", "signature": ""}, text("Hello.")], "assistant")
BASH = {"type": "bash_20250124", "name": "bash"}

CASES: dict[str, Case] = {
    "text": Case(request(), (HELLO, Say("Still here."))),
    "cached prompt": Case(request(), (Say("Good day.", cached=9),)),
    "system": Case(request(system=[text("Be brief."), text("Speak Norwegian.")])),
    "odd role order": Case({"max_tokens": 100, "messages": ODD}),
    "answer to be continued": Case({"max_tokens": 100, "messages": [said("Hello"), said("Good", "assistant")]}),
    "tool loop": Case(request(**TOOLS), (CALLS, HELLO)),
    "past calls": Case({"max_tokens": 100, "messages": PAST, **TOOLS}),
    "parallel calls": Case(request(**TOOLS), (THREE, HELLO)),
    "text and calls": Case(request(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO)),
    "one call at a time": Case(
        request(**TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True}), (CALLS,)
    ),
    "must call": Case(request(**TOOLS, tool_choice={"type": "any"}), (CALLS,)),
    "must call one": Case(request(**TOOLS, tool_choice={"type": "tool", "name": "clock"}), (CALLS,)),
    "must not call": Case(request(**TOOLS, tool_choice={"type": "none"})),
    "image from a tool": Case(request(**TOOLS), (CALLS, HELLO), [text("See:"), PICTURE]),
    "image alone from a tool": Case(request(**TOOLS), (CALLS, HELLO), [PICTURE]),
    "PDF from a tool": Case(request(**TOOLS), (CALLS, HELLO), [text("See:"), PAPER]),
    "a maker's own tool": Case(request(tools=[BASH])),
    "deferred tools": Case(
        request(
            tools=[
                tool("weather", defer_loading=True),
                {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
            ]
        )
    ),
    "image by URL": Case(request([text("What is it?"), BY_URL])),
    "image as bytes": Case(request([text("What is it?"), PICTURE])),
    "PDF": Case(request([PAPER, text("Sum it up.")])),
    "PDF by URL": Case(request([PAPER_URL, text("Sum it up.")])),
    "plain document": Case(request([PLAIN, text("Sum it up.")])),
    "reasoning in a tool loop": Case(request(**TOOLS, **BUDGET), (THOUGHT, HELLO)),
    "reasoning then text": Case(request(**BUDGET), (Say("Aha.", thinking="Hm."), HELLO)),
    "adaptive reasoning": Case(request(**ADAPTIVE), (Say("Aha.", thinking="Hm."),)),
    "no reasoning": Case(request(thinking={"type": "disabled"})),
    "schema": Case(request(**SCHEMA), (JSON,)),
    "schema and tools": Case(request(**TOOLS, **SCHEMA), (CALLS, JSON)),
    "cache marks": Case(MARKED),
    "cache mark of all": Case(request(cache_control={"type": "ephemeral"})),
    "document with context": Case(
        request([{**PAPER, "context": "Written in 1905.", "citations": {"enabled": True}}, text("Sum it up.")])
    ),
    "search result": Case(request([FOUND, text("Sum it up.")])),
    "empty result": Case(request(**TOOLS), (CALLS, HELLO), ""),
    "call without result": Case(
        {"max_tokens": 100, "messages": [*PAST[:2], said("Never mind.")], **TOOLS}, faulty=True
    ),
    "result without call": Case({"max_tokens": 100, "messages": [said("Hello"), PAST[2]], **TOOLS}, faulty=True),
    "history of tools without tools": Case({"max_tokens": 100, "messages": PAST}),
    "unsigned thinking": Case({"max_tokens": 100, "messages": [said("Hello"), UNSIGNED, said("Go on.")]}),
    "refusal": Case(request(), (Say(refusal="I cannot help with that."), HELLO)),
    "length": Case(request(), (Say("Cut sh", finish="length"),)),
    "filtered": Case(request(), (Say("Half an ans", finish="filter"),)),
    "stop sequence": Case(
        request(stop_sequences=["END", "a", "b", "c", "d", "e"]), (Say("Up to", finish="stop_sequence"),)
    ),
    "search": Case(request(tools=[SEARCH]), (SEARCHED, HELLO)),
    "unknown fields": Case(request(**UNKNOWN)),
    "hot": Case(request(temperature=1.0, top_p=0.9, top_k=40)),
    "user": Case(request(metadata={"user_id": "u-1"})),
    **{f"status {code}": Case(request(), (Say(broken=code),) * 4, streams=False) for code in (400, 401, 429, 500, 503)},
}
