"""A strict fake of api.openai.com: refuses the requests that the service refuses, answers by script and records calls.

    with FakeOpenAI() as upstream:
        upstream.script(Answer("Hello"), Answer(status=500), Answer("Hi", cut=120))
        ... call upstream.url + "/chat/completions" ...
        assert upstream.calls[0].body["model"] == "gpt-4o-mini"

Every request is checked against the request types that the `openai` package publishes, unknown members refused at
every depth. A script is used up one answer a request; after its end every request gets `Answer("Hello.")`. Whether an
answer is streamed is the request's choice.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gevent
from fakes.openai_checks import Refused, check_request
from fakes.server import FakeServer, RecordedCall, headers_of, send
from openai.types.chat import ChatCompletion, ChatCompletionChunk

CREATED = 1_767_225_600
# The real service's error bodies for common statuses.
ERRORS = {
    401: ("Incorrect API key provided: sk-rev***ked.", "invalid_request_error", "invalid_api_key"),
    429: ("Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request.", "server_error", None),
    503: ("The engine is currently overloaded, please try again later.", "server_error", "overloaded"),
}


@dataclass(frozen=True)
class Answer:
    """One scripted answer.

    `tools` are (name, arguments as JSON text) pairs, called in parallel; the member `input` is the text for a tool that
    the request declares as a free-text tool. Streamed, arguments come interleaved in pieces of `piece` characters, like
    the text. `status` other than 200 is an error (`error` replaces its body). `silence_s` passes before the first byte,
    `gap_s` between events. `fragment` cuts the bytes of the answer into writes of that size; `cut` breaks the
    connection after that many bytes of the body. `done`, `usage` and `finish_chunk` leave out the [DONE] mark, the
    usage and the finish reason. `error_at` puts an error object after that many events. `raw` replaces the whole body.
    `thought` is sent as `reasoning_content`, as compatible servers do. `turn` distinguishes the ids of calls from those
    of other answers.
    """

    text: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    refusal: str = ""
    finish: str = ""
    n: int = 1
    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cached: int = 0
    reasoning: int = 0
    prompt: int | None = None
    completion: int | None = None
    service_tier: str = "default"
    piece: int = 8
    silence_s: float = 0.0
    gap_s: float = 0.0
    fragment: int = 0
    cut: int | None = None
    done: bool = True
    usage: bool = True
    finish_chunk: bool = True
    error_at: int | None = None
    raw: bytes | None = None
    content_type: str = ""
    thought: str = ""
    turn: str = ""


class FakeOpenAI(FakeServer):
    """The service; `calls` are RecordedCall."""

    base = "/v1"

    def check(self, environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> dict[str, Any]:
        """The body, when the real service would take it. Refused otherwise."""
        return check_request(environ, headers, payload)

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        call = RecordedCall(environ["PATH_INFO"], headers)
        self.calls.append(call)
        try:
            call.body = self.check(environ, headers, payload)
        except Refused as refused:
            call.status, call.problem = refused.status, str(refused)
            return _respond(start, environ, call, Answer(), json.dumps(refused.body).encode(), "application/json")
        answer = self.next_answer(Answer("Hello."))
        call.status = answer.status
        if answer.status != 200:
            return _respond(start, environ, call, answer, _error(answer), "application/json")
        call.usage = _usage(answer, call.body)
        if call.body.get("stream"):
            return _respond(start, environ, call, answer, None, "text/event-stream")
        return _respond(start, environ, call, answer, json.dumps(_whole(answer, call)).encode(), "application/json")


def _respond(
    start: Any, environ: dict[str, Any], call: RecordedCall, answer: Answer, body: bytes | None, kind: str
) -> Iterator[bytes]:
    """Send the status line, then the body as the script requires."""
    gevent.sleep(answer.silence_s)
    headers = [("Content-Type", answer.content_type or kind), ("x-request-id", "req_fake"), *answer.headers.items()]
    if answer.raw is not None:
        body = answer.raw
    if body is not None:
        headers.append(("Content-Length", str(len(body))))
    start(f"{call.status} Scripted", headers)
    pieces = [body] if body is not None else _events(answer, call)
    return send(environ, pieces, call, fragment=answer.fragment, cut=answer.cut, gap_s=answer.gap_s)


def _error(answer: Answer) -> bytes:
    message, kind, code = ERRORS.get(answer.status, ("The request was refused.", "invalid_request_error", None))
    return json.dumps(
        answer.error or {"error": {"message": message, "type": kind, "param": None, "code": code}}
    ).encode()


# Answers.


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


def _usage(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    said = answer.text + answer.refusal + "".join(name + text for name, text in answer.tools)
    prompt = _tokens(json.dumps(body["messages"])) if answer.prompt is None else answer.prompt
    output = answer.n * _tokens(said) + answer.reasoning if answer.completion is None else answer.completion
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": answer.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning, "audio_tokens": 0},
    }


def _finish_of(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.tools else "stop")


def _whole(answer: Answer, call: RecordedCall) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": answer.refusal or None}
    if answer.tools:
        message["tool_calls"] = [_call(answer, place, call.body) for place in range(len(answer.tools))]
    if answer.thought:
        message["reasoning_content"] = answer.thought
    finish = _finish_of(answer)
    body = _head(call, "chat.completion") | {
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": finish} for index in range(answer.n)
        ],
        "service_tier": answer.service_tier,
    }
    if answer.usage:
        body["usage"] = call.usage
    ChatCompletion.model_validate(body, strict=True)
    return body


def _is_custom(name: str, body: dict[str, Any]) -> bool:
    return any(tool.get("custom", {}).get("name") == name for tool in body.get("tools") or ())


def _call(answer: Answer, place: int, body: dict[str, Any]) -> dict[str, Any]:
    name, arguments = answer.tools[place]
    ident = f"call_{answer.turn}{place}"
    if _is_custom(name, body):
        custom = {"name": name, "input": json.loads(arguments)["input"]}
        return {"id": ident, "type": "custom", "custom": custom}
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def _head(call: RecordedCall, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-upstream", "object": kind, "created": CREATED, "model": f"{call.body['model']}-2026-01-01"}


def _events(answer: Answer, call: RecordedCall) -> Iterator[bytes]:
    """Return the stream's events as bytes."""
    include_usage = (call.body.get("stream_options") or {}).get("include_usage")
    head = _head(call, "chat.completion.chunk") | {"service_tier": answer.service_tier, "system_fingerprint": "fp_fake"}
    if include_usage:
        head["usage"] = None
    sent = 0
    for index in range(answer.n):
        for delta, finish in _deltas(answer, call.body):
            if answer.error_at is not None and sent >= answer.error_at:
                yield b"data: " + (json.dumps(answer.error).encode() if answer.error else _error(answer)) + b"\n\n"
                return
            yield _event(head, [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}])
            sent += 1
    if include_usage and answer.usage:
        yield _event(head | {"usage": call.usage}, [])
    if answer.done:
        yield b"data: [DONE]\n\n"


