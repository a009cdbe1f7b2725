"""Reads a Converse answer as a neutral result: blocks, stop reasons, usage.

Wire facts: Amazon Bedrock API reference, ConverseResponse, StopReason, TokenUsage (inputTokens is the uncached part
alone; user guide, "Prompt caching").
"""

from typing import Any

import orjson

from gateway import ids
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
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import EMPTY, ODD, SHAPE_ERRORS, is_empty, read_object, text_in
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
BROKEN = "The model's answer could not be read by its provider."
LOCATIONS: dict[str, tuple[RangeKind, str]] = {
    "documentChar": ("characters", "documentIndex"),
    "documentPage": ("pages", "documentIndex"),
    "documentChunk": ("blocks", "documentIndex"),
    "searchResultLocation": ("result", "searchResultIndex"),
}


def read_result(body: bytes, relayed: bool) -> ChatResult:
    """The result of a 2xx body. UpstreamFailed for another shape, a malformed or an empty answer."""
    wire = read_object(body)
    try:
        usage = read_usage(wire.get("usage"))
        finish = read_finish(wire["stopReason"])
        parts = [part for block in wire["output"]["message"]["content"] if (part := read_block(block)) is not None]
        stop = read_stop(wire)
        tier = read_tier(wire)
    except SHAPE_ERRORS:
        raise UpstreamFailed(ODD, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise UpstreamFailed(EMPTY, upstream_status=200)
    return ChatResult(
        choices=(Choice(tuple(parts), finish, stop),),
        usage=usage,
        service_tier=tier,
        native=Native(DIALECT, wire) if relayed else None,
    )


def read_finish(reason: str) -> FinishReason:
    """The neutral reason; UpstreamFailed when the model's answer was malformed."""
    if reason in MALFORMED:
        raise UpstreamFailed(BROKEN, upstream_status=200, details={"responseText": reason})
    return FINISH.get(reason, "stop")


def read_stop(wire: dict[str, Any]) -> str:
    """The stop sequence that ended the answer, if the model reports it."""
    reported = (wire.get("additionalModelResponseFields") or {}).get("stop_sequence")
    if isinstance(reported, str):
        return reported
    return ""


def read_tier(wire: dict[str, Any]) -> str:
    return text_in((wire.get("serviceTier") or {}).get("type") or "")


def read_usage(wire: Any) -> Usage | None:
    """A TokenUsage as disjoint counts; writes without a lifetime count for five minutes. None when it reports none."""
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
    """The part of a content block; None for kinds that say nothing to a caller."""
    match block:
        case {"text": str(text)}:
            if text:
                return Text(text)
            return None
        case {"toolUse": call}:
            side: ExecutedBy = "provider" if call.get("type") == "server_tool_use" else ""
            arguments = orjson.dumps(call.get("input") or {}).decode()
            ident = text_in(call.get("toolUseId") or f"call_{ids.new_hex()}")
            return ToolCall(ident, text_in(call["name"]), arguments, executed=side)
        case {"reasoningContent": {"redactedContent": str(sealed)}}:
            return Reasoning(sealed=sealed, vendor=SEALER)
        case {"reasoningContent": {"reasoningText": said}}:
            signature = text_in(said.get("signature") or "")
            return Reasoning(said.get("text") or "", signature, vendor=SIGNER if signature else "")
        case {"citationsContent": cited}:
            text = "".join(piece.get("text") or "" for piece in cited.get("content") or ())
            sources = tuple(source for one in cited.get("citations") or () if (source := read_source(one)))
            return Text(text, sources=sources)
        case {"image": image}:
            return read_image(image)
    return None


def read_source(citation: dict[str, Any]) -> Source | None:
    """A citation: of a web page by its address, of a document by what it is called."""
    place = citation.get("location") or {}
    url = text_in((place.get("web") or {}).get("url") or citation.get("source") or "")
    quote = "".join(piece.get("text") or "" for piece in citation.get("sourceContent") or ())
    title = text_in(citation.get("title") or "")
    if url or title or quote:
        return Source(url, title, quote, place=_read_place(place))
    return None


def _read_place(location: dict[str, Any]) -> SourceRange | None:
    """Where in the caller's documents or search results (API reference, CitationLocation)."""
    for name, (kind, index) in LOCATIONS.items():
        found = location.get(name)
        if isinstance(found, dict):
            counts = (found.get(word) for word in ("start", "end"))
            first, last = (count if type(count) is int else -1 for count in counts)
            return SourceRange(kind, found.get(index) or 0, first, last)
    return None


def read_image(image: dict[str, Any]) -> Image:
    source = image["source"]
    if image.get("format"):
        kind = f"image/{image['format']}"
    else:
        kind = ""
    if source.get("bytes"):
        return Image(Media(kind, data=text_in(source["bytes"])))
    return Image(Media(kind, url=text_in(source["s3Location"]["uri"])))
