"""The answer of a payload as messages: one JSON value, or a stream of events, in each dialect."""

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.surfaces.console.shown_parts import (
    MAX_PARTS,
    MAX_SOURCES,
    MAX_TEXT,
    Json,
    ShownMessage,
    ShownPart,
    as_dict,
    as_list,
    as_text,
    find_member,
    find_text,
    load,
    read_grounding,
    read_message,
    read_part,
    read_parts,
    read_sources,
    write_arguments,
    write_json,
)
from gateway.surfaces.console.truncated_json import mend

MAX_ANSWERS = 50
MAX_EVENTS = 200_000
DONE = b"[DONE]"
ENDS = ("response.completed", "response.incomplete", "response.failed")
DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
    "response.custom_tool_call_input.delta": "call",
}


def read_answer(answer: bytes) -> list[ShownMessage]:
    """Return the messages of an answer, [] for one that has none."""
    body = load(answer)
    if body is None and answer[:1] == b"{":
        body = load(mend(answer))
    if isinstance(body, dict):
        return read_whole(body)
    return _AnswerStream().read(_events(answer))


def read_whole(body: Json) -> list[ShownMessage]:
    """Return the messages of an answer in one piece."""
    found = []
    for one in as_list(body.get("choices"))[:MAX_ANSWERS]:
        choice = as_dict(one)
        said = as_dict(choice.get("message")) or {"content": as_text(choice.get("text"))}
        found.append(read_message({"role": "assistant", **said}))
    found += [_read_candidate(as_dict(one)) for one in as_list(body.get("candidates"))[:MAX_ANSWERS]]
    found += [read_message(as_dict(one)) for one in as_list(body.get("output"))]
    if isinstance(body.get("content"), list):
        found.append(ShownMessage("assistant", read_parts(body["content"])))
    message = body.get("message")
    if isinstance(message, dict):  # of Cohere
        found.append(read_message({"role": "assistant", **message}))
    elif isinstance(body.get("text"), str) and "generation_id" in body:  # of Cohere's first version
        spoken: Json = {name: body[name] for name in ("tool_calls", "citations", "tool_plan") if name in body}
        found.append(read_message({"role": "assistant", "content": body["text"], **spoken}))
    messages = [message for message in found if message.parts]
    if not messages and body.get("error"):
        return [_show_error(body)]
    return messages[:MAX_ANSWERS]


def _show_error(body: Json) -> ShownMessage:
    error = as_dict(body["error"])
    parts = [ShownPart("json", write_json(body)[:MAX_TEXT])]
    if text := find_text(error, "message") or as_text(body["error"]):
        parts.insert(0, ShownPart("text", text[:MAX_TEXT]))
    return ShownMessage("error", parts)


def _read_candidate(candidate: Json) -> ShownMessage:
    message = read_message({"role": "assistant", **as_dict(candidate.get("content"))})
    if sources := read_grounding(candidate):
        message.parts.append(ShownPart("sources", sources=sources))
    return message


def _events(answer: bytes) -> Iterator[Json]:
    count = 0
    for line in answer.splitlines():
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if line.startswith(b"{"):  # lines of JSON, as Cohere's first version sends them
            data = line
        if data and data != DONE:
            count += 1
            if count > MAX_EVENTS:
                return
            yield as_dict(load(data))


