"""A strict fake of vendors of chat: it bills everything that a request's body has, and says what that is.

with StrictVendors() as vendors:
    ... call vendors.url + "/v1/messages", "/v1/responses", "/v1/chat/completions" and Gemini's paths ...
    vendors.calls[0].bills[3]  # nano-dollars when the words "mark-3" were sent; the last one is the whole bill
    vendors.calls[0].stored, .models  # ids of the account's objects, and names of further models, that reached it

Each tool is used before its own mark, so that a caller can leave after any of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fakes.hosted_tools import Message, Response, ToolCalls, frame
from fakes.server import FakeServer, send, send_json
from support import sdk_samples as samples

Json = dict[str, Any]
DOLLAR = 10**9
WORDS = 6
OUTPUT = 60
UNSEEN = 60_000  # tokens of a file at an address
IMAGE = 16_000  # of a very large image
SEEN = {samples.PICTURE: 700, samples.SOUND: 90, samples.PAGE: 700}
MODEL_NAMES = (samples.DEAR, *samples.DEAR_MODELS)
# Members with ids of stored objects, in the request or in a part of the conversation that reaches the object.
OBJECTS = frozenset(
    (
        *("file_id", "file_ids", "container", "container_id", "vector_store_ids", "cachedContent", "skill_id"),
        *("previous_response_id", "tunnel_id", "fileSearchStoreNames"),
    )
)
# Parts of earlier turns that only tell what was done.
HISTORY = re.compile(r"_result$|_output$|_call$|^tool_use$|^server_tool_use$|^message$|^output_text$")
STORED = ("gs://", "s3://", "https://generativelanguage.googleapis.com")


@dataclass
class StrictCall(ToolCalls):
    """A recorded request; `text` and `media` are the tokens of its prompt."""

    text: int = 0
    media: int = 0
    stored: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    bills: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> int:
        return self.text + self.media


class StrictVendors(FakeServer):
    """The service. `rates` are nano-dollars for a million tokens in and out, by model; `unseen` what a file at an
    address has; `boast` are searches that answers report and did not make."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: dict[str, tuple[int, int]] = {}
        self.unseen = UNSEEN
        self.boast = 0

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        call = StrictCall(path, json.loads(environ["wsgi.input"].read()))
        read(call, self.unseen)
        self.calls.append(call)
        name = call.body.get("model") or path.rpartition("/")[2].partition(":")[0]
        end = path.rpartition("/")[2]
        make = {"messages": StrictMessage, "responses": StrictResponse, "completions": Completion}.get(end, Generated)
        answer = make(call, *self.rates[name])
        if self.boast:
            answer.usage |= {"server_tool_use": {"web_search_requests": self.boast}}
            answer.usage |= {"web_search": {"num_requests": self.boast}}
        if not call.body.get("stream") and "stream" not in path:
            return send_json(start, 200, answer.whole())
        start("200 OK", [("Content-Type", "text/event-stream")])
        return send(environ, answer.events(), call, gap_s=0.001)


