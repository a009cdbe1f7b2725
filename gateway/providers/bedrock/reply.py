"""Reads a Converse response as a neutral result: blocks, stop reasons, usage.

Wire facts: Amazon Bedrock API reference, ConverseResponse, StopReason, TokenUsage (inputTokens excludes cached tokens;
user guide, "Prompt caching").
"""

from typing import Any

from gateway import ids
from gateway.dialects.openai import read_unknown
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.parts import (
    ExecutedBy,
    Image,
    Media,
    Part,
    RangeKind,
    Reasoning,
    Source,
    SourceRange,
    Text,
    ToolCall,
)
from gateway.neutral.tool_arguments import plain_arguments
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import (
    SHAPE_ERRORS,
    UNKNOWN_SHAPE,
    empty_answer,
    is_empty,
    read_object,
    text_in,
)
from gateway.providers.bedrock.content import SEALER, SIGNER

DIALECT = "bedrock"
FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
MALFORMED = ("malformed_model_output", "malformed_tool_use")
MALFORMED_OUTPUT = "The model produced malformed output."
LOCATIONS: dict[str, tuple[RangeKind, str]] = {
    "documentChar": ("characters", "documentIndex"),
    "documentPage": ("pages", "documentIndex"),
    "documentChunk": ("blocks", "documentIndex"),
    "searchResultLocation": ("result", "searchResultIndex"),
}


def read_result(body: bytes, relayed: bool) -> ChatResult:
    """Return the result of a 2xx body. UpstreamFailed for another shape, malformed output, or no content."""
    wire = read_object(body)
    try:
        usage = read_usage(wire.get("usage"))
        finish = read_finish(wire["stopReason"])
        parts = [part for block in wire["output"]["message"]["content"] if (part := read_block(block)) is not None]
        stop = read_stop(wire)
        tier = read_tier(wire)
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise empty_answer(finish, usage)
    return ChatResult(
        choices=(Choice(tuple(parts), finish, stop),),
        usage=usage,
        service_tier=tier,
        native=Native(DIALECT, wire) if relayed else None,
    )


def read_finish(reason: str) -> FinishReason:
    """Return the neutral finish reason. UpstreamFailed if the model's output was malformed."""
    if reason in MALFORMED:
        raise UpstreamFailed(MALFORMED_OUTPUT, upstream_status=200, details={"responseText": reason})
    return FINISH.get(reason) or read_unknown(reason)


def read_stop(wire: dict[str, Any]) -> str:
    """Return the stop sequence that ended the answer, or "" if the model does not report it."""
    reported = (wire.get("additionalModelResponseFields") or {}).get("stop_sequence")
    if isinstance(reported, str):
        return reported
    return ""


def read_tier(wire: dict[str, Any]) -> str:
    return text_in((wire.get("serviceTier") or {}).get("type") or "")


def read_usage(wire: Any) -> Usage | None:
    """Return a TokenUsage as disjoint counts, or None if it has none; cache writes count as five minutes by default."""
    if not isinstance(wire, dict) or "inputTokens" not in wire:
        return None
    written = read_count(wire.get("cacheWriteInputTokens"))
    details = wire.get("cacheDetails") or ()
    hour = sum(read_count(entry.get("inputTokens")) for entry in details if entry.get("ttl") == "1h")
    hour = min(hour, written)
    return Usage(
        input=read_count(wire["inputTokens"]),
        cache_read=read_count(wire.get("cacheReadInputTokens")),
        cache_write=written - hour,
        cache_write_1h=hour,
        output=read_count(wire.get("outputTokens")),
    )


def read_block(block: dict[str, Any]) -> Part | None:
    """Return the part of a content block, or None for kinds without a neutral counterpart."""
    match block:
        case {"text": str(text)}:
            if text:
                return Text(text)
            return None
        case {"toolUse": call}:
            executed: ExecutedBy = "provider" if call.get("type") == "server_tool_use" else ""
            arguments = plain_arguments(call.get("input"))
            ident = text_in(call.get("toolUseId") or f"call_{ids.new_hex()}")
            return ToolCall(ident, text_in(call["name"]), arguments, executed=executed)
        case {"reasoningContent": {"redactedContent": str(sealed)}}:
            return Reasoning(sealed=sealed, vendor=SEALER)
        case {"reasoningContent": {"reasoningText": reasoning}}:
            signature = text_in(reasoning.get("signature") or "")
            return Reasoning(reasoning.get("text") or "", signature, vendor=SIGNER if signature else "")
        case {"citationsContent": cited}:
            text = "".join(piece.get("text") or "" for piece in cited.get("content") or ())
            sources = tuple(source for citation in cited.get("citations") or () if (source := read_source(citation)))
            return Text(text, sources=sources)
        case {"image": image}:
            return read_image(image)
    return None


def read_source(citation: dict[str, Any]) -> Source | None:
    """Return the source of a citation: a web page with its URL, or a document with its title."""
    place = citation.get("location") or {}
    url = text_in((place.get("web") or {}).get("url") or citation.get("source") or "")
    quote = "".join(piece.get("text") or "" for piece in citation.get("sourceContent") or ())
    title = text_in(citation.get("title") or "")
    if url or title or quote:
        return Source(url, title, quote, place=_read_place(place))
    return None


def _read_place(location: dict[str, Any]) -> SourceRange | None:
    """Return the range in the caller's documents or search results (API reference, CitationLocation)."""
    for name, (kind, index) in LOCATIONS.items():
        cited_range = location.get(name)
        if isinstance(cited_range, dict):
            counts = (cited_range.get(field) for field in ("start", "end"))
            first, last = (count if type(count) is int else -1 for count in counts)
            return SourceRange(kind, cited_range.get(index) or 0, first, last)
    return None


def read_image(image: dict[str, Any]) -> Image:
    source = image["source"]
    kind = f"image/{image['format']}" if image.get("format") else ""
    if source.get("bytes"):
        return Image(Media(kind, data=text_in(source["bytes"])))
    return Image(Media(kind, url=text_in(source["s3Location"]["uri"])))
