"""Reads a chat response as a neutral result.

Wire facts: Cohere API reference, v2/chat, response; guide, citations (positions count characters of their block).
"""

from typing import Any

from gateway import ids
from gateway.dialects import cohere as dialect
from gateway.dialects.openai import read_unknown
from gateway.errors import GatewayError, UpstreamFailed, UpstreamTimeout
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.parts import Part, Reasoning, Source, SourceRange, Text, ToolCall
from gateway.neutral.tool_arguments import plain_arguments
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, read_object
from gateway.providers.failures import scrub, stream_failure

ENDED_WITH_ERROR = "The provider ended its response with an error."
TIMED_OUT_ANSWER = "The provider did not complete its response in time."
TEXT_CITED = ("TEXT_CONTENT", None)


def read_result(body: bytes, relayed: bool = False) -> ChatResult:
    """Return the result of a 2xx body, with the body if it is `relayed`. UpstreamFailed for another shape, a failure
    inside it, or no content."""
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
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if is_empty(bool(parts), finish, usage):
        raise empty_answer(finish, usage)
    native = Native(dialect.NAME, wire) if relayed else None
    return ChatResult((Choice(parts, finish),), usage, upstream_id=word(wire.get("id")), native=native)


def read_finish(reason: Any, message: Any, calls: bool) -> FinishReason:
    """Return the neutral finish reason. UpstreamFailed or UpstreamTimeout, with `message`, for a failed response."""
    if reason in (dialect.FAILED, dialect.TIMED_OUT):
        details = {"responseText": scrub(word(message) or reason)}
        if reason == dialect.TIMED_OUT:
            raise UpstreamTimeout(TIMED_OUT_ANSWER, details=details, upstream_status=200)
        raise UpstreamFailed(ENDED_WITH_ERROR, details=details, upstream_status=200)
    finish = dialect.FINISH_READ.get(word(reason)) or read_unknown(reason)
    if finish in ("stop", "tool_calls"):
        return "tool_calls" if calls else "stop"
    return finish


def _read_message(message: dict[str, Any]) -> tuple[Part, ...]:
    """Return plan, blocks and calls in this order; each text has its citations."""
    plan = word(message.get("tool_plan"))
    parts: list[Reasoning | Text] = [Reasoning(plan)] if plan else []
    citations = [citation for citation in message.get("citations") or () if citation.get("type") in TEXT_CITED]
    texts = [block for block in message.get("content") or () if block["type"] == "text"]
    for index, block in enumerate(message.get("content") or ()):
        if block["type"] == "thinking":
            parts.append(Reasoning(block["thinking"]))
        elif block["type"] == "text":
            cited = [entry for entry in citations if len(texts) == 1 or entry.get("content_index") == index]
            sources = tuple(source for citation in cited for source in read_sources(citation))
            parts.append(Text(block["text"], sources=sources))
    return (*(part for part in parts if part.text), *(read_call(call) for call in message.get("tool_calls") or ()))


def read_call(wire: dict[str, Any]) -> ToolCall:
    """Return a call. A call without an id gets a new id, since its result needs one."""
    function = wire.get("function") or {}
    ident = word(wire.get("id")) or f"call_{ids.new_hex()}"
    return ToolCall(ident, word(function.get("name")), plain_arguments(function.get("arguments")))


def read_sources(citation: dict[str, Any]) -> tuple[Source, ...]:
    """Return the sources of one citation, with the URL if the document or the tool output reports one."""
    start = citation.get("start")
    end = citation.get("end")
    span = (start, end) if type(start) is int and type(end) is int else (-1, -1)
    quote = word(citation.get("text"))
    return tuple(_read_source(source, quote, span) for source in citation.get("sources") or ())


def _read_source(wire: dict[str, Any], quote: str, span: tuple[int, int]) -> Source:
    ident = word(wire.get("id"))
    document = wire.get("document") or wire.get("tool_output") or {}
    url = word(document.get("url"))
    title = word(document.get("title")) or ident
    return Source(url, title, quote, *span, place=None if url else SourceRange("result", 0, file_id=ident))


def word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
