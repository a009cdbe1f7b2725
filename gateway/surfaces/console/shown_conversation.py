"""The retained payload of a request as a conversation: its messages, tools and answer, as a page shows them.

Requests of callers are in one of several dialects, and may be anything, so this reader never fails. A payload that was
stored in part is shown up to its last complete value.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from gateway.engine.payload_collection import MAX_BODY_BYTES
from gateway.surfaces.console.shown_answers import read_answer
from gateway.surfaces.console.shown_parts import (
    MAX_IMAGE,
    MAX_PARTS,
    MAX_TEXT,
    Json,
    ShownMessage,
    ShownPart,
    as_dict,
    as_list,
    as_text,
    find_member,
    load,
    name_results,
    read_message,
    read_parts,
    write_json,
    write_short,
)
from gateway.surfaces.console.truncated_json import mend

MAX_BYTES = MAX_BODY_BYTES  # of a payload that is read: as much as is stored of one
MAX_MESSAGES = 300
MAX_INDENTED = 16_000_000  # length times depth of a body that is written with indentation
MAX_TOOLS = 200
MAX_SETTINGS = 100
MAX_NAME = 200  # characters
SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction", "preamble")
TURNS = ("chat_history", "messages", "prompt", "contents", "input")
SAID = (*SYSTEM, *TURNS, "message", "tools")
SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameter_definitions")


class ShownTool(Struct):
    name: str
    description: str
    schema: str
    cached: bool


class ShownConversation(Struct):
    """`left_out` counts messages in the middle that are not shown. `settings` are the other members of the request.
    `is_cut`: the end of the request was not stored."""

    messages: list[ShownMessage]
    answers: list[ShownMessage]
    tools: list[ShownTool]
    settings: list[tuple[str, str]]
    left_out: int = 0
    is_cut: bool = False


def load_request(sent: bytes) -> tuple[Any, bool]:
    """Return the value of a request, None for one that is no JSON, and whether its end is missing."""
    if len(sent) > MAX_BYTES:
        return None, False
    body = load(sent)
    if body is None and sent[:1] == b"{":
        body = load(mend(sent))
        return body, body is not None
    return body, False


def read_conversation(sent: bytes, answer: bytes) -> ShownConversation | None:
    """Return the conversation of a payload; None for a request that is none, or too large."""
    if len(answer) > MAX_BYTES:
        return None
    body, is_cut = load_request(sent)
    if not isinstance(body, dict):
        return None
    return read_turns(body, answer, is_cut)


def read_turns(body: Json, answer: bytes, is_cut: bool = False) -> ShownConversation | None:
    """Return the conversation of a request that was read, None for another operation."""
    messages, left_out = _read_messages(body)
    if not messages:
        return None
    name_results(messages)
    shown = ShownConversation(messages, read_answer(answer), read_tools(body), read_settings(body), left_out, is_cut)
    limit(shown)
    return shown


def read_settings(body: Json, said: tuple[str, ...] = SAID) -> list[tuple[str, str]]:
    """Return the members of a request that are parameters, each shortened."""
    others = ((name, value) for name, value in body.items() if name not in said)
    return [(name[:MAX_NAME], write_short(value)) for name, value in islice(others, MAX_SETTINGS)]


def write_pretty(body: bytes) -> str:
    """Return JSON with indentation, other text as it is."""
    value = load(body) if len(body) <= MAX_BYTES else None
    return body.decode("utf-8", "replace") if value is None else write_json(value, most=MAX_INDENTED)


def _read_messages(body: Json) -> tuple[list[ShownMessage], int]:
    """Return the messages of a request, and how many in the middle of many are left out."""
    found = []
    for name in SYSTEM:
        if body.get(name):
            content = body[name]
            found.append(ShownMessage("system", read_parts(as_dict(content).get("parts", content))))
    left_out = 0
    for name in TURNS:
        content = body.get(name)
        if isinstance(content, str):
            found.append(ShownMessage("user", [ShownPart("text", content[:MAX_TEXT])]))
        items = as_list(content)
        beyond = max(0, len(items) - MAX_MESSAGES)
        if beyond:
            items = items[: MAX_MESSAGES // 2] + items[-MAX_MESSAGES // 2 :]
        left_out += beyond
        found += [read_message(as_dict(item)) for item in items]
    if isinstance(body.get("message"), str) and body["message"]:  # of Cohere's first version
        found.append(ShownMessage("user", [ShownPart("text", body["message"][:MAX_TEXT])]))
    return [message for message in found if message.parts], left_out


# Tools.


def read_tools(body: Json) -> list[ShownTool]:
    """Return the tools of a request with their schemas, at most MAX_TOOLS."""
    return [_read_tool(tool, marked) for tool, marked in islice(list_tools(body), MAX_TOOLS)]


def list_tools(body: Json) -> Iterator[tuple[Json, bool]]:
    """Yield the declarations of a request's tools, and whether a cache mark ends at each."""
    for item in as_list(body.get("tools")):
        fields = as_dict(item)
        declared = as_list(find_member(fields, "functionDeclarations", "function_declarations"))
        is_marked = bool(fields.get("cache_control"))
        for one in declared or [as_dict(fields.get("function")) or as_dict(fields.get("custom")) or fields]:
            yield as_dict(one), is_marked


def name_tool(tool: Json) -> str:
    """Return the name of a tool: that of a function, the type of a hosted one."""
    name = as_text(tool.get("name")) or as_text(tool.get("type"))
    return (name or next(iter(tool), "tool"))[:MAX_NAME]


def _read_tool(tool: Json, is_marked: bool) -> ShownTool:
    schema = next((tool[name] for name in SCHEMAS if name in tool), None)
    written = write_json(schema if schema is not None else tool)[:MAX_TEXT]
    return ShownTool(name_tool(tool), as_text(tool.get("description"))[:MAX_TEXT], written, is_marked)


# The limits of a page.

MAX_PAGE_TEXT = 600_000  # characters of all parts
REMAINDER = 200  # characters of each part for which there is no room


def limit_texts(messages: list[ShownMessage]) -> None:
    """Shorten texts beyond the size of a page; the first messages keep theirs."""
    room = MAX_PAGE_TEXT
    for message in messages:
        for part in message.parts:
            room -= len(part.text)
            if room < 0 and len(part.text) > REMAINDER:
                part.text = f"{part.text[:REMAINDER]} … ({len(part.text) - REMAINDER:,} more characters)"


def limit(shown: ShownConversation) -> None:
    """Bound what a page shows, the newest messages first."""
    ordered = [*shown.answers, *reversed(shown.messages)]
    limit_images(ordered)
    limit_texts(ordered)


def limit_images(messages: list[ShownMessage]) -> None:
    """Replace pictures beyond the size of a page by what is known of them; the first messages keep theirs."""
    room = MAX_IMAGE
    for message in messages:
        for part in message.parts[:MAX_PARTS]:
            if part.kind != "image":
                continue
            room -= len(part.url)
            if room < 0:
                part.kind, part.text, part.url = "file", f"{part.url.partition(';')[0]}, too large to be shown", ""