def read(call: StrictCall, unseen: int) -> None:
    """Count what the body of a request has."""
    size = 0
    for place, name, value in walk(call.body, (), ""):
        if not isinstance(value, str):
            continue
        parent = place[-1] if place else {}
        if value in MODEL_NAMES and place and not _is_told(place) and not _has_price(parent, name, place):
            call.models.append(f"{name}: {value}")
        if (value in samples.STORED or value.startswith(STORED)) and name in (*OBJECTS, "fileUri", "file_uri", "url"):
            if not _is_told(place) or _names_container(call.body, parent):
                call.stored.append(f"{name}: {value}")
            continue
        content = value.rpartition(";base64,")[2] if value.startswith("data:") else value
        if content in samples.CONTENTS:
            call.media += SEEN.get(content, len(content) // 8)
        elif value.startswith("https://"):
            call.media += _tokens_at(place, name, unseen)
        elif name not in ("role", "type"):
            size += len(value)
    call.text = size // 6


def walk(value: Any, place: tuple[Json, ...], name: str) -> Iterator[tuple[tuple[Json, ...], str, Any]]:
    """Each value with the objects around it and the name of its member."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*place, value), key)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, place, name)
    else:
        yield place, name, value


def _is_told(place: tuple[Json, ...]) -> bool:
    """Whether a value only tells of earlier turns: in the results and calls of tools, and in metadata."""
    return any(
        HISTORY.search(str(one.get("type") or "")) or name in one
        for one in place[1:]
        for name in ("functionCall", "functionResponse", "toolCall", "toolResponse")
    )


def _names_container(body: Json, item: Json) -> bool:
    """Whether a call of earlier turns names the container that the tool of the request continues in."""
    tools = [tool.get("type") for tool in body.get("tools") or ()]
    return item.get("type") == "code_interpreter_call" and "code_interpreter" in tools


def _has_price(parent: Json, name: str, place: tuple[Json, ...]) -> bool:
    """Whether it is the model of a tool that bills for it, or of a free operation."""
    kind = str(parent.get("type") or "")
    return name != "model" or kind.startswith(("advisor_", "image_generation")) or "moderation" in place[0]


def _tokens_at(place: tuple[Json, ...], name: str, unseen: int) -> int:
    """Tokens of what the vendor loads from an address as media: an image, or a file of any size."""
    loaded = name in ("image_url", "file_url", "fileUri", "file_data")
    if not loaded and not (name == "url" and (place[-1].get("type") == "url" or set(place[-1]) <= {"url", "detail"})):
        return 0
    if (
        str(place[-1].get("mimeType")).startswith("image/")
        or name == "image_url"
        or any("image_url" in one or one.get("type") == "image" for one in place[-2:])
    ):
        return min(unseen, IMAGE)
    return unseen


class Marks:
    """The bills of an answer: after each of its tools a mark, then the remaining words."""

    def __init__(self, call: StrictCall, rate_in: int, rate_out: int) -> None:
        self.call = call
        self.rate_in, self.rate_out = rate_in, rate_out
        self.tools = 0
        self.certain = 0  # tokens of the prompt that the events have reported

    def add(self, nusd: int) -> str:
        self.tools += nusd
        tokens = self.certain or self.call.text
        self.call.bills.append(self.tools + tokens * self.rate_in // 10**6)
        return f"mark-{len(self.call.bills) - 1} "

    def end(self) -> None:
        spent = self.call.prompt * self.rate_in + OUTPUT * self.rate_out
        self.call.bills.append(self.tools + spent // 10**6)
        self.call.bill = self.call.bills[-1]


class StrictMessage:
    """An answer of Anthropic's format."""

    def __init__(self, call: StrictCall, rate_in: int, rate_out: int) -> None:
        self.marks = Marks(call, rate_in, rate_out)
        self.marks.certain = call.prompt
        self.steps: list[tuple[Json | None, str]] = [(None, self.marks.add(0))]
        hourly = '"1h"' in json.dumps(call.body)
        self.usage: Json = {"input_tokens": 0 if hourly else call.prompt, "output_tokens": OUTPUT}
        if hourly:
            self.usage["cache_creation"] = {"ephemeral_1h_input_tokens": call.prompt, "ephemeral_5m_input_tokens": 0}
            self.usage["cache_creation_input_tokens"] = call.prompt
            self.marks.rate_in *= 2
        tools = call.body.get("tools") or ()
        for tool in tools:
            one = Message(ToolCalls(call.path, {**call.body, "tools": [tool]}))
            beside = [other.get("type") or "custom" for other in tools]
            spent = Message(ToolCalls(call.path, {**call.body, "tools": list(tools)})) if beside else one
            self.usage |= {name: spent.usage[name] for name in spent.usage.keys() - {"input_tokens", "output_tokens"}}
            bill = self._bill_of(tool, beside)
            self.steps += [(block, "") for block in one.blocks]
            self.steps.append((None, self.marks.add(bill)))
        self.marks.end()
        self.model = call.body["model"]

    def _bill_of(self, tool: Json, kinds: list[str]) -> int:
        free = [{"type": kind, "name": "x"} for kind in kinds if kind.startswith(("web_search_2026", "web_fetch_2026"))]
        call = ToolCalls("", {"model": "x", "tools": [tool, *free]})
        Message(call)
        beside = ToolCalls("", {"model": "x", "tools": free})
        Message(beside)
        return call.bill - beside.bill

    def head(self) -> Json:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "stop_sequence": None}

    def whole(self) -> Json:
        blocks = [block or {"type": "text", "text": text} for block, text in self.steps]
        return {**self.head(), "content": blocks, "stop_reason": "end_turn", "usage": self.usage}

    def events(self) -> Iterator[bytes]:
        start = {name: count for name, count in self.usage.items() if "input" in name or name == "cache_creation"}
        head = {**self.head(), "content": [], "stop_reason": None, "usage": {**start, "output_tokens": 1}}
        yield frame({"type": "message_start", "message": head})
        steps = [*self.steps, *((None, "word ") for _ in range(WORDS))]
        for number, (block, text) in enumerate(steps):
            shown = block or {"type": "text", "text": ""}
            yield frame({"type": "content_block_start", "index": number, "content_block": shown})
            if block is None:
                delta = {"type": "text_delta", "text": text}
                yield frame({"type": "content_block_delta", "index": number, "delta": delta})
            yield frame({"type": "content_block_stop", "index": number})
        yield frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": self.usage})
        yield frame({"type": "message_stop"})


