"""A strict fake of api.anthropic.com: refuses the requests that the service refuses, answers by script and records
calls.

    with FakeAnthropic() as upstream:
        upstream.script(Answer("Hello"), Answer(status=529), Answer("Hi", cut=120))
        ... call upstream.url + "/messages" ...
        assert upstream.calls[0].body["model"] == "claude-sonnet-4-5"

Every request is checked against the request types that the `anthropic` package publishes, unknown members refused at
every depth, and thinking must come back with the signature that this server gave it. Each request consumes one answer
of the script; after its end every request gets `Answer("Hello.")`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gevent
from fakes import anthropic_types as published
from fakes.anthropic_checks import Refused, check_request, sign
from fakes.prompt_cache import PromptCache
from fakes.server import FakeServer, RecordedCall, headers_of, send

# The real service's error bodies for common statuses.
ERRORS = {
    400: ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    401: ("authentication_error", "invalid x-api-key"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}


@dataclass(frozen=True)
class Answer:
    """A scripted answer. Blocks are sent in the order thinking, redacted, search, text, tools. `tools` are (name,
    arguments as JSON text) pairs. `search` is a URL that a web search found and the text cites. `status` other than 200
    is an error (`error` replaces its body). `silence_s` passes before the first byte, `gap_s` between events.
    `fragment` cuts the bytes into writes of that size; `cut` breaks the connection after that many bytes of the body.
    `stop` False leaves out message_stop. `error_at` puts an error event after that many events; `pings` come behind
    message_start. `raw` replaces the body. `turn` distinguishes the ids of calls from those of other answers.
    """

    text: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    redacted: str = ""
    search: str = ""
    finish: str = ""
    stop_sequence: str | None = None
    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    input: int = 12
    output: int = 7
    cache_read: int = 0
    cache_5m: int = 0
    cache_1h: int = 0
    piece: int = 8
    pings: int = 1
    silence_s: float = 0.0
    gap_s: float = 0.0
    fragment: int = 0
    cut: int | None = None
    stop: bool = True
    error_at: int | None = None
    raw: bytes | None = None
    turn: str = ""
    content_type: str = ""


class FakeAnthropic(FakeServer):
    """The service; `calls` are RecordedCall. With a `prompt_cache` it counts the prompts of its answers."""

    base = "/v1"
    prompt_cache: PromptCache | None = None

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        call = RecordedCall(environ["PATH_INFO"], headers)
        self.calls.append(call)
        try:
            call.body = check_request(environ, headers, environ["wsgi.input"].read())
        except Refused as refused:
            call.status, call.problem = refused.status, str(refused)
            return _respond(start, environ, call, Answer(), json.dumps(refused.body).encode())
        answer = self.next_answer(Answer("Hello."))
        call.status = answer.status
        if answer.status != 200:
            return _respond(start, environ, call, answer, _error(answer))
        if self.prompt_cache is not None:
            counts = self.prompt_cache.count(call.body)
            answer = replace(
                answer,
                input=counts.input,
                cache_read=counts.read,
                cache_5m=counts.written_5m,
                cache_1h=counts.written_1h,
            )
        call.usage = usage_of(answer, call.body)
        if call.body.get("stream"):
            return _respond(start, environ, call, answer, None)
        return _respond(
            start, environ, call, answer, json.dumps(message_of(answer, call.body["model"], call.body)).encode()
        )


def _respond(
    start: Any, environ: dict[str, Any], call: RecordedCall, answer: Answer, body: bytes | None
) -> Iterator[bytes]:
    """Send the status line, then the body as the script requires."""
    gevent.sleep(answer.silence_s)
    kind = answer.content_type or ("text/event-stream; charset=utf-8" if body is None else "application/json")
    headers = [("Content-Type", kind), ("request-id", "req_fake"), *answer.headers.items()]
    if answer.raw is not None:
        body = answer.raw
    if body is not None:
        headers.append(("Content-Length", str(len(body))))
    start(f"{call.status} Scripted", headers)
    pieces = [body] if body is not None else events_of(answer, call.body["model"], call.body)
    return send(environ, pieces, call, fragment=answer.fragment, cut=answer.cut, gap_s=answer.gap_s)


def _error(answer: Answer) -> bytes:
    kind, message = ERRORS.get(answer.status, ("invalid_request_error", "The request was refused."))
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}
    return json.dumps(answer.error or body).encode()


# Answers.


def usage_of(answer: Answer, body: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the final usage, with the requested speed and location."""
    return {name: body[name] for name in ("speed", "inference_geo") if name in body} | {
        "input_tokens": answer.input,
        "cache_creation_input_tokens": answer.cache_5m + answer.cache_1h,
        "cache_read_input_tokens": answer.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": answer.cache_5m,
            "ephemeral_1h_input_tokens": answer.cache_1h,
        },
        "output_tokens": answer.output,
        "service_tier": "standard",
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0} if answer.search else None,
    }


