"""A fake of three vendors. Its answers use every hosted tool of the request, and it says what it bills for them.

with FakeToolVendors() as vendors:
    ... call vendors.url + "/v1/messages", "/v1/responses", "/v1beta/models/x:generateContent" ...
    vendors.calls[0].bill  # nano-dollars of the tools, beside the tokens of the model

Prices are those that the vendors publish, written down here once more. A streamed answer has the items of its tools
first, then words with a gap after each, so that a caller can leave after the tools were used.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fakes.server import FakeServer, Progress, send, send_json

Json = dict[str, Any]
DOLLAR = 10**9
WORDS = 40
INPUT, OUTPUT = 1_000, 50
# Prices of Claude Opus 4.6 by token: https://platform.claude.com/docs/en/about-claude/pricing
ADVISOR = {"input_tokens": 5_000, "output_tokens": 25_000}
ADVICE = {"input_tokens": 2_500, "output_tokens": 1_500}
GIGABYTES = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}


@dataclass
class ToolCalls(Progress):
    """A recorded request, and what its tools cost."""

    path: str
    body: Json = field(default_factory=dict)
    bill: int = 0


class FakeToolVendors(FakeServer):
    """The service; `calls` are ToolCalls."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        call = ToolCalls(path, json.loads(environ["wsgi.input"].read()))
        self.calls.append(call)
        if path.endswith("/messages"):
            answer: Any = Message(call)
        elif path.endswith("/responses"):
            answer = Response(call)
        else:
            answer = Generated(call)
        if not call.body.get("stream") and "stream" not in path:
            return send_json(start, 200, answer.whole())
        start("200 OK", [("Content-Type", "text/event-stream")])
        return send(environ, answer.events(), call, gap_s=0.01)


def frame(event: Json) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


class Message:
    """An answer of Anthropic's format."""

    def __init__(self, call: ToolCalls) -> None:
        self.model = call.body["model"]
        self.blocks: list[Json] = []
        self.container: Json = {}
        self.usage: Json = {"input_tokens": INPUT, "output_tokens": OUTPUT}
        if "inference_geo" in call.body:
            self.usage["inference_geo"] = call.body["inference_geo"]
        kinds = [tool.get("type") or "custom" for tool in call.body.get("tools") or ()]
        free = any(kind.startswith(("web_search_2026", "web_fetch_2026")) for kind in kinds)
        for tool, kind in zip(call.body.get("tools") or (), kinds, strict=True):
            if kind.startswith("web_search_"):
                uses = min(3, tool.get("max_uses") or 3)
                self.blocks += [self.result("web_search_tool_result", []) for _ in range(uses)]
                self.usage["server_tool_use"] = {"web_search_requests": uses, "web_fetch_requests": 0}
                call.bill += uses * DOLLAR // 100
            elif kind.startswith("code_execution_"):
                self.blocks.append(self.result("code_execution_tool_result", {"type": "code_execution_result"}))
                self.container = {"container": {"id": "container_own", "expires_at": "2099-01-01T00:00:00Z"}}
                call.bill += 0 if free else DOLLAR // 20 // 12
            elif kind.startswith("advisor_"):
                advice = {"type": "advisor_message", "model": "claude-opus-4-6-20260205", **ADVICE}
                self.usage["iterations"] = [advice, advice]
                text = {"type": "advisor_result", "text": "Advice. " * 1_000}
                self.blocks += [self.result("advisor_tool_result", text) for _ in range(2)]
                call.bill += 2 * sum(ADVICE[name] * price for name, price in ADVISOR.items())

    def result(self, kind: str, content: Any) -> Json:
        return {"type": kind, "tool_use_id": f"srvtoolu_{len(self.blocks)}", "content": content}

    def head(self) -> Json:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "stop_sequence": None}

    def whole(self) -> Json:
        content = [*self.blocks, {"type": "text", "text": "word " * WORDS}]
        return {**self.head(), "content": content, "stop_reason": "end_turn", "usage": self.usage, **self.container}

    def events(self) -> Iterator[bytes]:
        start = {"input_tokens": INPUT, "output_tokens": 1}
        yield frame({"type": "message_start", "message": {**self.head(), "content": [], "usage": start}})
        number = 0
        for number, block in enumerate(self.blocks, 1):
            yield frame({"type": "content_block_start", "index": number - 1, "content_block": block})
            yield frame({"type": "content_block_stop", "index": number - 1})
        yield frame({"type": "content_block_start", "index": number, "content_block": {"type": "text", "text": ""}})
        for _ in range(WORDS):
            delta = {"type": "text_delta", "text": "word "}
            yield frame({"type": "content_block_delta", "index": number, "delta": delta})
        yield frame({"type": "content_block_stop", "index": number})
        end = {"stop_reason": "end_turn", **self.container}
        yield frame({"type": "message_delta", "delta": end, "usage": self.usage})
        yield frame({"type": "message_stop"})


