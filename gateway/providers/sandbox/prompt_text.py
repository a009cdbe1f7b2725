"""Reads a validated chat body as a sandbox model does."""

import hashlib
import mimetypes
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import orjson
from msgspec import Struct

from gateway.neutral.file_types import decode_base64
from gateway.providers.sandbox.directives import strip
from gateway.providers.sandbox.prose import IMAGE_TOKENS, count, count_media
from gateway.providers.sandbox.response import refuse

# Reads type, size and tokens of images, audio, video and files.


class Attachment(Struct, frozen=True):
    """An image, audio clip, video or file. `note` describes it in an answer, e.g. `[image: image/png, 68 bytes]`."""

    kind: str
    note: str
    tokens: int


def read_part(part: dict[str, Any], param: str) -> Attachment | None:
    """Return the attachment in a checked content part; None for text. InvalidRequest for invalid base64."""
    match part["type"]:
        case "image_url":
            return _linked("image", part["image_url"]["url"], f"{param}.image_url.url")
        case "video_url":
            return _linked("video", part["video_url"]["url"], f"{param}.video_url.url")
        case "input_audio":
            audio = part["input_audio"]
            size = _size(audio["data"], f"{param}.input_audio.data")
            return _attach("audio", f"audio/{audio.get('format') or 'wav'}", size)
        case "file":
            return _file(part["file"], f"{param}.file")
    return None


def _file(file: dict[str, Any], param: str) -> Attachment:
    name = file.get("filename") or ""
    if file.get("file_data"):
        link = file["file_data"]
        if not link.startswith("data:"):
            media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
            link = f"data:{media_type};base64,{link}"
        return _linked("file", link, f"{param}.file_data", name)
    return Attachment("file", f"[file: {name or file.get('file_id') or file.get('file_url')}]", 0)


def _linked(kind: str, link: str, param: str, name: str = "") -> Attachment:
    if not link.startswith("data:"):
        return Attachment(kind, f"[{kind}: {link[:200]}]", IMAGE_TOKENS if kind == "image" else 0)
    head, comma, data = link[5:].partition(",")
    media_type, _, encoding = head.rpartition(";")
    if not comma or encoding != "base64":
        raise refuse(f"Invalid '{param}': expected a base64-encoded data URL.", param, "invalid_base64")
    return _attach(kind, media_type or "application/octet-stream", _size(data, param), name)


def _size(data: str, param: str) -> int:
    try:
        return len(decode_base64(data))
    except ValueError as error:
        raise refuse(f"Invalid '{param}': the base64 data cannot be decoded.", param, "invalid_base64") from error


def _attach(kind: str, media_type: str, size: int, name: str = "") -> Attachment:
    label = f"{name}, {media_type}" if name else media_type
    tokens = IMAGE_TOKENS if kind == "image" else count_media(size)
    return Attachment(kind, f"[{kind}: {label}, {size} bytes]", tokens)


JSON_FORMATS = ("json_object", "json_schema")


