"""Reads a generateContent response as a neutral result."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from gateway import ids
from gateway.dialects import google as dialect
from gateway.dialects.openai import read_unknown
from gateway.errors import GatewayError, UpstreamFailed, UpstreamRefused
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.parts import Image, Media, Part, Reasoning, Source, Text, ToolCall, VendorPart
from gateway.neutral.request import Native
from gateway.neutral.tool_arguments import plain_arguments
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, read_object
from gateway.providers.failures import scrub, stream_failure
from gateway.providers.google.traits import generation_of
from gateway.providers.protocol import UpstreamReply

ACCOUNT_REASONS = frozenset(("PUP_LIMITED_DISABLED",))
TIER_HEADER = "x-gemini-service-tier"
# Parts that have no neutral counterpart; a caller sends them back unchanged.
OPAQUE_PARTS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
TEXT_ALONE = {"text"}
ReadPart = Text | Reasoning | ToolCall | Image | VendorPart
BILLED_BY_QUERY = 3.0  # older generations bill a grounded answer once, for any number of queries (pricing page)


def read_result(reply: UpstreamReply, relayed: bool = False) -> ChatResult:
    """Return the result of a 2xx response, a `relayed` one with its body. UpstreamFailed for another shape, an error
    inside it, or no content."""
    wire = read_object(reply.read_all())
    if wire.get("error"):
        raise stream_failure(wire)
    try:
        result = _result(wire, reply.headers)
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if relayed:
        result.native = Native(dialect.NAME, wire)
    return result


def _result(wire: dict[str, Any], headers: Mapping[str, str]) -> ChatResult:
    candidates = sorted(wire.get("candidates") or (), key=lambda candidate: candidate.get("index") or 0)
    model = _text(wire.get("modelVersion"))
    groundings = [candidate.get("groundingMetadata") for candidate in candidates]
    choices = tuple(_choice(candidate) for candidate in candidates)
    images = sum(type(part) is Image for choice in choices for part in choice.parts)
    usage = dialect.read_usage(wire.get("usageMetadata"), count_searches(groundings, model), images)
    if groundings != [None]:
        usage = with_grounding(usage, groundings)
    if not choices and is_blocked(wire):
        choices = (Choice((), "content_filter"),)
    if not choices:
        raise UpstreamFailed(EMPTY, upstream_status=200)
    if all(is_empty(bool(choice.parts), choice.finish, usage) for choice in choices):
        raise empty_answer(choices[0].finish, usage)
    return ChatResult(
        choices=choices,
        usage=usage,
        model=model,
        upstream_id=_text(wire.get("responseId")),
        service_tier=read_tier(wire.get("usageMetadata"), headers),
    )


def _choice(candidate: dict[str, Any]) -> Choice:
    reason = candidate.get("finishReason") or ""
    if reason in dialect.FINISH_FAILED:
        raise failed_finish(reason, candidate.get("finishMessage"))
    read = map(read_part, (candidate.get("content") or {}).get("parts") or ())
    parts = _joined(part for part in read if part is not None)
    grounding = candidate.get("groundingMetadata")
    if isinstance(grounding, dict):
        _cite(parts, grounding)
    return Choice(tuple(parts), finish_of(reason, ToolCall in map(type, parts)))


def _cite(parts: list[Part], grounding: dict[str, Any]) -> None:
    """Add the sources of a grounded answer to its last text."""
    texts = [(index, part) for index, part in enumerate(parts) if isinstance(part, Text)]
    if texts:
        index, last = texts[-1]
        exact = len(texts) == 1
        sources = read_sources(grounding, last.text if exact else "")
        parts[index] = Text(last.text, sources=sources, signature=last.signature, vendor=last.vendor)


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with neighbours of one kind as one, up to one with a signature."""
    runs: list[list[Any]] = []
    for part in parts:
        last = runs[-1][-1] if runs else None
        if isinstance(part, Text | Reasoning) and type(last) is type(part) and not last.signature:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run[0] if len(run) == 1 else _join(run) for run in runs]


def _join(run: list[Text] | list[Reasoning]) -> Text | Reasoning:
    last = run[-1]
    text = "".join([part.text for part in run])
    if isinstance(last, Text):
        return Text(text, signature=last.signature, vendor=last.vendor)
    return Reasoning(text, last.signature, vendor=last.vendor, summary=True)


def read_part(wire: dict[str, Any]) -> ReadPart | None:
    """Return the neutral part, or None for empty text and for drafts of images.

    Thoughts are summaries (guide, thinking). A call without an id gets a new one, since its result needs one.
    Signatures are kept unchanged; `vendor` marks data that only this vendor can read.
    """
    if wire.keys() == TEXT_ALONE:
        only = _text(wire["text"])
        if only:
            return Text(only)
        return None
    signature = _text(wire.get("thoughtSignature"))
    vendor = dialect.NAME if signature else ""
    thought = wire.get("thought") is True
    if "functionCall" in wire:
        return _read_call(wire["functionCall"], signature)
    if "inlineData" in wire:
        if thought:
            return None
        return _read_inline(wire)
    for kind in OPAQUE_PARTS:
        if kind in wire:
            return VendorPart(dialect.NAME, kind, wire)
    text = _text(wire.get("text"))
    if not text and not signature:
        return None
    if thought:
        return Reasoning(text, signature, vendor=dialect.NAME, summary=True)
    return Text(text, signature=signature, vendor=vendor)


