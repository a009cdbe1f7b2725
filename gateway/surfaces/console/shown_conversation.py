"""The retained payload of a request as a conversation: its messages, tools and answer, as a page shows them.

Requests of callers are in one of several dialects, and may be anything, so this reader never fails: parts are
recognised by their shape, and those that it does not know are shown as JSON. Nothing of a payload is interpreted as
markup.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
from msgspec import Struct, field

MAX_BYTES = 4_000_000  # of a payload that is read
MAX_MESSAGES = 300
MAX_PARTS = 200  # of a message
MAX_TOOLS = 200
MAX_TEXT = 40_000  # characters of a part
MAX_INDENTED = 16_000_000  # length times depth of a value that is written with indentation
MAX_IMAGE = 1_500_000  # characters of an image, and of all images of a page
PICTURES = ("data:image/png", "data:image/jpeg", "data:image/gif", "data:image/webp")
SAID = ("messages", "input", "contents", "prompt", "system", "instructions", "systemInstruction", "tools")
DONE = b"[DONE]"

Json = dict[str, Any]


class ShownPart(Struct):
    """A part of a message. `kind` is text, reasoning, call, result, image, file, refusal or json; `title` the name of a
    tool or file; `url` a data URL of a picture. `cached`: a cache mark ends here."""

    kind: str
    text: str = ""
    title: str = ""
    url: str = ""
    cached: bool = False
    failed: bool = False


class ShownMessage(Struct):
    role: str
    parts: list[ShownPart] = field(default_factory=list)


class ShownTool(Struct):
    name: str
    description: str
    schema: str
    cached: bool


class ShownConversation(Struct):
    """`left_out` counts messages in the middle that are not shown. `settings` are the other members of the request."""

    messages: list[ShownMessage]
    answers: list[ShownMessage]
    tools: list[ShownTool]
    settings: list[tuple[str, str]]
    left_out: int = 0


def read_conversation(sent: bytes, answer: bytes) -> ShownConversation | None:
    """Return the conversation of a payload; None for a request that is none, or too large or incomplete."""
    if len(sent) > MAX_BYTES or len(answer) > MAX_BYTES:
        return None
    body = _load(sent)
    if not isinstance(body, dict):
        return None
    messages = _read_messages(body)
    if not messages:
        return None
    left_out = max(0, len(messages) - MAX_MESSAGES)
    if left_out:
        messages = messages[: MAX_MESSAGES // 2] + messages[-MAX_MESSAGES // 2 :]
    answers = _read_answer(answer)
    settings = [(name, _write_short(value)) for name, value in body.items() if name not in SAID]
    shown = ShownConversation(messages, answers, _read_tools(body), settings, left_out)
    _limit_images(shown)
    return shown


def write_pretty(body: bytes) -> str:
    """Return JSON with indentation, other text as it is."""
    value = _load(body) if len(body) <= MAX_BYTES else None
    return body.decode("utf-8", "replace") if value is None else _write(value)


def _load(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _write(value: Any, option: int = orjson.OPT_INDENT_2) -> str:
    try:
        written = orjson.dumps(value)
        if option and len(written) * _depth_of(value) <= MAX_INDENTED:
            written = orjson.dumps(value, option=option)
        return written.decode()
    except orjson.JSONEncodeError:
        return "(nested too deeply to be shown)"


def _depth_of(value: Any) -> int:
    """Return how many levels of objects and lists a value has. Indentation adds so many times its length."""
    depth = 0
    level = [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _write_short(value: Any) -> str:
    return (value if isinstance(value, str) else _write(value, 0))[:200]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# The request.


def _read_messages(body: Json) -> list[ShownMessage]:
    found = []
    for name in ("system", "instructions", "systemInstruction", "system_instruction"):
        if body.get(name):
            content = body[name]
            found.append(ShownMessage("system", _read_parts(_dict(content).get("parts", content))))
    for name in ("messages", "prompt", "contents", "input"):
        content = body.get(name)
        if isinstance(content, str):
            found.append(ShownMessage("user", [ShownPart("text", content[:MAX_TEXT])]))
        found += [_read_message(_dict(item)) for item in _list(content)]
    return [message for message in found if message.parts]


def _read_message(item: Json) -> ShownMessage:
    """Return a message, or an item that stands for one."""
    kind = _text(item.get("type"))
    if kind not in ("", "message"):
        role = "user" if kind.startswith("input") else "assistant"
        if "output" in kind:
            role = "tool"
        return ShownMessage(role, [_read_part(item)])
    role = _text(item.get("role")) or "user"
    if role == "model":
        role = "assistant"
    parts = []
    for name in ("reasoning_content", "reasoning"):
        if isinstance(item.get(name), str) and item[name]:
            parts.append(ShownPart("reasoning", item[name][:MAX_TEXT]))
            break
    content = item.get("content", item.get("parts"))
    if role == "tool" and "tool_call_id" in item:
        text = content if isinstance(content, str) else _join(_read_parts(content))
        parts.append(ShownPart("result", _write_arguments(text), _text(item.get("tool_call_id"))))
    else:
        parts += _read_parts(content)
    if isinstance(item.get("refusal"), str) and item["refusal"]:
        parts.append(ShownPart("refusal", item["refusal"][:MAX_TEXT]))
    for call in _list(item.get("tool_calls"))[:MAX_PARTS]:
        function = _dict(_dict(call).get("function")) or _dict(_dict(call).get("custom"))
        arguments = function.get("arguments", function.get("input"))
        parts.append(ShownPart("call", _write_arguments(arguments), _text(function.get("name"))))
    if "cache_control" in item and parts:
        parts[-1].cached = True
    return ShownMessage(role, parts)


def _join(parts: Iterable[ShownPart]) -> str:
    return "\n".join(part.text for part in parts)


def _read_parts(content: Any, *, of_result: bool = False) -> list[ShownPart]:
    if isinstance(content, str):
        return [ShownPart("text", content[:MAX_TEXT])] if content else []
    if isinstance(content, dict):
        content = [content]
    return [
        ShownPart("text", item[:MAX_TEXT]) if isinstance(item, str) else _read_part(_dict(item), of_result=of_result)
        for item in _list(content)[:MAX_PARTS]
    ]


def _read_part(item: Json, *, of_result: bool = False) -> ShownPart:
    """Return a part. A result in a result is shown as JSON, however deeply callers nest them."""
    known = None if of_result and _kind_of(item) in RESULTS else _read_known(item)
    part = known or ShownPart("json", _write(item)[:MAX_TEXT], _text(item.get("type")))
    part.cached = "cache_control" in item or "cacheControl" in _write_short(item.get("providerOptions"))
    return part


def _kind_of(item: Json) -> str:
    return _text(item.get("type")).replace("-", "_")


def _read_known(item: Json) -> ShownPart | None:
    kind = _kind_of(item)
    for names, read in READERS:
        if kind in names:
            return read(item)
    for name, read in SHAPES.items():
        if name in item:
            return read(item)
    return None


def _read_text(item: Json) -> ShownPart:
    return ShownPart("reasoning" if item.get("thought") is True else "text", _text(item.get("text"))[:MAX_TEXT])


def _read_reasoning(item: Json) -> ShownPart:
    texts = [_text(item.get("thinking")), _text(item.get("text"))]
    for name in ("summary", "content"):
        texts += [_text(_dict(one).get("text")) for one in _list(item.get(name))[:MAX_PARTS]]
    return ShownPart("reasoning", "\n".join(text for text in texts if text)[:MAX_TEXT] or "(encrypted)")


def _read_call(item: Json) -> ShownPart:
    name = _text(item.get("name")) or _text(item.get("toolName")) or _text(item.get("type"))
    arguments = next((item[one] for one in ("arguments", "input", "args", "action") if one in item), "")
    return ShownPart("call", _write_arguments(arguments), name)


def _read_result(item: Json) -> ShownPart:
    content = next((item[one] for one in ("content", "output", "result") if one in item), "")
    if isinstance(content, list):
        content = _join(_read_parts(content, of_result=True))
    name = next((_text(item[one]) for one in ("toolName", "tool_use_id", "call_id", "toolCallId") if one in item), "")
    return ShownPart("result", _write_arguments(content), name, failed=item.get("is_error") is True)


def _read_function_call(item: Json) -> ShownPart:
    call = _dict(item["functionCall"])
    return ShownPart("call", _write_arguments(call.get("args", {})), _text(call.get("name")))


def _read_function_response(item: Json) -> ShownPart:
    response = _dict(item["functionResponse"])
    return ShownPart("result", _write_arguments(response.get("response", {})), _text(response.get("name")))


def _write_arguments(value: Any) -> str:
    """Return arguments of a call, or a result, as pretty JSON where they are JSON."""
    if isinstance(value, str):
        parsed = _load(value.encode("utf-8", "replace"))
        return (_write(parsed) if isinstance(parsed, dict | list) else value)[:MAX_TEXT]
    return _write(value)[:MAX_TEXT]


def _read_media(item: Json) -> ShownPart:
    """Return an image, a file or sound: a picture that the payload contains, otherwise what is known of it."""
    source = next((item[one] for one in MEDIA if one in item), item)
    fields = _dict(source) or {"url": source}
    media_type = next(
        (_text(fields[one]) for one in ("media_type", "mediaType", "mimeType", "mime_type") if one in fields), ""
    )
    url = next((_text(fields[one]) for one in ("url", "image", "file_data", "fileUri") if one in fields), "")
    data = _text(fields.get("data"))
    if data and not url and not data.startswith(("http:", "https:", "data:")):
        url = f"data:{media_type};base64,{data}"
    url = url or data
    title = next((_text(one[name]) for one in (fields, item) for name in ("filename", "title") if name in one), "")
    head, _, encoded = url.partition(";base64,")
    is_picture = head.lower() in PICTURES and len(url) <= MAX_IMAGE and _is_base64(encoded)
    if is_picture:
        return ShownPart("image", url=url, title=title)
    about = head if head.startswith("data:") else url
    size = f", {len(encoded) * 3 // 4:,} bytes" if encoded else ""
    return ShownPart("file", f"{about[:300] or media_type or 'file'}{size}", title)


def _is_base64(text: str) -> bool:
    return bool(text) and text.isascii() and all(one.isalnum() or one in "+/=" for one in text[:100])


MEDIA = ("source", "image_url", "inlineData", "inline_data", "fileData", "input_audio", "file")
ReadPart = Callable[[Json], ShownPart]
RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")
READERS: tuple[tuple[tuple[str, ...], ReadPart], ...] = (
    (("text", "input_text", "output_text"), _read_text),
    (("thinking", "reasoning", "redacted_thinking"), _read_reasoning),
    (("image_url", "input_image", "image", "document", "file", "input_file", "input_audio"), _read_media),
    (("tool_use", "tool_call", "server_tool_use", "function_call", "custom_tool_call", "mcp_call"), _read_call),
    (RESULTS, _read_result),
)
# Members by which parts without a type are recognised.
SHAPES: Mapping[str, ReadPart] = {
    "functionCall": _read_function_call,
    "functionResponse": _read_function_response,
    "inlineData": _read_media,
    "fileData": _read_media,
    "text": _read_text,
}


SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")


def _read_tools(body: Json) -> list[ShownTool]:
    tools = []
    for item in _list(body.get("tools"))[:MAX_TOOLS]:
        fields = _dict(item)
        declared = _list(fields.get("functionDeclarations") or fields.get("function_declarations"))
        for one in declared[:MAX_TOOLS] or [_dict(fields.get("function")) or fields]:
            tool = _dict(one)
            schema = next(
                (
                    tool[name]
                    for name in ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
                    if name in tool
                ),
                None,
            )
            name = _text(tool.get("name")) or _text(tool.get("type")) or "tool"
            written = _write(schema if schema is not None else tool)[:MAX_TEXT]
            tools.append(ShownTool(name, _text(tool.get("description"))[:MAX_TEXT], written, "cache_control" in fields))
    return tools[:MAX_TOOLS]


def _limit_images(shown: ShownConversation) -> None:
    """Replace pictures beyond the size of a page by what is known of them."""
    room = MAX_IMAGE
    for message in (*shown.answers, *reversed(shown.messages)):
        for part in message.parts:
            if part.kind != "image":
                continue
            room -= len(part.url)
            if room < 0:
                part.kind, part.text, part.url = "file", f"{part.url.partition(';')[0]}, too large to be shown", ""


# The answer: one JSON value, or a stream of events.


def _read_answer(answer: bytes) -> list[ShownMessage]:
    body = _load(answer)
    if isinstance(body, dict):
        return _read_whole(body)
    return _AnswerStream().read(_events(answer))


def _read_whole(body: Json) -> list[ShownMessage]:
    if "error" in body and len(body) <= 3 and not _list(body.get("output")):
        return [ShownMessage("error", [ShownPart("json", _write(body)[:MAX_TEXT])])]
    found = [
        _read_message({"role": "assistant", **_dict(_dict(one).get("message"))}) for one in _list(body.get("choices"))
    ]
    found += [
        _read_message({"role": "assistant", **_dict(_dict(one).get("content"))})
        for one in _list(body.get("candidates"))
    ]
    found += [_read_message(_dict(one)) for one in _list(body.get("output"))]
    if isinstance(body.get("content"), list):
        found.append(ShownMessage("assistant", _read_parts(body["content"])))
    return [message for message in found if message.parts][:MAX_MESSAGES]


def _events(answer: bytes) -> Iterator[Json]:
    for line in answer.splitlines():
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data and data != DONE:
            yield _dict(_load(data))


class _AnswerStream:
    """Collects the pieces of a streamed answer by the part to which they belong."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[Any, ...], list[str]] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._others: list[ShownPart] = []

    def read(self, events: Iterable[Json]) -> list[ShownMessage]:
        for event in events:
            if _text(event.get("type")) in ("response.completed", "response.incomplete"):
                return _read_whole(_dict(event.get("response")))
            self._read_choices(event)
            self._read_blocks(event)
            self._read_candidates(event)
            if "error" in event:
                self._others.append(ShownPart("json", _write(event["error"])[:MAX_TEXT]))
        parts = []
        for key, pieces in self._pieces.items():
            text = "".join(pieces)
            kind = key[0]
            if kind == "call":
                parts.append(ShownPart("call", _write_arguments(text), self._names.get(key, "")))
            elif text:
                parts.append(ShownPart(kind, text[:MAX_TEXT]))
        parts += self._others[:MAX_PARTS]
        return [ShownMessage("assistant", parts[:MAX_PARTS])] if parts else []

    def _add(self, kind: str, place: Any, text: Any, name: Any = "") -> None:
        key = (kind, place)
        self._pieces.setdefault(key, []).append(_text(text))
        if isinstance(name, str) and name:
            self._names[key] = name

    def _read_choices(self, event: Json) -> None:
        for choice in _list(event.get("choices")):
            delta = _dict(_dict(choice).get("delta"))
            place = _text(str(_dict(choice).get("index")))
            self._add("reasoning", place, delta.get("reasoning_content") or delta.get("reasoning"))
            self._add("text", place, delta.get("content"))
            self._add("refusal", place, delta.get("refusal"))
            for call in _list(delta.get("tool_calls")):
                function = _dict(_dict(call).get("function"))
                index = str(_dict(call).get("index"))
                self._add("call", (place, index), function.get("arguments"), function.get("name"))

    def _read_blocks(self, event: Json) -> None:
        kind, index = _text(event.get("type")), str(event.get("index", event.get("id")))
        block, delta = _dict(event.get("content_block")), _dict(event.get("delta"))
        if kind == "content_block_start" and "tool" in _text(block.get("type")) and "name" in block:
            self._add("call", index, "", block.get("name"))
        elif "partial_json" in delta:
            self._add("call", index, delta["partial_json"])
        elif "thinking" in delta:
            self._add("reasoning", index, delta["thinking"])
        elif kind == "content_block_delta" and "text" in delta:
            self._add("text", index, delta["text"])
        elif kind in ("text-delta", "reasoning-delta"):
            self._add(kind.partition("-")[0], index, event.get("delta") or event.get("textDelta"))
        elif kind == "tool-call":
            self._others.append(_read_call(event))

    def _read_candidates(self, event: Json) -> None:
        for candidate in _list(event.get("candidates")):
            for item in _list(_dict(_dict(candidate).get("content")).get("parts")):
                part = _read_part(_dict(item))
                if part.kind in ("text", "reasoning"):
                    self._add(part.kind, "candidate", part.text)
                else:
                    self._others.append(part)