class _AnswerStream:
    """Collects the pieces of a streamed answer by the part to which they belong."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[Any, ...], list[str]] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._others: list[ShownPart] = []
        self._cited: list[Any] = []
        self._grounded: Json = {}

    def read(self, events: Iterable[Json]) -> list[ShownMessage]:
        for event in events:
            if as_text(event.get("type")) in ENDS:
                return read_whole(as_dict(event.get("response")))
            self._read_choices(event)
            self._read_blocks(event)
            self._read_items(event)
            self._read_turn(event)
            self._read_candidates(event)
            if event.get("error"):
                self._others.append(ShownPart("json", write_json(event["error"])[:MAX_TEXT], "error"))
        return self._put_together()

    def _put_together(self) -> list[ShownMessage]:
        parts = []
        for key, pieces in self._pieces.items():
            text = "".join(pieces)
            kind = key[0]
            if kind == "call":
                parts.append(ShownPart("call", write_arguments(text), self._names.get(key, "")))
            elif text:
                parts.append(ShownPart(kind, text[:MAX_TEXT]))
        parts += self._others[:MAX_PARTS]
        if sources := [*read_sources(self._cited), *read_grounding(self._grounded)]:
            parts.append(ShownPart("sources", sources=sources))
        return [ShownMessage("assistant", parts[:MAX_PARTS])] if parts else []

    def _add(self, kind: str, place: Any, text: Any, name: Any = "") -> None:
        key = (kind, place)
        self._pieces.setdefault(key, []).append(as_text(text))
        if isinstance(name, str) and name:
            self._names[key] = name

    def _cite(self, items: Any) -> None:
        if len(self._cited) < MAX_SOURCES:
            self._cited += items if isinstance(items, list) else [items]

    def _read_choices(self, event: Json) -> None:
        for one in as_list(event.get("choices")):
            choice = as_dict(one)
            delta = as_dict(choice.get("delta"))
            place = str(choice.get("index"))
            self._add("reasoning", place, delta.get("reasoning_content") or delta.get("reasoning"))
            self._add("text", place, delta.get("content") or choice.get("text"))
            self._add("refusal", place, delta.get("refusal"))
            self._cite(as_list(delta.get("annotations")))
            self._others += [read_part(as_dict(image)) for image in as_list(delta.get("images"))]
            for call in as_list(delta.get("tool_calls")):
                function = as_dict(as_dict(call).get("function")) or as_dict(as_dict(call).get("custom"))
                index = str(as_dict(call).get("index"))
                arguments = find_member(function, "arguments", "input")
                self._add("call", (place, index), arguments, function.get("name"))

    def _read_blocks(self, event: Json) -> None:
        """Read events of messages, and those of the AI SDK."""
        kind, index = as_text(event.get("type")), str(event.get("index", event.get("id")))
        block, delta = as_dict(event.get("content_block")), as_dict(event.get("delta"))
        if kind == "content_block_start":
            self._begin_block(index, block)
        elif "partial_json" in delta:
            self._add("call", index, delta["partial_json"])
        elif "thinking" in delta:
            self._add("reasoning", index, delta["thinking"])
        elif "citation" in delta:
            self._cite(delta["citation"])
        elif kind == "content_block_delta" and "text" in delta:
            self._add("text", index, delta["text"])
        elif kind in ("text-delta", "reasoning-delta"):
            self._add(kind.partition("-")[0], index, event.get("delta") or event.get("textDelta"))
        elif kind in ("tool-call", "tool-result", "file", "source"):
            self._others.append(read_part(event))

    def _begin_block(self, index: str, block: Json) -> None:
        kind = as_text(block.get("type"))
        if kind.endswith("tool_result"):
            self._others.append(read_part(block))
        elif "tool" in kind and "name" in block:
            self._add("call", index, "", block.get("name"))
        elif kind == "redacted_thinking":
            self._add("reasoning", index, "(encrypted)")

    def _read_items(self, event: Json) -> None:
        """Read events of responses, for a stream that ended before its last one."""
        kind = as_text(event.get("type"))
        place = str(event.get("output_index"))
        if kind in DELTAS:
            self._add(DELTAS[kind], place, event.get("delta"))
        elif kind == "response.output_item.added":
            item = as_dict(event.get("item"))
            if as_text(item.get("type")) in ("function_call", "custom_tool_call"):
                self._add("call", place, "", item.get("name"))
        elif kind == "response.output_text.annotation.added":
            self._cite(event.get("annotation"))

    def _read_turn(self, event: Json) -> None:
        """Read events of Cohere, in both versions."""
        message = as_dict(as_dict(event.get("delta")).get("message"))
        if message:
            self._read_piece(str(event.get("index")), message)
        kind = as_text(event.get("event_type"))
        if kind == "text-generation":
            self._add("text", "cohere", event.get("text"))
        elif kind == "tool-calls-generation":
            self._others += read_message({"role": "assistant", "tool_calls": as_list(event.get("tool_calls"))}).parts
        elif kind == "citation-generation":
            self._cite(as_list(event.get("citations")))

    def _read_piece(self, index: str, message: Json) -> None:
        content = as_dict(message.get("content"))
        self._add("reasoning", "plan", message.get("tool_plan"))
        self._add("reasoning", ("cohere", index), content.get("thinking"))
        self._add("text", ("cohere", index), content.get("text"))
        call = as_dict(as_dict(message.get("tool_calls")).get("function"))
        if call:
            self._add("call", ("cohere", index), call.get("arguments"), call.get("name"))
        if isinstance(message.get("citations"), dict):
            self._cite(message["citations"])

    def _read_candidates(self, event: Json) -> None:
        for one in as_list(event.get("candidates")):
            candidate = as_dict(one)
            for item in as_list(as_dict(candidate.get("content")).get("parts")):
                part = read_part(as_dict(item))
                if part.kind in ("text", "reasoning"):
                    self._add(part.kind, "candidate", part.text)
                else:
                    self._others.append(part)
            if "groundingMetadata" in candidate or "citationMetadata" in candidate:
                self._grounded = {**self._grounded, **candidate}
