"""A strict fake of api.cohere.com: POST /v2/chat, whole and streamed.

    with FakeCohere() as upstream:
        upstream.script(Answer("Hi", thinking="Hm."), Answer(status=429))
        ... call upstream.url + "/chat" ...

Shapes follow the public reference of v2/chat and its list of errors. Unknown members are refused at every depth, as are
values out of range and mutually exclusive fields. Each request consumes one answer of the script; after its end every
request gets `Answer("Hello.")`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fakes.server import FakeServer, headers_of, send_json

KEY = "cohere-test-key"
CALL = {"id": str, "type": "function", "function": {"name": str, "arguments": str}}
FIELDS = {
    *("model", "stream", "messages", "tools", "strict_tools", "documents", "citation_options", "response_format"),
    *("safety_mode", "max_tokens", "stop_sequences", "temperature", "seed", "frequency_penalty", "presence_penalty"),
    *("k", "p", "logprobs", "tool_choice", "thinking", "priority"),
}
RANGES = {
    "temperature": (0, 1),
    "p": (0.01, 0.99),
    "k": (0, 500),
    "frequency_penalty": (0, 1),
    "presence_penalty": (0, 1),
}
BLOCKS = {
    "system": {"text": {"text"}},
    "user": {"text": {"text"}, "image_url": {"image_url"}},
    "assistant": {"text": {"text"}, "thinking": {"thinking"}},
    "tool": {"text": {"text"}, "document": {"document"}},
}
MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "tool_plan", "citations"},
    "tool": {"role", "content", "tool_call_id"},
}
SCHEMA_LACKS = ("minimum", "maximum", "minLength", "maxLength", "allOf", "oneOf", "not", "uniqueItems", "minItems")
USAGE = {
    "billed_units": {"input_tokens": 11.0, "output_tokens": 7.0},
    "tokens": {"input_tokens": 80.0, "output_tokens": 9.0},
    "cached_tokens": 4.0,
}


@dataclass(frozen=True)
class Answer:
    """`tools` are (name, arguments). `cited` are (start, end, document). `ends` False leaves out message-end.
    `turn` distinguishes the ids of calls from those of other answers."""

    text: str = ""
    thinking: str = ""
    plan: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    cited: tuple[tuple[int, int, dict[str, Any]], ...] = ()
    cited_as: str | None = "TEXT_CONTENT"
    finish: str = ""
    status: int = 200
    message: str = ""
    piece: int = 5
    ends: bool = True
    turn: str = ""


@dataclass
class Recorded:
    headers: dict[str, str]
    body: Any = None
    status: int = 0
    problem: str = ""


class Refused(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class FakeCohere(FakeServer):
    """The service; `calls` are Recorded."""

    base = "/v2"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        call = Recorded(headers)
        self.calls.append(call)
        try:
            if headers.get("authorization") != f"Bearer {KEY}":
                raise Refused("invalid api token", 401)
            if environ["PATH_INFO"] != "/v2/chat":
                raise Refused("endpoint not found", 404)
            call.body = json.loads(payload)
            check_body(call.body)
        except Refused as refused:
            call.status, call.problem = refused.status, str(refused)
            return send_json(start, refused.status, {"id": "e-1", "message": str(refused)})
        answer = self.next_answer(Answer("Hello."))
        call.status = answer.status
        if answer.status != 200:
            return send_json(start, answer.status, {"id": "e-1", "message": answer.message})
        if call.body.get("stream"):
            start("200 OK", [("Content-Type", "text/event-stream")])
            return _events(answer)
        return send_json(start, 200, _whole(answer))


def _require(right: object, message: str) -> None:
    if not right:
        raise Refused(f"invalid request: {message}")


def check_body(body: dict[str, Any]) -> None:
    """Raise Refused for a body that the reference does not allow."""
    for name in body:
        _require(name in FIELDS, f"unknown field: {name}")
    _require(isinstance(body.get("model"), str), "a model parameter is required for this endpoint.")
    for name, (low, high) in RANGES.items():
        _require(low <= body.get(name, low) <= high, f"{name} must be between {low} and {high} inclusive.")
    both = body.get("frequency_penalty") and body.get("presence_penalty")
    _require(not both, "cannot specify both frequency_penalty and presence_penalty.")
    _require(len(body.get("stop_sequences", ())) <= 5, "too many stop_sequences")
    _require(body.get("tool_choice") in (None, "REQUIRED", "NONE"), "tool_choice must be REQUIRED or NONE")
    _check_tools(body)
    _check_thinking(body.get("thinking"))
    _require(body.get("messages"), "messages must not be empty")
    waiting: set[str] = set()
    for place, message in enumerate(body["messages"]):
        _check_message(message, place)
        if message["role"] == "tool":
            _require(message["tool_call_id"] in waiting, f"tool call id not found: {message['tool_call_id']}")
            waiting.remove(message["tool_call_id"])
            continue
        _require(not waiting, f"no tool result for {min(waiting, default='')}")
        idents = [call["id"] for call in message.get("tool_calls") or ()]
        waiting = set(idents)
        _require(len(waiting) == len(idents), "duplicate tool call ids")
    _require(not waiting, f"no tool result for {min(waiting, default='')}")


def _check_thinking(thinking: Any) -> None:
    if thinking is None:
        return
    _require(thinking.keys() <= {"type", "token_budget"}, "unknown field in thinking")
    _require(thinking["type"] in ("enabled", "disabled"), "thinking.type")
    _require(thinking.get("token_budget", 1) > 0, "thinking.token_budget must be positive")


def _check_tools(body: dict[str, Any]) -> None:
    for tool in body.get("tools") or ():
        _require(tool.keys() == {"type", "function"} and tool["type"] == "function", "tool type must be function")
        function = tool["function"]
        _require(function.keys() <= {"name", "description", "parameters"}, "unknown field in function")
        _require(isinstance(function.get("parameters"), dict), "parameters are required")
        _check_schema(function["parameters"])
    response_format = body.get("response_format")
    if response_format is not None:
        _require(not body.get("tools"), "response_format is not supported with tools.")
        _require(response_format["type"] in ("text", "json_object"), "response_format.type")
        _require(response_format.keys() <= {"type", "json_schema"}, "unknown field in response_format")
        _check_schema(response_format.get("json_schema", {}))


def _check_schema(schema: Any) -> None:
    if isinstance(schema, list):
        for one in schema:
            _check_schema(one)
    elif isinstance(schema, dict):
        for keyword, value in schema.items():
            _require(keyword not in SCHEMA_LACKS, f"schema uses {keyword}")
            _check_schema(value)


def _check_message(message: dict[str, Any], place: int) -> None:
    role = message.get("role")
    _require(role in MEMBERS, f"unknown role {role}")
    _require(message.keys() <= MEMBERS[role], f"unknown field in a message of role {role}")
    _require(role != "system" or place == 0, "system turn must be the first in the list")
    _require(message.get("content") or message.get("tool_calls"), "message must not be empty in a turn")
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        kinds = BLOCKS[role]
        _require(block.get("type") in kinds, f"unknown content type {block.get('type')} for role {role}")
        _require(block.keys() == {"type", *kinds[block["type"]]}, "unknown field in a content block")
    for call in message.get("tool_calls") or ():
        _require(call.keys() == CALL.keys() and call["function"].keys() == {"name", "arguments"}, "tool call shape")
        _require(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments must be a JSON object")


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"{name}_{answer.turn}{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(answer.tools)
    ]


def _citations(answer: Answer, index: int) -> list[dict[str, Any]]:
    return [
        {
            "start": start,
            "end": end,
            "text": answer.text[start:end],
            "sources": [{"type": "document", "id": document.get("id", "doc:0"), "document": document}],
            "content_index": index,
            "type": answer.cited_as,
        }
        for start, end, document in answer.cited
    ]


def _finish(answer: Answer) -> str:
    return answer.finish or ("TOOL_CALL" if answer.tools else "COMPLETE")


def _whole(answer: Answer) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": answer.thinking}] if answer.thinking else []
    index = len(content)
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if answer.plan:
        message["tool_plan"] = answer.plan
    if answer.tools:
        message["tool_calls"] = _calls(answer)
    if answer.cited:
        message["citations"] = _citations(answer, index)
    return {"id": "c-1", "finish_reason": _finish(answer), "message": message, "usage": USAGE}


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _events(answer: Answer) -> Iterator[bytes]:
    for event in _wire_events(answer):
        yield b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())


def _wire_events(answer: Answer) -> Iterator[dict[str, Any]]:
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield {"type": "message-start", "id": "c-1", "delta": {"message": empty}}
    for piece in _pieces(answer.plan, answer.piece):
        yield {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}}
    index = 0
    for kind, text in (("thinking", answer.thinking), ("text", answer.text)):
        if not text:
            continue
        yield _of("content-start", index, content={"type": kind, kind: ""})
        for piece in _pieces(text, answer.piece):
            yield _of("content-delta", index, content={kind: piece})
        if kind == "text":
            for place, citation in enumerate(_citations(answer, index)):
                yield _of("citation-start", place, citations=citation)
                yield {"type": "citation-end", "index": place}
        yield {"type": "content-end", "index": index}
        index += 1
    for place, call in enumerate(_calls(answer)):
        arguments = call["function"]["arguments"]
        started = {**call, "function": {**call["function"], "arguments": ""}}
        yield _of("tool-call-start", place, tool_calls=started)
        for piece in _pieces(arguments, answer.piece):
            yield _of("tool-call-delta", place, tool_calls={"function": {"arguments": piece}})
        yield {"type": "tool-call-end", "index": place}
    if answer.ends:
        yield {"type": "message-end", "delta": {"finish_reason": _finish(answer), "usage": USAGE}}


def _of(kind: str, index: int, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}