def blocks_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the complete content."""
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": sign(answer.thinking)})
    if answer.redacted:
        blocks.append({"type": "redacted_thinking", "data": answer.redacted})
    if answer.search:
        blocks += _search_blocks(answer.search)
    if answer.text:
        citations = [_citation(answer.search)] if answer.search else None
        blocks.append({"type": "text", "text": answer.text, "citations": citations})
    for place, (name, arguments) in enumerate(answer.tools):
        blocks.append(
            {"type": "tool_use", "id": f"toolu_{answer.turn}{place}", "name": name, "input": json.loads(arguments)}
        )
    return blocks


def _search_blocks(url: str) -> list[dict[str, Any]]:
    found = {"type": "web_search_result", "url": url, "title": "A page", "encrypted_content": "abc", "page_age": None}
    return [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "news"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]},
    ]


def _citation(url: str) -> dict[str, Any]:
    kind = "web_search_result_location"
    return {"type": kind, "url": url, "title": "A page", "cited_text": "words", "encrypted_index": "idx"}


def message_of(answer: Answer, model: str, request: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return a complete message."""
    body = {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks_of(answer),
        "stop_reason": answer.finish or ("tool_use" if answer.tools else "end_turn"),
        "stop_sequence": answer.stop_sequence,
        "usage": usage_of(answer, request),
    }
    published.Message.model_validate(body)
    return body


def events_of(answer: Answer, model: str, request: Mapping[str, Any] = {}) -> Iterator[bytes]:
    """Return the stream's events as bytes."""
    for sent, event in enumerate(_events(answer, model, request)):
        if answer.error_at is not None and sent >= answer.error_at:
            body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            yield _frame(answer.error or body)
            return
        if event["type"] != "ping":
            published.EVENT.check(event)
        yield _frame(event)


def _frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _events(answer: Answer, model: str, body: Mapping[str, Any] = {}) -> Iterator[dict[str, Any]]:
    whole = message_of(answer, model, body)
    start = {**whole["usage"], "output_tokens": 1, "server_tool_use": None}
    head = {**whole, "content": [], "stop_reason": None, "stop_sequence": None, "usage": start}
    yield {"type": "message_start", "message": head}
    for _ in range(answer.pings):
        yield {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        yield from _block_events(index, block, answer.piece)
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": answer.stop_sequence}
    tools = {"server_tool_use": whole["usage"]["server_tool_use"]} if answer.search else {}
    usage = {"output_tokens": answer.output, "input_tokens": answer.input, **tools}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    if answer.stop:
        yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    started = block
    if block["type"] == "text":
        started = {"type": "text", "text": ""}
        deltas += [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], size)]
        deltas += [{"type": "citations_delta", "citation": citation} for citation in block["citations"] or ()]
    elif block["type"] == "thinking":
        started = {"type": "thinking", "thinking": "", "signature": ""}
        deltas += [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"], size)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] in ("tool_use", "server_tool_use"):
        started = {**block, "input": {}}
        pieces = ["", *_pieces(json.dumps(block["input"]), size)]
        deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    yield {"type": "content_block_start", "index": index, "content_block": started}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