def _read_call(call: dict[str, Any], signature: str) -> ToolCall:
    return ToolCall(
        id=_text(call.get("id")) or f"call_{ids.new_hex()}",
        name=_text(call.get("name")),
        arguments=plain_arguments(call.get("args")),
        signature=signature,
        vendor=dialect.NAME if signature else "",
    )


def _read_inline(wire: dict[str, Any]) -> Image | VendorPart:
    blob = wire["inlineData"]
    kind = _text(blob.get("mimeType"))
    if kind.startswith("image/"):
        return Image(Media(media_type=kind, data=_text(blob.get("data"))))
    return VendorPart(dialect.NAME, "inlineData", wire)


def finish_of(reason: str, calls: bool) -> FinishReason:
    finish = dialect.FINISH_READ.get(reason) or read_unknown(reason)
    if calls and finish == "stop":
        return "tool_calls"
    return finish


def failed_finish(reason: str, message: Any) -> GatewayError:
    """Return the error for a finish reason that means failure."""
    details = {"responseText": scrub(f"{reason}: {message}" if isinstance(message, str) and message else reason)}
    kind = UpstreamRefused if reason in ACCOUNT_REASONS else UpstreamFailed
    return kind(dialect.FINISH_FAILED[reason], details=details, upstream_status=200)


def is_blocked(wire: dict[str, Any]) -> bool:
    """Return whether the API refused the prompt (reference, PromptFeedback.blockReason)."""
    feedback = wire.get("promptFeedback")
    return isinstance(feedback, dict) and bool(feedback.get("blockReason"))


def read_tier(usage: Any, headers: Mapping[str, str]) -> str:
    return dialect.read_tier(usage) or dialect.TIERS_READ.get(headers.get(TIER_HEADER, ""), "")


def count_searches(groundings: Iterable[Any], model: str) -> int:
    """Return the number of billed searches: the distinct queries, or 1 for models that bill them together."""
    queries = {
        query
        for grounding in groundings
        if isinstance(grounding, dict) and isinstance(grounding.get("webSearchQueries"), list)
        for query in grounding["webSearchQueries"]
        if isinstance(query, str) and query
    }
    if not queries:
        return 0
    if generation_of(model) >= BILLED_BY_QUERY:
        return len(queries)
    return min(len(queries), 1)


def with_grounding(usage: Usage | None, groundings: Iterable[Any]) -> Usage | None:
    """Return the usage with the places and the retrieved contexts that an answer was grounded in, which are billed once
    for each answer."""
    maps = retrieved = False
    for grounding in groundings:
        if not isinstance(grounding, dict):
            continue
        chunks = grounding.get("groundingChunks")
        chunks = [chunk for chunk in chunks if isinstance(chunk, dict)] if isinstance(chunks, list) else []
        maps = maps or "googleMapsWidgetContextToken" in grounding or any("maps" in chunk for chunk in chunks)
        retrieved = (
            retrieved or bool(grounding.get("retrievalQueries")) or any("retrievedContext" in chunk for chunk in chunks)
        )
    if not (maps or retrieved):
        return usage
    return structs.replace(usage or NO_USAGE, map_searches=int(maps), retrievals=int(retrieved))


def read_sources(grounding: dict[str, Any], text: str) -> tuple[Source, ...]:
    """Return the sources of `groundingMetadata`: one for each supported statement, then the pages without a statement.

    Segments count bytes of UTF-8 (reference, Segment); sources count characters of `text`, or -1 when `text` is "".
    """
    pages = [chunk.get("web") or {} for chunk in grounding.get("groundingChunks") or () if isinstance(chunk, dict)]
    raw = text.encode()
    cited: list[Source] = []
    used: set[int] = set()
    for support in grounding.get("groundingSupports") or ():
        segment = support.get("segment") or {}
        start, end = _characters(raw, segment.get("startIndex") or 0, segment.get("endIndex"))
        for index in support.get("groundingChunkIndices") or ():
            if 0 <= index < len(pages) and _text(pages[index].get("uri")):
                used.add(index)
                page = pages[index]
                cited.append(Source(page["uri"], _text(page.get("title")), _text(segment.get("text")), start, end))
    rest = [page for index, page in enumerate(pages) if index not in used and _text(page.get("uri"))]
    return (*cited, *(Source(page["uri"], _text(page.get("title"))) for page in rest))


def _characters(raw: bytes, start: int, end: Any) -> tuple[int, int]:
    if not raw or type(end) is not int or not 0 <= start <= end <= len(raw):
        return -1, -1
    before = len(raw[:start].decode("utf-8", "ignore"))
    return before, before + len(raw[start:end].decode("utf-8", "ignore"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
