"""A strict fake of the Responses API: refuses the requests that the service refuses, answers by script and records
calls.

    with FakeResponses() as upstream:
        upstream.script(Answer(thought("Hm."), call("weather", '{"city": "Oslo"}')), Answer(said("It rains.")))
        ... call upstream.url + "/responses" ...

Every request is checked against the published request types, unknown members refused at every depth. It keeps nothing:
ids of items are refused as unknown, and sealed reasoning must come back byte for byte as it was handed out. A script is
used up one answer a request; after its end every request gets `Answer(said("Hello."))`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gevent
from fakes.published_types import PublishedUnion
from fakes.responses_checks import KEEPING_IDS, Refused, check_request
from fakes.server import FakeServer, Progress, headers_of, send, send_json
from openai.types.responses import Response, ResponseStreamEvent

CREATED = 1_767_225_600
EVENT = PublishedUnion(ResponseStreamEvent)
Json = dict[str, Any]


def said(text: str, *, sources: tuple[str, ...] = ()) -> Json:
    notes = [{"type": "url_citation", "url": u, "title": "T", "start_index": 0, "end_index": 1} for u in sources]
    part = {"type": "output_text", "text": text, "annotations": notes, "logprobs": []}
    return {"type": "message", "status": "completed", "role": "assistant", "content": [part]}


def refused(text: str) -> Json:
    part = {"type": "refusal", "refusal": text}
    return {"type": "message", "status": "completed", "role": "assistant", "content": [part]}


def call(name: str, arguments: str, ident: str = "") -> Json:
    return {"type": "function_call", "status": "completed", "call_id": ident, "name": name, "arguments": arguments}


def custom_call(name: str, text: str) -> Json:
    return {"type": "custom_tool_call", "call_id": "", "name": name, "input": text}


def thought(*summary: str) -> Json:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in summary]}


def searched(query: str) -> Json:
    return {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": query}}


def drawn(data: str) -> Json:
    return {"type": "image_generation_call", "status": "completed", "result": data}


def looked_up(query: str, file: str) -> Json:
    results = [{"file_id": file, "filename": "a.pdf", "score": 0.5, "text": "Rain."}]
    return {"type": "file_search_call", "status": "completed", "queries": [query], "results": results}


def ran(code: str) -> Json:
    outputs = [{"type": "logs", "logs": "4"}]
    return {
        "type": "code_interpreter_call",
        "status": "completed",
        "container_id": "cntr_1",
        "code": code,
        "outputs": outputs,
    }


# The service's tools: the name of the event that reports progress.
PROGRESS = {
    "web_search_call": "searching",
    "image_generation_call": "generating",
    "file_search_call": "searching",
    "code_interpreter_call": "interpreting",
}
ID_BEGINNINGS = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "tool_search_call": "tsc",
    "compaction": "cmp",
    **KEEPING_IDS,
}


class Answer:
    """One scripted answer.

    `incomplete` is a reason of incomplete_details, `failed` an error code that ends it, `cancelled` a cancellation.
    `status` other than 200 is an HTTP error. `piece` is the size of deltas; deltas of calls come interleaved.
    `fragment` cuts the bytes into writes of that size, `cut` breaks the connection after so many. `terminal` leaves
    out the closing event, `error_at` puts an `error` event after so many events, `raw` replaces the whole body,
    `members` are more of the response object.
    """

    def __init__(self, *items: Json, **more: Any) -> None:
        self.items = items
        self.incomplete: str = more.pop("incomplete", "")
        self.failed: str = more.pop("failed", "")
        self.cancelled: bool = more.pop("cancelled", False)
        self.status: int = more.pop("status", 200)
        self.code: str = more.pop("code", "server_error")
        self.prompt: int = more.pop("prompt", 10)
        self.cached: int = more.pop("cached", 0)
        self.completion: int = more.pop("completion", 5)
        self.reasoning: int = more.pop("reasoning", 0)
        self.piece: int = more.pop("piece", 8)
        self.fragment: int = more.pop("fragment", 0)
        self.cut: int | None = more.pop("cut", None)
        self.terminal: bool = more.pop("terminal", True)
        self.error_at: int | None = more.pop("error_at", None)
        self.silence_s: float = more.pop("silence_s", 0.0)
        self.gap_s: float | None = more.pop("gap_s", None)
        self.raw: bytes | None = more.pop("raw", None)
        self.members: Json = more.pop("members", {})
        assert not more, f"unknown: {more}"


@dataclass
class Recorded(Progress):
    """A recorded request and its outcome."""

    headers: dict[str, str]
    body: Any = None
    status: int = 200
    problem: str = ""


class FakeResponses(FakeServer):
    """The service; `calls` are Recorded, `sealed` the encrypted content that it handed out."""

    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.sealed: set[str] = set()

    def serve(self, environ: Json, start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        recorded = Recorded(headers)
        self.calls.append(recorded)
        try:
            recorded.body = check_request(environ, headers, environ["wsgi.input"].read(), self.sealed)
        except Refused as problem:
            recorded.status, recorded.problem = problem.status, str(problem)
            return send_json(start, problem.status, problem.body)
        answer = self.next_answer(Answer(said("Hello.")))
        recorded.status = answer.status
        gevent.sleep(answer.silence_s)
        if answer.status != 200:
            error = {"message": "Scripted.", "type": "server_error", "param": None, "code": answer.code}
            return send_json(start, answer.status, {"error": error})
        response = FakeResponse(answer, recorded.body, len(self.calls), self.sealed)
        if not recorded.body.get("stream"):
            return send_json(start, 200, answer.raw or response.response())
        start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8")])
        pieces = [answer.raw] if answer.raw is not None else response.frames()
        return send(environ, pieces, recorded, fragment=answer.fragment, cut=answer.cut, gap_s=answer.gap_s)


class FakeResponse:
    """An answer to be sent."""

    def __init__(self, answer: Answer, body: Json, turn: int, sealed: set[str]) -> None:
        self._answer = answer
        self._body = body
        self._sequence = 0
        self._items = [self._dress(item, place, turn, sealed) for place, item in enumerate(answer.items)]

    def _dress(self, item: Json, place: int, turn: int, sealed: set[str]) -> Json:
        """Return an item with its ids and, when requested, its encrypted content."""
        if item["type"] == "function_call" and self._is_custom(item["name"]):
            item = custom_call(item["name"], json.loads(item["arguments"])["input"])
        dressed = {"id": f"{ID_BEGINNINGS[item['type']]}_{turn}{place}", **item}
        if "call_id" in item:
            dressed["call_id"] = item["call_id"] or f"call_{turn}_{place}"
        if item["type"] == "reasoning" and "reasoning.encrypted_content" in self._body.get("include", ()):
            dressed["encrypted_content"] = f"gAAAA-{turn}.{place}+/é=="
            sealed.add(dressed["encrypted_content"])
        return dressed

    def _is_custom(self, name: str) -> bool:
        return any(tool["type"] == "custom" and tool["name"] == name for tool in self._body.get("tools") or ())

    def response(self, status: str = "", output: list[Json] | None = None) -> Json:
        answer = self._answer
        ended = "incomplete" if answer.incomplete else "failed" if answer.failed else "completed"
        ended = "cancelled" if answer.cancelled else ended
        body = {
            "id": "resp_upstream",
            "object": "response",
            "created_at": CREATED,
            "status": status or ended,
            "error": {"code": answer.failed, "message": "Scripted."} if answer.failed and not status else None,
            "incomplete_details": {"reason": answer.incomplete} if answer.incomplete and not status else None,
            "model": f"{self._body['model']}-2026-01-01",
            "output": self._items if output is None else output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "service_tier": "default",
            "usage": None if status else self._usage(),
            **answer.members,
        }
        Response.model_validate(body)
        return body

    def _usage(self) -> Json:
        answer = self._answer
        return {
            "input_tokens": answer.prompt,
            "input_tokens_details": {"cached_tokens": answer.cached, "cache_write_tokens": 0},
            "output_tokens": answer.completion,
            "output_tokens_details": {"reasoning_tokens": answer.reasoning},
            "total_tokens": answer.prompt + answer.completion,
        }

    def frames(self) -> Iterator[bytes]:
        for number, event in enumerate(self._events()):
            if number == self._answer.error_at:
                error = {"type": "server_error", "code": "server_error", "message": "Scripted.", "param": None}
                yield b"event: error\ndata: %b\n\n" % json.dumps({"type": "error", "error": error}).encode()
                return
            event["sequence_number"] = number
            if event["type"] != "response.cancelled":
                EVENT.check(event)
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    def _events(self) -> Iterator[Json]:
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": self.response("in_progress", [])}
        waiting: list[list[Json]] = []
        for index, item in enumerate(self._items):
            steps = list(_steps(index, item, self._answer.piece))
            if item["type"] in ("function_call", "custom_tool_call"):
                waiting.append(steps)
                continue
            yield from _interleave(waiting)
            yield from steps
        yield from _interleave(waiting)
        if self._answer.terminal:
            response = self.response()
            yield {"type": f"response.{response['status']}", "response": response}


def _interleave(waiting: list[list[Json]]) -> Iterator[Json]:
    while any(waiting):
        for steps in waiting:
            if steps:
                yield steps.pop(0)
    waiting.clear()


def _steps(index: int, item: Json, size: int) -> Iterator[Json]:
    """Return the events of an item, in the order of the real service."""
    place = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": _bare(item)}
    if item["type"] == "message":
        yield from _message_steps(item["content"][0], {**place, "content_index": 0}, size)
    elif item["type"] == "reasoning":
        for number, part in enumerate(item["summary"]):
            at = {**place, "summary_index": number}
            yield {"type": "response.reasoning_summary_part.added", **at, "part": {"type": "summary_text", "text": ""}}
            for piece in _pieces(part["text"], size):
                yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        kind = "response.function_call_arguments"
        yield from ({"type": f"{kind}.delta", **place, "delta": piece} for piece in _pieces(item["arguments"], size))
        yield {"type": f"{kind}.done", **place, "arguments": item["arguments"]}
    elif item["type"] == "custom_tool_call":
        kind = "response.custom_tool_call_input"
        yield from ({"type": f"{kind}.delta", **place, "delta": piece} for piece in _pieces(item["input"], size))
        yield {"type": f"{kind}.done", **place, "input": item["input"]}
    elif item["type"] in PROGRESS:
        yield from _progress_steps(item, place)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _progress_steps(item: Json, place: Json) -> Iterator[Json]:
    """Return the progress events of one of the service's tools."""
    kind = f"response.{item['type']}"
    yield {"type": f"{kind}.in_progress", **place}
    yield {"type": f"{kind}.{PROGRESS[item['type']]}", **place}
    if item["type"] == "image_generation_call":
        yield {"type": f"{kind}.partial_image", **place, "partial_image_index": 0, "partial_image_b64": item["result"]}
    elif item["type"] == "code_interpreter_call":
        yield {"type": f"{kind}_code.delta", **place, "delta": item["code"]}
        yield {"type": f"{kind}_code.done", **place, "code": item["code"]}
    yield {"type": f"{kind}.completed", **place}


def _message_steps(part: Json, place: Json, size: int) -> Iterator[Json]:
    refusal = part["type"] == "refusal"
    name, text = ("refusal", part["refusal"]) if refusal else ("output_text", part["text"])
    empty = {"type": "refusal", "refusal": ""} if refusal else {**part, "text": "", "annotations": []}
    more = {} if refusal else {"logprobs": []}
    yield {"type": "response.content_part.added", **place, "part": empty}
    for piece in _pieces(text, size):
        yield {"type": f"response.{name}.delta", **place, "delta": piece, **more}
    for number, note in enumerate(part.get("annotations", ())):
        kind = "response.output_text.annotation.added"
        yield {"type": kind, **place, "annotation_index": number, "annotation": note}
    yield {"type": f"response.{name}.done", **place, "refusal" if refusal else "text": text, **more}
    yield {"type": "response.content_part.done", **place, "part": part}


def _bare(item: Json) -> Json:
    """Return the item at its start."""
    started = {**item, "status": "in_progress"}
    if item["type"] == "custom_tool_call":
        del started["status"]
    empty: Json = {"content": [], "summary": [], "arguments": "", "input": ""}
    return started | {name: value for name, value in empty.items() if name in item}


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