def _event(head: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
    chunk = head | {"choices": choices}
    if not any("custom" in call for choice in choices for call in choice["delta"].get("tool_calls", ())):
        ChatCompletionChunk.model_validate(chunk)  # the published type has functions only
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _deltas(answer: Answer, body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": None if answer.tools else "", "refusal": None}, None
    for piece in _pieces(answer.thought, answer.piece):
        yield {"reasoning_content": piece}, None
    for piece in _pieces(answer.text, answer.piece):
        yield {"content": piece}, None
    for piece in _pieces(answer.refusal, answer.piece):
        yield {"refusal": piece}, None
    calls = [_call(answer, place, body) for place in range(len(answer.tools))]
    members = ["input" if call["type"] == "custom" else "arguments" for call in calls]
    waiting = [
        list(_pieces(call[call["type"]][member], answer.piece)) for call, member in zip(calls, members, strict=True)
    ]
    for place, (call, member) in enumerate(zip(calls, members, strict=True)):
        kind = call["type"]
        yield {"tool_calls": [{"index": place, **call, kind: {"name": call[kind]["name"], member: ""}}]}, None
    while any(waiting):
        for place, pieces in enumerate(waiting):
            if pieces:
                delta = {"index": place, calls[place]["type"]: {members[place]: pieces.pop(0)}}
                yield {"tool_calls": [delta]}, None
    if answer.finish_chunk:
        yield {}, _finish_of(answer)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
