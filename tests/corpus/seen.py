"""An answer as the callers of each surface see it, in one vocabulary: the same answer looks the same on all of them."""

import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
SURFACES = ("chat", "messages", "responses", "gemini", "cohere", "ai", "mcp")
UNSTREAMED = ("mcp",)
WITHOUT_STOP = ("chat", "responses", "ai", "mcp")  # they have no stop sequences
FINISHES = {
    "chat": {"content_filter": "filter"},
    "messages": {
        "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
        "refusal": "filter",
    },
    "responses": {"max_output_tokens": "length", "content_filter": "filter"},
    "gemini": {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "filter"},
    "cohere": {
        "COMPLETE": "stop", "STOP_SEQUENCE": "stop", "MAX_TOKENS": "length", "TOOL_CALL": "tool_calls",
        "ERROR_TOXIC": "filter",
    },
    "ai": {"tool-calls": "tool_calls", "content-filter": "filter"},
}  # fmt: skip


@dataclass
class Seen:
    """The answer as a caller sees it. `calls` are (name, arguments); `cited` are (address, the text that the
    citation marks, None where the surface does not say)."""

    text: str = ""
    thought: str = ""
    calls: list[Any] = field(default_factory=list)
    finish: str = ""
    cited: list[Any] = field(default_factory=list)
    usage: list[int] = field(default_factory=list)
    error: str = ""


def request_of(surface: str, model: str, streamed: bool, given: Json) -> tuple[str, Json, dict[str, str]]:
    """Return path, body and headers of a plain request, with a tool and the given `stop` sequences."""
    words = "What is new in Oslo?"
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "weather", "parameters": schema}
    tool = {"type": "function", "function": function}
    say = [{"role": "user", "content": words}]
    stream = {"stream": True} if streamed else {}
    stops = {"stop_sequences": given["stop"]} if "stop" in given else {}
    camel = {"stopSequences": given["stop"]} if "stop" in given else {}
    match surface:
        case "chat":
            return "/v1/chat/completions", {"model": model, "messages": say, "tools": [tool], **stream, **given}, {}
        case "cohere":
            return "/v2/chat", {"model": model, "messages": say, "tools": [tool], **stream, **stops}, {}
        case "messages":
            tools = [{"name": "weather", "input_schema": schema}]
            body = {"model": model, "messages": say, "max_tokens": 9000, "tools": tools}
            body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
            return "/v1/messages", body | stream | stops, {}
        case "responses":
            return (
                "/v1/responses",
                {
                    "model": model,
                    "input": say,
                    "tools": [{"type": "function", **function}],
                    "reasoning": {"summary": "auto"},
                    **stream,
                },
                {},
            )
        case "gemini":
            method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
            body = {
                "contents": [{"role": "user", "parts": [{"text": words}]}],
                "tools": [{"functionDeclarations": [function]}],
                "generationConfig": {"thinkingConfig": {"includeThoughts": True}, **camel},
            }
            return f"/v1beta/models/{model}:{method}", body, {}
        case "ai":
            prompt = [{"role": "user", "content": [{"type": "text", "text": words}]}]
            tools = [{"type": "function", "name": "weather", "inputSchema": schema}]
            named = {"ai-language-model-id": model, "ai-language-model-streaming": "true" if streamed else "false"}
            return "/v4/ai/language-model", {"prompt": prompt, "tools": tools, **camel}, named
    arguments = {"model": model, "messages": say}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "chat", "arguments": arguments}}
    return "/mcp", call, {"accept": "application/json, text/event-stream"}


def read(surface: str, raw: bytes) -> Seen:
    """Read an answer, whole or streamed."""
    seen = Seen()
    if raw[:1] == b"{":
        READERS[surface](json.loads(raw), seen)
    else:
        events = [line[5:].strip() for line in raw.replace(b"\r", b"").split(b"\n") if line.startswith(b"data:")]
        STREAM_READERS[surface]([json.loads(data) for data in events if data != b"[DONE]"], seen)
        if surface == "chat" and not seen.error:
            assert events[-1] == b"[DONE]"
    seen.finish = FINISHES.get(surface, {}).get(seen.finish, seen.finish)
    if seen.calls and seen.finish == "stop":
        assert surface in ("gemini", "responses"), "clients run calls only when the finish reason tells of them"
        seen.finish = "tool_calls"
    seen.calls = [[name, json.loads(text) if isinstance(text, str) else text] for name, text in seen.calls]
    return seen


def _chat(body: Json, seen: Seen) -> None:
    if "error" in body:
        seen.error = body["error"]["code"]
        return
    choice = body["choices"][0]
    message = choice["message"]
    seen.text = (message.get("content") or "") + (message.get("refusal") or "")
    seen.thought = message.get("reasoning") or ""
    seen.calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    seen.finish = choice["finish_reason"]
    _chat_sources(message.get("annotations") or (), seen)
    seen.usage = [body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]]


