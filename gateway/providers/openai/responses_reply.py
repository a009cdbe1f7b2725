"""Reads Responses objects as neutral results."""

from typing import Any

import orjson
from msgspec import structs

from gateway import ids
from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import ContentRefused, GatewayError, InvalidRequest, UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.parts import (
    Image,
    Media,
    Part,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolCall,
    VendorPart,
    text_length,
)
from gateway.neutral.tool_arguments import plain_arguments
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, read_object
from gateway.providers.failures import explain_object, stream_failure

FINAL_STATUSES = ("completed", "incomplete")
CANCELLED = "The provider cancelled its answer."
NOT_ENDED = "The provider returned an unfinished response."
LONG_TTL = "12h"  # of prompt_cache_options; the default is 30m
WRITTEN_MEMBERS = ("arguments", "code", "input")  # of calls of the provider's tools
PARAGRAPH = "\n\n"
Wire = dict[str, Any]


def read_result(body: bytes, relayed: bool) -> ChatResult:
    """Return the result of a 2xx body. UpstreamFailed for an unexpected shape, a failed response or an empty answer."""
    wire = read_object(body)
    if wire.get("error") or wire.get("status", "completed") not in FINAL_STATUSES:
        error = read_failure(wire)
        error.spent = read_usage(wire)
        raise error
    usage = read_usage(wire)
    try:
        parts = tuple(part for item in wire["output"] for part in read_item(item))
        finish = read_finish(wire, has_calls(wire["output"]))
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise empty_answer(finish, usage)
    return ChatResult(
        choices=(Choice(parts, finish),),
        usage=usage,
        model=text_of(wire.get("model")),
        upstream_id=text_of(wire.get("id")),
        service_tier=text_of(wire.get("service_tier")),
        native=Native(dialect.NAME, wire) if relayed else None,
        given=dialect.containers_of(wire["output"]) if relayed else (),
    )


def read_usage(wire: Wire) -> Usage | None:
    """Return the usage of a response, including tools that the provider ran; None when it reports none."""
    usage = dialect.read_usage(wire.get("usage"))
    tools: dict[str, Any] = {}
    if isinstance(wire.get("output"), list):
        tools |= dialect.count_tools(wire)
    if "image_tool_output" in tools:
        tools["price_key"] = _image_tool_model(wire)
    if usage is None:
        if tools:
            return structs.replace(NO_USAGE, **tools)
        return None
    if usage.cache_write and kept_long(wire.get("prompt_cache_options")):
        usage = structs.replace(usage, cache_write=0, cache_write_1h=usage.cache_write)
    if tools:
        return structs.replace(usage, **tools)
    return usage


def _image_tool_model(wire: Wire) -> str:
    """Return the model of the tool that made images; "" if the response does not name it."""
    for tool in wire.get("tools") or ():
        if isinstance(tool, dict) and tool.get("type") == "image_generation":
            return text_of(tool.get("model"))
    return ""


def kept_long(options: Any) -> bool:
    """Whether a response reports the long lifetime for its prompt cache entries."""
    return isinstance(options, dict) and options.get("ttl") == LONG_TTL


def read_finish(wire: Wire, calls: bool) -> FinishReason:
    """Return the finish reason of a completed or incomplete response."""
    if wire.get("status") == "incomplete":
        details = wire.get("incomplete_details") or {}
        return dialect.INCOMPLETE_READ.get(text_of(details.get("reason")), "length")
    if calls:
        return "tool_calls"
    return "stop"


def read_failure(wire: Wire) -> GatewayError:
    """Return the error of a response that failed, was cancelled, or is unfinished."""
    error = wire.get("error")
    if not error:
        return UpstreamFailed(CANCELLED if wire.get("status") == "cancelled" else NOT_ENDED, upstream_status=200)
    holder = {"error": error}
    cause = explain_object(holder, orjson.dumps(holder))
    if cause.code in dialect.CALLERS_CODES:
        return InvalidRequest(cause.message or "The provider refused the request.", code=cause.code, param=cause.param)
    if cause.code in dialect.REFUSED_CODES:
        return ContentRefused(cause.message or "The provider refused the content.", code="content_filter")
    return stream_failure(holder)