class Response:
    """An answer of the Responses API."""

    def __init__(self, call: ToolCalls) -> None:
        self.body = call.body
        self.items: list[Json] = []
        self.tool_usage: Json = {}
        for tool in call.body.get("tools") or ():
            call.bill += self.use(tool)

    def use(self, tool: Json) -> int:
        """Add the items of a tool, and return what it costs."""
        kind = tool["type"]
        if kind.startswith("web_search"):
            self.items += [self.item("web_search_call", action={"type": "search", "query": "x"}) for _ in range(3)]
            return 3 * DOLLAR // 100
        if kind == "file_search":
            self.items += [self.item("file_search_call", queries=["x"], results=None) for _ in range(2)]
            return 2 * DOLLAR // 400
        if kind == "code_interpreter":
            self.items += [
                self.item("code_interpreter_call", container_id="cntr_1", code="1 + 1", outputs=[]) for _ in range(2)
            ]
            container = tool["container"]
            size = "64g" if isinstance(container, str) else container.get("memory_limit", "1g")
            return GIGABYTES[size] * 3 * DOLLAR // 100
        if kind == "shell" and (tool.get("environment") or {}).get("type", "local") != "local":
            place = {"type": "container_reference", "container_id": "cntr_2"}
            self.items.append(self.item("shell_call", call_id="c1", action={"commands": ["ls"]}, environment=place))
            return GIGABYTES[tool["environment"].get("memory_limit", "1g")] * 3 * DOLLAR // 100
        if kind == "image_generation":
            self.items.append(self.item("image_generation_call", result="aGk=", quality="high"))
            self.tool_usage["image_gen"] = {"input_tokens": 100, "output_tokens": 4_160, "total_tokens": 4_260}
            return 4_160 * 30_000 + 100 * 5_000
        return 0

    def item(self, kind: str, **more: Any) -> Json:
        return {"type": kind, "id": f"it_{len(self.items)}", "status": "completed", **more}

    def whole(self) -> Json:
        text = {"type": "output_text", "text": "word " * WORDS, "annotations": []}
        message = self.item("message", role="assistant", content=[text])
        usage = {
            "input_tokens": INPUT,
            "output_tokens": OUTPUT,
            "total_tokens": INPUT + OUTPUT,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return self.head("completed") | {
            "output": [*self.items, message],
            "usage": usage,
            "tool_usage": self.tool_usage,
        }

    def head(self, status: str) -> Json:
        tools = self.body.get("tools") or []
        return {"id": "resp_1", "object": "response", "model": self.body["model"], "status": status, "tools": tools}

    def events(self) -> Iterator[bytes]:
        yield frame({"type": "response.created", "response": self.head("in_progress") | {"output": []}})
        number = 0
        for number, item in enumerate(self.items, 1):
            for step in ("added", "done"):
                yield frame({"type": f"response.output_item.{step}", "output_index": number - 1, "item": item})
        place = {"output_index": number, "content_index": 0, "item_id": "msg_1"}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
        yield frame({"type": "response.output_item.added", "output_index": number, "item": item})
        for _ in range(WORDS):
            yield frame({"type": "response.output_text.delta", **place, "delta": "word "})
        whole = self.whole()
        yield frame({"type": "response.output_item.done", "output_index": number, "item": whole["output"][-1]})
        yield frame({"type": "response.completed", "response": whole})


class Generated:
    """An answer of Gemini 3's format."""

    def __init__(self, call: ToolCalls) -> None:
        self.grounding: Json = {}
        kinds = {name for tool in call.body.get("tools") or () for name in tool}
        if kinds & {"googleSearch", "googleSearchRetrieval"}:
            self.grounding["webSearchQueries"] = ["one", "two"]
            call.bill += 2 * 14 * DOLLAR // 1_000
        if "googleMaps" in kinds:
            self.grounding["groundingChunks"] = [{"maps": {"uri": "https://maps.example/1", "title": "A place"}}]
            call.bill += 14 * DOLLAR // 1_000

    def chunk(self, text: str, last: bool = False, grounding: bool = False) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
        if grounding and self.grounding:
            candidate["groundingMetadata"] = self.grounding
        if last:
            candidate["finishReason"] = "STOP"
        chunk: Json = {"candidates": [candidate], "modelVersion": "gemini-3.8-flash", "responseId": "r1"}
        if last:
            counts = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
            chunk["usageMetadata"] = counts
        return chunk

    def whole(self) -> Json:
        return self.chunk("word " * WORDS, last=True, grounding=True)

    def events(self) -> Iterator[bytes]:
        for place in range(WORDS):
            yield frame(self.chunk("word ", last=place == WORDS - 1, grounding=place == 0))