class Tool(Struct, frozen=True):
    """An offered tool. `schema` is the schema of its arguments, None when it has none; a `custom` tool accepts free
    text."""

    name: str
    schema: dict[str, Any] | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a request that the model reads.

    `digest` is the seed of the answer and its ids. It is the same for a streamed and a non-streamed request. `text` is
    the last user text without directives; `results` are (call id, text) of tool messages at the end. `choice` is auto,
    none or required; `forced` restricts the tools by name. `schema` is set (maybe None) when `wants_json`.
    """

    model: str
    digest: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    forced: tuple[str, ...] = ()
    parallel: bool = True
    wants_json: bool = False
    schema: dict[str, Any] | None = None
    effort: str = ""
    limit: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    tokens: int = 0
    stream: bool = False
    include_usage: bool = False
    service_tier: str = "default"
    extra: dict[str, int] = field(default_factory=dict)  # prompt tokens by kind of attachment


def read_prompt(body: dict[str, Any]) -> Prompt:
    """Read a body that `check_chat` accepted. InvalidRequest for invalid base64."""
    messages = body["messages"]
    tools = tuple(_read_tool(tool) for tool in body.get("tools") or ())
    choice, forced = _read_choice(body.get("tool_choice"))
    every = [read_attachments(message, place) for place, message in enumerate(messages)]
    last = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=None)
    reply_format = body.get("response_format") or {}
    return Prompt(
        model=body["model"],
        digest=digest(body),
        text=strip(read_text(messages[last])) if last is not None else "",
        attachments=every[last] if last is not None else (),
        results=_read_results(messages),
        tools=tools,
        choice=choice,
        forced=forced,
        parallel=body.get("parallel_tool_calls") is not False,
        wants_json=reply_format.get("type") in JSON_FORMATS,
        schema=(reply_format.get("json_schema") or {}).get("schema"),
        effort=body.get("reasoning_effort") or "",
        limit=body.get("max_completion_tokens") or body.get("max_tokens"),
        stops=_read_stops(body.get("stop")),
        choices=body.get("n") or 1,
        tokens=_count_prompt(body, every),
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        service_tier=_tier(body.get("service_tier")),
        extra=_by_kind(every),
    )


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: system and developer messages, then the last user message."""
    messages = body["messages"]
    texts = [read_text(message) for message in messages if message["role"] in ("system", "developer")]
    texts.extend([read_text(message) for message in messages if message["role"] == "user"][-1:])
    return "\n".join(texts)


def read_text(message: dict[str, Any]) -> str:
    """Return all text of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def read_attachments(message: dict[str, Any], place: int) -> tuple[Attachment, ...]:
    """Return the images, audio, videos and files of a message."""
    content = message.get("content")
    if not isinstance(content, list):
        return ()
    attachments = [read_part(part, f"messages[{place}].content[{at}]") for at, part in enumerate(content)]
    return tuple(attachment for attachment in attachments if attachment)


def digest(body: dict[str, Any]) -> str:
    """Return 64 hex digits that depend on the parts that the model reads, but not on streaming or the JSON
    formatting."""
    seen = {
        "model": body["model"],
        "messages": [
            (m["role"], read_text(m), m.get("tool_calls") or [], m.get("tool_call_id") or "", _media_of(m))
            for m in body["messages"]
        ],
        "asked": {
            name: body.get(name) for name in ("tools", "tool_choice", "response_format", "seed") if body.get(name)
        },
    }
    return hashlib.sha256(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _media_of(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, list):
        return [part for part in content if part["type"] != "text"]
    return []


def _read_tool(tool: dict[str, Any]) -> Tool:
    inner = tool[tool["type"]]
    return Tool(inner["name"], inner.get("parameters"), tool["type"] == "custom")


def _read_choice(choice: Any) -> tuple[str, tuple[str, ...]]:
    if choice is None or isinstance(choice, str):
        return choice or "auto", ()
    inner = choice[choice["type"]]
    if choice["type"] == "allowed_tools":
        names = tuple((tool.get("function") or tool.get("custom") or {}).get("name", "") for tool in inner["tools"])
        return inner["mode"], names
    return "required", (inner["name"],)


def _read_results(messages: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    results: list[tuple[str, str]] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.append((message["tool_call_id"], read_text(message)))
    return tuple(reversed(results))


def _read_stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    return tuple(text for text in stops if text)


def _tier(requested: str | None) -> str:
    if requested and requested != "auto":
        return requested
    return "default"


def _count_prompt(body: dict[str, Any], every: list[tuple[Attachment, ...]]) -> int:
    texts = sum(count(read_text(message)) for message in body["messages"])
    calls = [call[call["type"]] for message in body["messages"] for call in message.get("tool_calls") or ()]
    called = sum(count(call["name"]) + count(call.get("arguments") or call.get("input") or "") for call in calls)
    tools = count(orjson.dumps(body["tools"]).decode()) if body.get("tools") else 0
    return texts + called + tools + sum(attachment.tokens for attachments in every for attachment in attachments)


def _by_kind(every: list[tuple[Attachment, ...]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for attachment in chain.from_iterable(every):
        totals[attachment.kind] = totals.get(attachment.kind, 0) + attachment.tokens
    return totals