class StrictResponse:
    """An answer of the Responses API."""

    def __init__(self, call: StrictCall, rate_in: int, rate_out: int) -> None:
        self.call, self.marks = call, Marks(call, rate_in, rate_out)
        self.steps: list[tuple[Json | None, str]] = [(None, self.marks.add(0))]
        self.usage: Json = {}
        later = [tool for item in _items(call.body) for tool in item.get("tools") or ()]
        for tool in [*(call.body.get("tools") or ()), *later]:
            one = Response(ToolCalls("", {"tools": []}))
            bill = one.use(_with_defaults(tool))
            self.usage |= one.tool_usage
            for item in one.items:
                self.steps.append(({**item, "id": f"it_{len(self.steps)}"}, ""))
            self.steps.append((None, self.marks.add(bill)))
        self.marks.end()

    def _item(self, number: int, text: str) -> Json:
        part = {"type": "output_text", "text": text, "annotations": []}
        return {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed", "content": [part]}

    def whole(self) -> Json:
        items = [item or self._item(number, text) for number, (item, text) in enumerate(self.steps)]
        usage = {"input_tokens": self.call.prompt, "output_tokens": OUTPUT}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage |= {"total_tokens": self.call.prompt + OUTPUT, **details}
        return self._head("completed") | {"output": items, "usage": usage, "tool_usage": self.usage}

    def _head(self, status: str) -> Json:
        body = self.call.body
        tools = body.get("tools") or []
        return {"id": "resp_1", "object": "response", "model": body["model"], "status": status, "tools": tools}

    def events(self) -> Iterator[bytes]:
        yield frame({"type": "response.created", "response": self._head("in_progress") | {"output": []}})
        steps = [*self.steps, (None, "word " * WORDS)]
        for number, (item, text) in enumerate(steps):
            shown = item or self._item(number, text)
            empty = item or {**shown, "content": [], "status": "in_progress"}
            yield frame({"type": "response.output_item.added", "output_index": number, "item": empty})
            if item is None:
                place = {"output_index": number, "content_index": 0, "item_id": f"m_{number}"}
                yield frame({"type": "response.output_text.delta", **place, "delta": text})
            yield frame({"type": "response.output_item.done", "output_index": number, "item": shown})
        yield frame({"type": "response.completed", "response": self.whole()})


def _items(body: Json) -> list[Json]:
    found = body.get("input")
    return [one for one in found if one.get("type") == "additional_tools"] if isinstance(found, list) else []


def _with_defaults(tool: Json) -> Json:
    """A tool with a container or not."""
    if tool.get("type") == "code_interpreter" and not isinstance(tool.get("container"), dict):
        return {**tool, "container": {"memory_limit": "64g"}}
    if tool.get("type") == "shell" and (tool.get("environment") or {}).get("type") == "container_reference":
        return {**tool, "environment": {"type": "container_reference", "memory_limit": "64g"}}
    return tool


class Completion:
    """An answer of the chat completions API, with one mark for each choice."""

    def __init__(self, call: StrictCall, rate_in: int, rate_out: int) -> None:
        self.call, self.marks = call, Marks(call, rate_in, rate_out)
        self.text = self.marks.add(0) + "word " * WORDS
        self.marks.end()

    def _chunk(self, name: str, message: Json, kind: str, finish: str | None, **more: Any) -> Json:
        choice = {"index": 0, name: {"role": "assistant", **message}, "finish_reason": finish}
        return {"id": "c1", "object": kind, "created": 1, "model": self.call.body["model"], "choices": [choice], **more}

    def _usage(self) -> Json:
        prompt = self.call.prompt
        return {"prompt_tokens": prompt, "completion_tokens": OUTPUT, "total_tokens": prompt + OUTPUT}

    def whole(self) -> Json:
        return self._chunk("message", {"content": self.text}, "chat.completion", "stop", usage=self._usage())

    def events(self) -> Iterator[bytes]:
        for word in self.text.split():
            yield frame(self._chunk("delta", {"content": f"{word} "}, "chat.completion.chunk", None))
        yield frame(self._chunk("delta", {}, "chat.completion.chunk", "stop", usage=self._usage()))
        yield b"data: [DONE]\n\n"


class Generated:
    """An answer of Gemini's format: searches and places are shown before a mark."""

    def __init__(self, call: StrictCall, rate_in: int, rate_out: int) -> None:
        self.call, self.marks = call, Marks(call, rate_in, rate_out)
        self.marks.certain = call.prompt
        self.choices = (call.body.get("generationConfig") or {}).get("candidateCount") or 1
        self.marks.rate_out *= self.choices
        self.steps: list[tuple[Json, str]] = [({}, self.marks.add(0))]
        kinds = {name for tool in call.body.get("tools") or () for name in tool}
        if kinds & {"googleSearch", "googleSearchRetrieval"}:
            self.steps.append(({"webSearchQueries": ["one", "two"]}, self.marks.add(2 * 14 * DOLLAR // 1_000)))
        if "googleMaps" in kinds:
            places = [{"maps": {"uri": "https://maps.example/1", "title": "A place"}}]
            self.steps.append(({"groundingChunks": places}, self.marks.add(14 * DOLLAR // 1_000)))
        self.marks.end()

    def _chunk(self, text: str, grounding: Json, last: bool) -> Json:
        candidates: list[Json] = []
        for index in range(self.choices):
            one: Json = {"index": index, "content": {"role": "model", "parts": [{"text": text}]}}
            if grounding and not index:
                one["groundingMetadata"] = grounding
            if last:
                one["finishReason"] = "STOP"
            candidates.append(one)
        output = OUTPUT * self.choices if last else 0
        counts = {"promptTokenCount": self.call.prompt, "candidatesTokenCount": output}
        counts["totalTokenCount"] = self.call.prompt + output
        more = {"modelVersion": "gemini-3.8-flash", "responseId": "r1", "usageMetadata": counts}
        return {"candidates": candidates, **more}

    def whole(self) -> Json:
        merged = {name: value for grounding, _ in self.steps for name, value in grounding.items()}
        return self._chunk("".join(text for _, text in self.steps), merged, last=True)

    def events(self) -> Iterator[bytes]:
        for grounding, text in self.steps:
            yield frame(self._chunk(text, grounding, last=False))
        for place in range(WORDS):
            yield frame(self._chunk("word ", {}, last=place == WORDS - 1))


Answer = Callable[[StrictCall, int, int], Any]
