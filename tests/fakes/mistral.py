"""A strict fake of api.mistral.ai: bodies are checked with the models of the `mistralai` package.

    with FakeMistral() as upstream:
        upstream.script(Answer("Hi", thinking="Hm."))
        ... call upstream.url + "/chat/completions" ...

Members that the package does not know are refused at every depth, as the real service does, and its rules on ids, order
and last message hold. Each request consumes one answer of the script; after its end every request gets
`Answer("Hello.")`.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mistralai.client
from fakes.server import FakeServer, headers_of, send_json
from fakes.tool_rules import NAME_64, repeated
from pydantic import BaseModel, ValidationError

CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
KEY = "mistral-test-key"


@dataclass(frozen=True)
class Answer:
    text: str = ""
    thinking: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    finish: str = ""
    piece: int = 8
    done: bool = True
    status: int = 200


@dataclass
class Recorded:
    headers: dict[str, str]
    body: Any = None
    status: int = 200
    problem: Any = None


class Refused(Exception):
    def __init__(self, message: Any, kind: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(str(message))
        self.status = status
        self.body = {"object": "error", "message": message, "type": kind, "param": None, "code": code}


class FakeMistral(FakeServer):
    """The service; `calls` are Recorded."""

    base = "/v1"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        call = Recorded(headers)
        self.calls.append(call)
        try:
            if headers.get("authorization") != f"Bearer {KEY}":
                raise Refused("Unauthorized", "unauthorized", 401)
            if environ["PATH_INFO"] != "/v1/chat/completions":
                raise Refused("no Route matched with those values", "not_found", 404)
            call.body = check_body(payload)
        except Refused as refused:
            call.status, call.problem = refused.status, refused.body["message"]
            return send_json(start, refused.status, refused.body)
        answer = self.next_answer(Answer("Hello."))
        if answer.status != 200:
            call.status = answer.status
            body = {"object": "error", "message": "Scripted.", "type": "server_error", "param": None, "code": None}
            return send_json(start, answer.status, body)
        if call.body.get("stream"):
            start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
            return _events(answer, call.body["model"])
        return send_json(start, 200, _whole(answer, call.body["model"]))


def check_body(payload: bytes) -> dict[str, Any]:
    """Return a valid body. Refused for an invalid one."""
    body = json.loads(payload)
    try:
        request = mistralai.client.models.ChatCompletionRequest.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        _refuse_shape(first["type"], [*first["loc"]], first["msg"])
    _refuse_extra(body, request, [])
    for tool in body.get("tools") or ():
        _check_name(tool["function"]["name"])
    _check_order(body["messages"])
    return body


def _refuse_shape(kind: str, place: list[Any], text: str) -> None:
    detail = {"type": kind, "loc": ["body", *place], "msg": text}
    raise Refused({"detail": [detail]}, "invalid_request_error", 422)


def _refuse_extra(sent: Any, read: Any, place: list[Any]) -> None:
    """Raise Refused for members that the models of the package do not contain."""
    if isinstance(read, BaseModel):
        known = {field.alias or name: name for name, field in type(read).model_fields.items()}
        for name, value in sent.items():
            if name not in known:
                _refuse_shape("extra_forbidden", [*place, name], "Extra inputs are not permitted")
            _refuse_extra(value, getattr(read, known[name]), [*place, name])
    elif isinstance(read, list):
        for number, (one, other) in enumerate(zip(sent, read, strict=True)):
            _refuse_extra(one, other, [*place, number])


def _check_order(messages: list[dict[str, Any]]) -> None:
    _check_calls(messages)
    for before, message in itertools.pairwise(messages):
        if (before["role"], message["role"]) == ("tool", "user"):
            raise Refused("Unexpected role 'user' after role 'tool'", "invalid_request_message_order", 400, "3230")
    last = messages[-1]
    if last["role"] not in ("user", "tool") and not last.get("prefix"):
        text = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        raise Refused(text, "invalid_request_message_order", 400, "3230")


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Check names and ids of calls, and that the results of a turn's calls follow it directly."""
    waiting: list[str] = []
    for message in messages:
        calls = message.get("tool_calls") or ()
        idents = [call["id"] for call in calls]
        for call in calls:
            _check_name(call["function"]["name"])
        for ident in [*idents, *([message["tool_call_id"]] if message.get("tool_call_id") else [])]:
            if not CALL_ID.fullmatch(ident):
                text = f"Tool call id was {ident} but must be a-z, A-Z, 0-9, with a length of 9."
                raise Refused(text, "invalid_function_call", 400, "3280")
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused("Unexpected tool call id in tool results", "invalid_request_message_order", 400, "3230")
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            text = "Not the same number of function calls and responses"
            raise Refused(text, "invalid_request_message_order", 400, "3230")
        if repeated(idents):
            raise Refused("Duplicate tool call id in assistant message", "invalid_function_call", 400, "3280")
        waiting = idents


def _check_name(name: str) -> None:
    if not NAME_64.fullmatch(name):
        text = f"Function name was {name} but must be a-z, A-Z, 0-9, or contain underscores and dashes, at most 64."
        raise Refused(text, "invalid_function_call", 400, "3280")


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": "cmpl-1", "object": kind, "created": 1_767_225_600, "model": model}


def _content(answer: Answer, text: str) -> Any:
    if not answer.thinking:
        return text
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": answer.thinking}]}
    return [thinking, {"type": "text", "text": text}]


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"callid00{place}", "index": place, "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(answer.tools)
    ]


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.tools else "stop")


def _whole(answer: Answer, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": _content(answer, answer.text), "tool_calls": _calls(answer) or None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    body = _head(model, "chat.completion") | {"choices": [choice], "usage": USAGE}
    mistralai.client.models.ChatCompletionResponse.model_validate(body)
    return body


def _events(answer: Answer, model: str) -> Iterator[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for at in range(0, len(answer.thinking), answer.piece):
        part = {"type": "text", "text": answer.thinking[at : at + answer.piece]}
        deltas.append({"content": [{"type": "thinking", "thinking": [part]}]})
    deltas += [{"content": answer.text[at : at + answer.piece]} for at in range(0, len(answer.text), answer.piece)]
    if answer.tools:
        deltas.append({"content": "", "tool_calls": _calls(answer)})
    for place, delta in enumerate(deltas):
        last = place == len(deltas) - 1
        choice = {"index": 0, "delta": delta, "finish_reason": _finish(answer) if last else None}
        chunk = _head(model, "chat.completion.chunk") | {"choices": [choice]} | ({"usage": USAGE} if last else {})
        mistralai.client.models.CompletionChunk.model_validate(chunk)
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    if answer.done:
        yield b"data: [DONE]\n\n"
