"""Reads a chat answer as a neutral result.

Wire facts: Cohere API reference, v2/chat, response; guide, citations (positions count characters of their block).
"""

from typing import Any

from gateway import ids
from gateway.dialects import cohere as dialect
from gateway.errors import GatewayError, UpstreamFailed, UpstreamTimeout
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.parts import Part, Reasoning, Source, SourceRange, Text, ToolCall
from gateway.providers.answer_checks import EMPTY, ODD, SHAPE_ERRORS, is_empty, read_object
from gateway.providers.failures import scrub, stream_failure

BROKEN = "The provider broke off its answer with an error."
LATE = "The provider did not end its answer in time."
TEXT_CITED = ("TEXT_CONTENT", None)


def read_result(body: bytes) -> ChatResult:
    """The result of a 2xx body. UpstreamFailed for another shape, a failure inside it, or an empty answer."""
    wire = read_object(body)
    if "message" not in wire or isinstance(wire["message"], str):
        raise stream_failure(wire)
    usage = dialect.read_usage(wire.get("usage"))
    try:
        parts = _read_message(wire["message"])
        calls = any(isinstance(part, ToolCall) for part in parts)
        finish = read_finish(wire.get("finish_reason"), "", calls)
    except GatewayError as error:
        error.spent = usage
        raise
    except SHAPE_ERRORS:
        raise UpstreamFailed(ODD, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise UpstreamFailed(EMPTY, upstream_status=200)
    return ChatResult((Choice(parts, finish),), usage, upstream_id=word(wire.get("id")))


def read_finish(reason: Any, message: Any, calls: bool) -> FinishReason:
    """A finish reason; raises what a failed or late end stands for, `message` being its words."""
    if reason in (dialect.FAILED, dialect.TIMED_OUT):
        details = {"responseText": scrub(word(message) or reason)}
        if reason == dialect.TIMED_OUT:
            raise UpstreamTimeout(LATE, details=details, upstream_status=200)
        raise UpstreamFailed(BROKEN, details=details, upstream_status=200)
    return dialect.FINISH_READ.get(word(reason)) or ("tool_calls" if calls else "stop")


def _read_message(message: dict[str, Any]) -> tuple[Part, ...]:
    """Plan, blocks and calls in this order, with the citations at the blocks that they belong to."""
    plan = word(message.get("tool_plan"))
    parts: list[Reasoning | Text] = [Reasoning(plan)] if plan else []
    cited = [one for one in message.get("citations") or () if one.get("type") in TEXT_CITED]
    texts = [block for block in message.get("content") or () if block["type"] == "text"]
    for index, block in enumerate(message.get("content") or ()):
        if block["type"] == "thinking":
            parts.append(Reasoning(block["thinking"]))
        elif block["type"] == "text":
            own = [one for one in cited if len(texts) == 1 or one.get("content_index") == index]
            parts.append(Text(block["text"], sources=tuple(source for one in own for source in read_sources(one))))
    return (*(part for part in parts if part.text), *(read_call(call) for call in message.get("tool_calls") or ()))


def read_call(wire: dict[str, Any]) -> ToolCall:
    """A call; one without an id gets one, which the caller needs to answer it."""
    function = wire.get("function") or {}
    ident = word(wire.get("id")) or f"call_{ids.new_hex()}"
    return ToolCall(ident, word(function.get("name")), word(function.get("arguments")))


def read_sources(citation: dict[str, Any]) -> tuple[Source, ...]:
    """The sources of one citation: a page where the document or the tool's output reports its address."""
    start = citation.get("start")
    end = citation.get("end")
    if type(start) is int and type(end) is int:
        place = (start, end)
    else:
        place = (-1, -1)
    return tuple(_read_source(one, word(citation.get("text")), place) for one in citation.get("sources") or ())


def _read_source(wire: dict[str, Any], quote: str, place: tuple[int, int]) -> Source:
    ident = word(wire.get("id"))
    held = wire.get("document") or wire.get("tool_output") or {}
    url = word(held.get("url"))
    title = word(held.get("title")) or ident
    return Source(url, title, quote, *place, place=None if url else SourceRange("result", 0, file_id=ident))


def word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