def _chat_sources(annotations: Any, seen: Seen) -> None:
    for entry in annotations:
        cited = entry["url_citation"]
        place = cited["start_index"], cited["end_index"]
        seen.cited.append([cited["url"], seen.text[slice(*place)] if any(place) else None])


def _chat_stream(events: list[Json], seen: Seen) -> None:
    calls: dict[int, list[str]] = {}
    annotations: list[Any] = []
    ended = False
    for event in events:
        if "error" in event:
            seen.error = event["error"]["code"]
            return
        for choice in event["choices"]:
            delta = choice["delta"]
            assert not (ended and any(delta.values())), "something of the answer behind its finish reason"
            seen.text += (delta.get("content") or "") + (delta.get("refusal") or "")
            seen.thought += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or ():
                known = calls.setdefault(call["index"], ["", ""])
                known[0] += call["function"].get("name") or ""
                known[1] += call["function"].get("arguments") or ""
            annotations += delta.get("annotations") or ()
            if choice["finish_reason"]:
                assert not ended
                ended = True
                seen.finish = choice["finish_reason"]
        if event.get("usage"):
            seen.usage = [event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"]]
    seen.calls = [calls[place] for place in sorted(calls)]
    _chat_sources(annotations, seen)


def _messages(body: Json, seen: Seen) -> None:
    if body["type"] == "error":
        seen.error = body["error"]["code"]
        return
    for block in body["content"]:
        if block["type"] == "text":
            seen.text += block["text"]
            seen.cited += [[cited["url"], block["text"]] for cited in block.get("citations") or ()]
        elif block["type"] == "thinking":
            seen.thought += block["thinking"]
        elif block["type"] == "tool_use":
            seen.calls.append([block["name"], block["input"]])
    seen.finish = body["stop_reason"]
    seen.usage = [body["usage"]["input_tokens"], body["usage"]["output_tokens"]]


def _messages_stream(events: list[Json], seen: Seen) -> None:
    whole: Json = {"type": "message", "usage": {}}
    blocks: list[Json] = []
    for event in events:
        kind = event["type"]
        if kind == "error":
            whole = event
            break
        if kind == "message_start":
            whole |= event["message"]
        elif kind == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
                continue
            name = {"input_json_delta": "partial_json"}.get(delta["type"], delta["type"].removesuffix("_delta"))
            into = "json" if name == "partial_json" else name
            block[into] = block.get(into, "") + delta[name]
        elif kind == "message_delta":
            whole |= event["delta"]
            whole["usage"] = {**whole["usage"], **event["usage"]}
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}")
    _messages({**whole, "content": blocks}, seen)


def _responses(body: Json, seen: Seen) -> None:
    if body.get("error"):
        seen.error = body["error"]["code"]
        return
    seen.finish = "stop"
    for item in body["output"]:
        if item["type"] == "message":
            for part in item["content"]:
                text = part.get("text") or part.get("refusal") or ""
                seen.text += text
                seen.finish = "filter" if part["type"] == "refusal" else seen.finish
                for cited in part.get("annotations") or ():
                    seen.cited.append([cited["url"], text[cited["start_index"] : cited["end_index"]]])
        elif item["type"] == "reasoning":
            seen.thought += "".join(part["text"] for part in item["summary"] or item.get("content") or ())
        elif item["type"] == "function_call":
            seen.calls.append([item["name"], item["arguments"]])
    if body["status"] == "incomplete":
        seen.finish = body["incomplete_details"]["reason"]
    seen.usage = [body["usage"]["input_tokens"], body["usage"]["output_tokens"]]


def _responses_stream(events: list[Json], seen: Seen) -> None:
    last = events[-1]
    _responses({"error": last.get("error") or last} if last["type"] == "error" else last["response"], seen)
    if seen.error:
        return
    told = "".join(
        event["delta"] for event in events if event["type"] in ("response.output_text.delta", "response.refusal.delta")
    )
    assert told == seen.text
    marks = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    assert len(marks) == len(seen.cited)


def _gemini(body: Json, seen: Seen) -> None:
    _gemini_stream([body], seen)


def _gemini_stream(events: list[Json], seen: Seen) -> None:
    for event in events:
        if "error" in event:
            seen.error = next(entry["reason"].lower() for entry in event["error"]["details"] if "reason" in entry)
            return
        for candidate in event.get("candidates") or ():
            for part in candidate.get("content", {}).get("parts", ()):
                if "functionCall" in part:
                    seen.calls.append([part["functionCall"]["name"], part["functionCall"]["args"]])
                elif part.get("thought"):
                    seen.thought += part["text"]
                else:
                    seen.text += part.get("text", "")
            seen.finish = candidate.get("finishReason") or seen.finish
            grounding = candidate.get("groundingMetadata") or {}
            pages = [chunk["web"]["uri"] for chunk in grounding.get("groundingChunks", ())]
            marked = {
                place: support["segment"]["text"]
                for support in grounding.get("groundingSupports", ())
                for place in support["groundingChunkIndices"]
            }
            seen.cited += [[page, marked.get(place)] for place, page in enumerate(pages)]
        if event.get("usageMetadata"):
            counts = event["usageMetadata"]
            output = counts.get("candidatesTokenCount", 0) + counts.get("thoughtsTokenCount", 0)
            seen.usage = [counts["promptTokenCount"], output]