def has_calls(items: list[Wire]) -> bool:
    """Whether an item is a call that the caller must run."""
    return any(item.get("type") in dialect.CALLS for item in items)


def read_item(item: Wire) -> tuple[Part, ...]:
    """Return the parts of an output item. A kind without a neutral form becomes a VendorPart with the item."""
    match item.get("type"):
        case "message":
            return tuple(read_content(part) for part in item.get("content") or ())
        case "reasoning":
            return (read_reasoning(item),)
        case "function_call":
            arguments = item["arguments"] = plain_arguments(item.get("arguments"))
            return (ToolCall(call_id_of(item), text_of(item.get("name")), arguments),)
        case "custom_tool_call":
            return (ToolCall(call_id_of(item), text_of(item.get("name")), text_of(item.get("input")), custom=True),)
        case "web_search_call":
            return (read_search(item),)
        case "image_generation_call" if item.get("result"):
            return (read_image(item),)
        case kind:
            return (VendorPart(dialect.NAME, text_of(kind), item),)


def written_length(item: Wire) -> int:
    """Return the length of the text in an output item that the model wrote, for an estimate of its tokens."""
    return sum(length_of_part(part) for part in read_item(item))


def length_of_part(part: Part) -> int:
    """Return the length of the text that the model wrote; in an item that only this vendor has: code and arguments."""
    if isinstance(part, VendorPart):
        return sum(len(text_of(part.body.get(name))) for name in WRITTEN_MEMBERS)
    return text_length(part)


def read_content(part: Wire) -> Text | Refusal:
    """Return a content part of a message: text with its citations, or a refusal."""
    if part.get("type") == "refusal":
        return Refusal(text_of(part.get("refusal")))
    sources = (read_source(annotation) for annotation in part.get("annotations") or ())
    return Text(text_of(part.get("text")), sources=tuple(source for source in sources if source is not None))


def read_source(annotation: Any) -> Source | None:
    """Return the source of a url_citation. Other annotations refer to the provider's files and are skipped."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation" or not annotation.get("url"):
        return None
    start = annotation.get("start_index")
    end = annotation.get("end_index")
    place = (start, end) if type(start) is int and type(end) is int else (-1, -1)
    return Source(text_of(annotation["url"]), text_of(annotation.get("title")), "", *place)


def read_reasoning(item: Wire) -> Reasoning:
    """Return a reasoning item: its summary, otherwise its text, and its encrypted content unchanged."""
    summary = PARAGRAPH.join(text_of(part.get("text")) for part in item.get("summary") or ())
    text = PARAGRAPH.join(text_of(part.get("text")) for part in item.get("content") or ())
    return Reasoning(
        text=summary or text,
        sealed=text_of(item.get("encrypted_content")),
        vendor=dialect.NAME,
        ident=text_of(item.get("id")),
        summary=bool(summary) or not text,
    )


def read_search(item: Wire) -> ToolCall:
    """Return a web search that the provider ran, as a tool call with the action as its arguments."""
    arguments = orjson.dumps(item.get("action") or {}).decode()
    return ToolCall(text_of(item.get("id")), "web_search", arguments, vendor=dialect.NAME, executed="provider")


def read_image(item: Wire) -> Image:
    kind = text_of(item.get("output_format")) or "png"
    return Image(Media(media_type=f"image/{kind}", data=text_of(item["result"])))


def call_id_of(item: Wire) -> str:
    """Return the id of a call that its result must repeat. A missing id is generated, also in the wire value."""
    ident = text_of(item.get("call_id")) or text_of(item.get("id")) or f"call_{ids.new_hex()}"
    item["call_id"] = ident
    return ident


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
