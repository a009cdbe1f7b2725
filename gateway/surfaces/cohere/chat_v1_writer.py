"""Writes answers and events of chats in version 2 of Cohere's format as those of version 1."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from gateway.dialects.cohere import FAILED, TIMED_OUT
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatResult
from gateway.neutral.events import Batch
from gateway.neutral.long_json import dumps
from gateway.runtime.threads import compute_if
from gateway.surfaces.cohere.chat_v1_answers import (
    V1ChatAnswer,
    V1ChatEvent,
    V1Citation,
    V1Meta,
    V1ToolCall,
)
from gateway.surfaces.cohere.cohere_chat_answers import CohereEvent
from gateway.surfaces.cohere.cohere_chat_stream import ChatEvents, failure_of
from gateway.surfaces.cohere.cohere_chat_writer import answer_of
from gateway.surfaces.facts import AnswerCost, Facts
from gateway.surfaces.http_responses import write_frames

Json = dict[str, Any]
History = list[Json]
THREAD_SIZE = 1 << 17  # characters of an answer from which its last event is written in a thread
END = b"\n"  # behind each event; an empty line keeps the connection open
FINISH = {"TOOL_CALL": "COMPLETE", TIMED_OUT: FAILED}  # reasons that this version lacks


def reply(result: ChatResult, facts: Facts, history: History) -> bytes:
    """Return the body of a response; `history` are the messages of the request."""
    return dumps(_write_answer(answer_of(result, facts), history), result.large)


def frames(batches: Iterable[Batch], facts: Facts, history: History, large: bool) -> Iterator[bytes]:
    """Write one event a line. The last one has the whole answer and the history, which is `large` as the request."""
    events = ChatEvents(facts, _V1Events(history, large).write, END)
    return write_frames(batches, events.write, events.fail)


def write_failure(error: GatewayError, request_id: str) -> bytes:
    """Return the last event of a failed stream."""
    return _V1Events([], False).write(failure_of(error, request_id))


class _CallPieces(NamedTuple):
    """The pieces of a call, which are joined once, so that many pieces take linear time."""

    name: list[str]
    arguments: list[str]

    def join(self) -> Json:
        return {"name": "".join(self.name), "arguments": "".join(self.arguments)}


class _V1Events:
    """The answer of a stream so far, since the last event repeats it."""

    def __init__(self, history: History, large: bool) -> None:
        self._history = history
        self._large = large
        self._size = 0  # of texts and arguments
        self._id = ""
        self._texts: list[str] = []
        self._plan: list[str] = []
        self._calls: dict[int, _CallPieces] = {}
        self._citations: list[Json] = []

    def write(self, event: CohereEvent) -> bytes:
        """Return the lines for an event of version 2; none where this version has no such event."""
        write = WRITERS.get(event["type"])
        if write is None:
            return b""
        large = event["type"] == "message-end" and (self._large or self._size > THREAD_SIZE)
        return compute_if(large, self._write_lines, write, event)

    def _write_lines(self, write: "Write", event: CohereEvent) -> bytes:
        delta: Any = event.get("delta") or {}
        return b"".join(map(_line, write(self, event, delta.get("message") or {})))

    def _start(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        self._id = event["id"]
        yield {"event_type": "stream-start", "generation_id": self._id}

    def _text(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        text = message["content"].get("text")
        if text:
            self._texts.append(text)
            self._size += len(text)
            yield {"event_type": "text-generation", "text": text}

    def _think(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        text = message["tool_plan"]
        self._plan.append(text)
        yield {"event_type": "tool-calls-chunk", "text": text}

    def _call(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        """Add the start of a call, or a piece of its arguments."""
        index = event["index"]
        piece = message["tool_calls"]["function"]
        name = piece.get("name") or ""
        arguments = piece.get("arguments") or ""
        pieces = self._calls.setdefault(index, _CallPieces([], []))
        pieces.name.append(name)
        pieces.arguments.append(arguments)
        self._size += len(arguments)
        if name:
            yield {"event_type": "tool-calls-chunk", "tool_call_delta": {"name": name, "index": index}}
        if arguments:
            yield {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": index, "parameters": arguments}}

    def _cite(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        citation = message["citations"]
        self._citations.append(citation)
        yield {"event_type": "citation-generation", "citations": [_write_citation(citation)]}

    def _finish(self, event: CohereEvent, message: Json) -> Iterator[V1ChatEvent]:
        message = {
            "content": [{"type": "text", "text": "".join(self._texts)}],
            "tool_plan": "".join(self._plan),
            "tool_calls": [{"function": pieces.join()} for pieces in self._calls.values()],
            "citations": self._citations,
        }
        delta: Any = event["delta"]
        answer = _write_answer({**event, **delta, "message": message}, self._history)
        if "tool_calls" in answer:
            calls = answer["tool_calls"]
            text = answer["text"]
            yield {"event_type": "tool-calls-generation", "text": text, "tool_calls": calls}
        end: V1ChatEvent = {"event_type": "stream-end", "finish_reason": answer["finish_reason"], "response": answer}
        if "error" in delta:
            end["error"] = delta["error"]
        yield end


def _line(event: V1ChatEvent) -> bytes:
    event["is_finished"] = event["event_type"] == "stream-end"
    return orjson.dumps(event) + END


Write = Callable[[_V1Events, CohereEvent, Json], Iterator[V1ChatEvent]]
WRITERS: dict[str, Write] = {
    "message-start": _V1Events._start,
    "content-start": _V1Events._text,
    "content-delta": _V1Events._text,
    "tool-plan-delta": _V1Events._think,
    "tool-call-start": _V1Events._call,
    "tool-call-delta": _V1Events._call,
    "citation-start": _V1Events._cite,
    "message-end": _V1Events._finish,
}


def _write_answer(body: Json, history: History) -> V1ChatAnswer:
    """Return an answer of version 2 in version 1, where the plan of calls is its text."""
    message = body["message"]
    calls = [_write_call(call["function"]) for call in message.get("tool_calls") or ()]
    text = "".join(block["text"] for block in message.get("content") or () if block["type"] == "text")
    if calls and not text:
        text = message.get("tool_plan") or ""
    said: Json = {"role": "CHATBOT", "message": text}
    answer: Any = {
        "response_id": body["id"],
        "generation_id": body["id"],
        "text": text,
        "finish_reason": FINISH.get(body["finish_reason"], body["finish_reason"]),
        "chat_history": [*history, said],
        "meta": _write_meta(body),
    }
    if calls:
        answer["tool_calls"] = said["tool_calls"] = calls
    citations = message.get("citations") or ()
    if citations:
        answer["citations"] = list(map(_write_citation, citations))
        answer["documents"] = list(
            {source["id"]: source for source in map(_write_source, _sources_of(citations))}.values()
        )
    if "model" in body:  # not in a stream that failed
        usage = body["usage"]
        answer |= {"model": body["model"], "metadata": body["metadata"]}
        answer["usage"] = {name: usage[name] for name in AnswerCost.__annotations__}
    return answer


def _write_meta(body: Json) -> V1Meta:
    meta: V1Meta = {"api_version": {"version": "1"}}
    usage = body.get("usage") or {}
    if "billed_units" in usage:
        meta["billed_units"] = usage["billed_units"]
    if "tokens" in usage:
        meta["tokens"] = usage["tokens"]
    if "cached_tokens" in usage:
        meta["cached_tokens"] = usage["cached_tokens"]
    warnings = (body.get("metadata") or {}).get("warnings")
    if warnings:
        meta["warnings"] = warnings
    return meta


def _write_call(function: Json) -> V1ToolCall:
    """Return a call. Arguments that are no JSON object, which models may write, are left out."""
    try:
        parameters = orjson.loads(function["arguments"] or "{}")
    except orjson.JSONDecodeError:
        parameters = {}
    return {"name": function["name"], "parameters": parameters if isinstance(parameters, dict) else {}}


def _write_citation(citation: Json) -> V1Citation:
    idents = [_ident_of(source) for source in citation.get("sources") or ()]
    start = citation.get("start") or 0
    return {"start": start, "end": citation.get("end") or 0, "text": citation.get("text") or "", "document_ids": idents}


def _sources_of(citations: Iterable[Json]) -> Iterator[Json]:
    for citation in citations:
        yield from citation.get("sources") or ()


def _write_source(source: Json) -> Json:
    return {**(source.get("document") or source.get("tool_output") or {}), "id": _ident_of(source)}


def _ident_of(source: Json) -> str:
    return source.get("id") or ""