def _cohere(body: Json, seen: Seen) -> None:
    if "message" not in body or isinstance(body["message"], str):
        seen.error = body["code"]
        return
    message = body["message"]
    texts = {}
    for place, block in enumerate(message.get("content") or ()):
        texts[place] = block.get("text", "")
        seen.text += block.get("text", "")
        seen.thought += block.get("thinking", "")
    seen.thought += message.get("tool_plan") or ""
    seen.calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    seen.finish = body["finish_reason"]
    _cohere_sources(message.get("citations") or (), texts, seen)
    tokens = body["usage"]["tokens"]
    seen.usage = [tokens["input_tokens"], tokens["output_tokens"]]


def _cohere_sources(citations: Any, texts: dict[int, str], seen: Seen) -> None:
    for cited in citations:
        url = cited["sources"][0]["document"].get("url") or cited["sources"][0]["id"]
        seen.cited.append([url, texts[cited.get("content_index", 0)][cited["start"] : cited["end"]]])


def _cohere_stream(events: list[Json], seen: Seen) -> None:
    calls: list[list[str]] = []
    citations: list[Json] = []
    texts: dict[int, str] = {}
    for event in events:
        message = (event.get("delta") or {}).get("message") or {}
        match event["type"]:
            case "content-start" | "content-delta":
                seen.text += message["content"].get("text", "")
                texts[event["index"]] = texts.get(event["index"], "") + message["content"].get("text", "")
                seen.thought += message["content"].get("thinking", "")
            case "tool-plan-delta":
                seen.thought += message["tool_plan"]
            case "tool-call-start":
                calls.append(
                    [
                        message["tool_calls"]["function"]["name"],
                        message["tool_calls"]["function"].get("arguments") or "",
                    ]
                )
            case "tool-call-delta":
                calls[-1][1] += message["tool_calls"]["function"]["arguments"]
            case "citation-start":
                citations.append(message["citations"])
            case "message-end":
                seen.error = "stream" if event["delta"].get("error") else ""
                seen.finish = event["delta"]["finish_reason"]
                tokens = (event["delta"].get("usage") or {}).get("tokens") or {}
                seen.usage = [tokens.get("input_tokens", 0), tokens.get("output_tokens", 0)]
    seen.calls = calls
    _cohere_sources(citations, texts, seen)


def _ai(body: Json, seen: Seen) -> None:
    if body.get("error"):
        seen.error = body["error"]["code"] if isinstance(body["error"], dict) else str(body["error"])
        return
    for part in body["content"]:
        match part["type"]:
            case "text":
                seen.text += part["text"]
            case "reasoning":
                seen.thought += part["text"]
            case "tool-call":
                seen.calls.append([part["toolName"], part["input"]])
            case "source":
                seen.cited.append([part["url"], None])
    seen.finish = body["finishReason"]["unified"]
    seen.usage = [body["usage"]["inputTokens"]["total"], body["usage"]["outputTokens"]["total"]]


def _ai_stream(events: list[Json], seen: Seen) -> None:
    for part in events:
        match part["type"]:
            case "error":
                seen.error = part["error"].get("code", "stream") if isinstance(part["error"], dict) else "stream"
            case "text-delta":
                seen.text += part["delta"]
            case "reasoning-delta":
                seen.thought += part["delta"]
            case "tool-call":
                seen.calls.append([part["toolName"], part["input"]])
            case "source":
                seen.cited.append([part["url"], None])
            case "finish":
                seen.finish = part["finishReason"]["unified"]
                seen.usage = [part["usage"]["inputTokens"]["total"], part["usage"]["outputTokens"]["total"]]


def _mcp(body: Json, seen: Seen) -> None:
    said = body["result"]["content"][0]["text"]
    if body["result"].get("isError"):
        seen.error = said
        return
    seen.text, _, counts = said.partition("\n\n---\nTokens: ")
    seen.usage = [int(word) for word in counts.split() if word.isdigit()][:2]


READERS = {
    "chat": _chat, "messages": _messages, "responses": _responses, "gemini": _gemini, "cohere": _cohere, "ai": _ai,
    "mcp": _mcp,
}  # fmt: skip
STREAM_READERS = {
    "chat": _chat_stream, "messages": _messages_stream, "responses": _responses_stream, "gemini": _gemini_stream,
    "cohere": _cohere_stream, "ai": _ai_stream,
}  # fmt: skip
