"""Parts of messages as a page shows them: texts, reasoning, calls, results, pictures and files, in each dialect.

Requests of callers may be anything, so this reader never fails: parts are recognised by their shape, and those that it
does not know are shown as JSON. Nothing of a payload is interpreted as markup.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
from msgspec import Struct, field

from gateway.routes.turns import TURNS

MAX_PARTS = 200  # of a message
MAX_TEXT = 40_000  # characters of a part
MAX_SOURCES = 50  # of a part
MAX_SOURCE_TEXT = 500  # characters
MAX_INDENTED = 400_000  # length times depth of a part that is written with indentation
MAX_DEPTH = 32  # likewise
MAX_IMAGE = 1_500_000  # characters of an image, and of all images of a page
PICTURES = ("data:image/png", "data:image/jpeg", "data:image/gif", "data:image/webp")
# Base64 of the first bytes of image formats, for answers that name none.
IMAGE_STARTS = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}

OPENING = re.compile(r"\s*<([A-Za-z][\w-]{1,60})>")
Json = dict[str, Any]


class ShownSource(Struct, frozen=True):
    """A source that an answer cites. `url` may be anything that a model wrote: it is shown, and never a link."""

    title: str
    url: str = ""
    quote: str = ""


class ShownPart(Struct):
    """A part of a message. `kind` is text, added (by an agent to what the user wrote), reasoning, call, result, image,
    file, refusal, sources or json; `title` the name of a tool, file or tag; `url` a data URL of a picture; `call` the
    id of a call, in a call and in its result. `cached`: a cache mark ends here."""

    kind: str
    text: str = ""
    title: str = ""
    url: str = ""
    cached: bool = False
    failed: bool = False
    sources: list[ShownSource] = field(default_factory=list)
    call: str = ""


class ShownMessage(Struct):
    role: str
    parts: list[ShownPart] = field(default_factory=list)


# Values of unknown types, and JSON as text.


def load(body: bytes) -> Any:
    """Return the value of JSON, None for other bytes."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def write_json(value: Any, option: int = orjson.OPT_INDENT_2, most: int = MAX_INDENTED) -> str:
    """Return a value as JSON, with indentation unless that would make it many times as long. `most` is the greatest
    product of length and depth with indentation."""
    try:
        written = orjson.dumps(value)
        depth = _depth_of(value) if option and len(written) <= most else MAX_DEPTH + 1
        if depth <= MAX_DEPTH and len(written) * depth <= most:
            written = orjson.dumps(value, option=option)
        return written.decode()
    except orjson.JSONEncodeError:
        return "(nested too deeply to be shown)"


def _depth_of(value: Any) -> int:
    """Return how many levels of objects and lists a value has, MAX_DEPTH + 1 for more. Indentation adds so many times
    its length."""
    depth = 0
    level = [value]
    while depth <= MAX_DEPTH and (level := [one for one in level if isinstance(one, dict | list)]):
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def write_short(value: Any) -> str:
    return (value if isinstance(value, str) else write_json(value, 0))[:200]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def find_text(item: Json, *names: str) -> str:
    """Return the first of these members that is a text with content, "" without one."""
    return next((item[name] for name in names if isinstance(item.get(name), str) and item[name]), "")


def find_member(item: Json, *names: str) -> Any:
    """Return the first of these members that is present, "" without one."""
    return next((item[name] for name in names if name in item), "")


# Messages.


def read_message(item: Json) -> ShownMessage:
    """Return a message, or an item that stands for one."""
    kind = as_text(item.get("type"))
    if kind not in ("", "message"):
        role = "user" if kind.startswith("input") else "assistant"
        if "output" in kind:
            role = "tool"
        return ShownMessage(role, [read_part(item)])
    role = (as_text(item.get("role")) or "user").lower()
    if role in ("model", "chatbot"):
        role = "assistant"
    parts = list(_read_spoken(item, role))
    if role == "user":
        parts = join_added(piece for part in parts for piece in split_added(part))
    if _is_marked(item) and parts:
        parts[-1].cached = True
    return ShownMessage(role, parts[:MAX_PARTS])


def split_added(part: ShownPart) -> Iterator[ShownPart]:
    """Yield what an agent added before the text of a user as parts of their own, each with the name of its tag, and
    then the text. The agents' tags are those of the table of turns."""
    if part.kind != "text":
        yield part
        return
    at = 0
    while True:
        found = OPENING.match(part.text, at)
        if found is None or not found[0].lstrip().lower().startswith(TURNS.added):
            break
        end = part.text.find(f"</{found[1]}>", found.end())
        if end < 0:
            break
        yield ShownPart("added", part.text[found.end() : end].strip(), found[1])
        at = end + len(found[1]) + 3
    rest = part.text[at:].lstrip("\n") if at else part.text
    if rest.strip() or not at or part.cached or part.sources:
        part.text = rest
        yield part


def join_added(parts: Iterable[ShownPart]) -> list[ShownPart]:
    """Return the parts with what an agent added in succession as one part each; its title counts them."""
    joined: list[ShownPart] = []
    counts: dict[str, int] = {}
    for part in parts:
        last = joined[-1] if joined else None
        if part.kind != "added" or last is None or last.kind != "added" or last.cached:
            joined.append(part)
            counts = {part.title: 1}
            continue
        counts[part.title] = counts.get(part.title, 0) + 1
        last.text = f"{last.text}\n\n{part.text}"[:MAX_TEXT]
        last.cached = part.cached
        last.title = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())
    return joined


def _read_spoken(item: Json, role: str) -> Iterator[ShownPart]:
    """Yield the parts of a message in the order in which a model produces them."""
    reasoning = find_text(item, "reasoning_content", "reasoning") or _join_details(item.get("reasoning_details"))
    if reasoning:
        yield ShownPart("reasoning", reasoning[:MAX_TEXT])
    plan = find_text(item, "tool_plan")
    if plan:
        yield ShownPart("reasoning", plan[:MAX_TEXT])
    content = find_member(item, "content", "parts", "message")
    if role == "tool" and ("tool_call_id" in item or "tool_results" in item):
        yield _read_tool_message(item, content)
    else:
        yield from read_parts(content)
    if find_text(item, "refusal"):
        yield ShownPart("refusal", item["refusal"][:MAX_TEXT])
    for image in as_list(item.get("images"))[:MAX_PARTS]:
        yield read_part(as_dict(image))
    audio = as_dict(item.get("audio"))
    if audio.get("transcript") or audio.get("data"):
        yield ShownPart("file", f"{find_text(audio, 'transcript')[:MAX_TEXT] or 'Spoken answer'}", "sound")
    calls = as_list(item.get("tool_calls"))[:MAX_PARTS]
    if isinstance(item.get("function_call"), dict):
        calls = [*calls, {"function": item["function_call"]}]
    yield from (_read_called(as_dict(call)) for call in calls)
    sources = read_sources([*as_list(item.get("annotations")), *as_list(item.get("citations"))])
    if sources:
        yield ShownPart("sources", sources=sources)


def _read_tool_message(item: Json, content: Any) -> ShownPart:
    if "tool_results" in item:
        return ShownPart("result", write_arguments(item["tool_results"]))
    text = content if isinstance(content, str) else join(read_parts(content, of_result=True))
    ident = as_text(item.get("tool_call_id"))
    return ShownPart("result", write_arguments(text), ident, call=ident)


def _read_called(call: Json) -> ShownPart:
    """Return a call of a function or of a tool with free text."""
    function = as_dict(call.get("function")) or as_dict(call.get("custom")) or call
    arguments = find_member(function, "arguments", "input", "parameters")
    return ShownPart("call", write_arguments(arguments), as_text(function.get("name")), call=as_text(call.get("id")))


def _join_details(details: Any) -> str:
    return "\n".join(
        text for one in as_list(details)[:MAX_PARTS] if (text := find_text(as_dict(one), "text", "summary"))
    )


def name_results(messages: Iterable[ShownMessage]) -> None:
    """Give each result the name of its call, which dialects name by an id."""
    names: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if part.kind == "call" and part.call:
                names[part.call] = part.title
            elif part.kind == "result":
                part.title = names.get(part.call, part.title)


def join(parts: Iterable[ShownPart]) -> str:
    """Return the texts of parts; a part without one is named by its kind."""
    return "\n".join(part.text or f"({part.kind})" for part in parts)


def read_parts(content: Any, *, of_result: bool = False) -> list[ShownPart]:
    """Return the parts of a content: a text, an object or a list of either."""
    if isinstance(content, str):
        return [ShownPart("text", content[:MAX_TEXT])] if content else []
    if isinstance(content, dict):
        content = [content]
    return [
        ShownPart("text", item[:MAX_TEXT]) if isinstance(item, str) else read_part(as_dict(item), of_result=of_result)
        for item in as_list(content)[:MAX_PARTS]
    ]


def read_part(item: Json, *, of_result: bool = False) -> ShownPart:
    """Return a part. A result in a result is shown as JSON, however deeply callers nest them."""
    known = None if of_result and _kind_of(item) in RESULTS else _read_known(item)
    part = known or ShownPart("json", write_json(item)[:MAX_TEXT], as_text(item.get("type")))
    part.cached = _is_marked(item)
    if not part.sources and part.kind == "text":
        part.sources = read_sources([*as_list(item.get("citations")), *as_list(item.get("annotations"))])
    return part


def _is_marked(item: Json) -> bool:
    if "cache_control" in item or "cachePoint" in item:
        return item.get("cache_control", True) is not None
    return "cacheControl" in write_short(item.get("providerOptions"))


def _kind_of(item: Json) -> str:
    return as_text(item.get("type")).replace("-", "_")


def _read_known(item: Json) -> ShownPart | None:
    kind = _kind_of(item)
    for names, read in READERS:
        if kind in names:
            return read(item)
    if kind.endswith(("_tool_result", "_call_output")):
        return _read_result(item)
    if kind.endswith("_call"):
        return _read_call(item)
    for name, read in SHAPES.items():
        if name in item:
            return read(item)
    return None


def _read_text(item: Json) -> ShownPart:
    return ShownPart("reasoning" if item.get("thought") is True else "text", as_text(item.get("text"))[:MAX_TEXT])


def _read_refusal(item: Json) -> ShownPart:
    return ShownPart("refusal", find_text(item, "refusal", "text")[:MAX_TEXT])


def _read_reasoning(item: Json) -> ShownPart:
    texts = [as_text(item.get("thinking")), as_text(item.get("text"))]
    for name in ("summary", "content"):
        texts += [as_text(as_dict(one).get("text")) for one in as_list(item.get(name))[:MAX_PARTS]]
    return ShownPart("reasoning", "\n".join(text for text in texts if text)[:MAX_TEXT] or "(encrypted)")


def _read_call(item: Json) -> ShownPart:
    name = find_text(item, "name", "toolName") or as_text(item.get("type"))
    arguments = find_member(item, "arguments", "input", "args", "action", "queries", "code")
    return ShownPart("call", write_arguments(arguments), name, call=find_text(item, "call_id", "toolCallId", "id"))


def _read_result(item: Json) -> ShownPart:
    content = find_member(item, "content", "output", "result")
    name = next((as_text(item[one]) for one in ("toolName", "tool_use_id", "call_id", "toolCallId") if one in item), "")
    failed = item.get("is_error") is True or item.get("isError") is True
    inner = as_dict(content)
    if "value" in inner and "type" in inner:  # of the AI SDK
        failed = failed or as_text(inner["type"]).startswith("error")
        content = inner["value"]
    if isinstance(content, list):
        content = join(read_parts(content, of_result=True))
    call = find_text(item, "tool_use_id", "call_id", "toolCallId")
    return ShownPart("result", write_arguments(content), name, failed=failed, call=call)


def _read_function_call(item: Json) -> ShownPart:
    call = as_dict(find_member(item, "functionCall", "function_call"))
    return ShownPart("call", write_arguments(call.get("args", {})), as_text(call.get("name")))


def _read_function_response(item: Json) -> ShownPart:
    response = as_dict(find_member(item, "functionResponse", "function_response"))
    return ShownPart("result", write_arguments(response.get("response", {})), as_text(response.get("name")))


def _read_code(item: Json) -> ShownPart:
    code = as_dict(find_member(item, "executableCode", "executable_code"))
    return ShownPart("call", as_text(code.get("code"))[:MAX_TEXT], as_text(code.get("language")).lower() or "code")


def _read_code_result(item: Json) -> ShownPart:
    result = as_dict(find_member(item, "codeExecutionResult", "code_execution_result"))
    failed = as_text(result.get("outcome")) not in ("", "OUTCOME_OK")
    return ShownPart("result", as_text(result.get("output"))[:MAX_TEXT], "code", failed=failed)


def _read_source(item: Json) -> ShownPart:
    return ShownPart("sources", sources=read_sources([item]))


def _read_drawn(item: Json) -> ShownPart:
    """Return the picture that an image tool drew."""
    return read_picture(find_text(item, "result"), find_text(item, "revised_prompt"))


def write_arguments(value: Any) -> str:
    """Return arguments of a call, or a result, as pretty JSON where they are JSON."""
    if isinstance(value, str):
        parsed = load(value.encode("utf-8", "replace"))
        return (write_json(parsed) if isinstance(parsed, dict | list) else value)[:MAX_TEXT]
    return write_json(value)[:MAX_TEXT]


# Sources of answers.


def read_sources(items: Iterable[Any]) -> list[ShownSource]:
    """Return the sources of citations in each dialect, each once."""
    found: dict[ShownSource, None] = {}
    for item in islice(items, MAX_SOURCES):
        for source in _sources_of(as_dict(item)):
            found[source] = None
    return list(found)[:MAX_SOURCES]


def _sources_of(item: Json) -> Iterator[ShownSource]:
    inner = as_list(item.get("sources"))[:MAX_SOURCES]  # of Cohere
    if inner:
        for one in inner:
            document = as_dict(as_dict(one).get("document"))
            yield _source_of({**as_dict(one), **document}, as_text(item.get("text")))
        return
    for name in ("url_citation", "file_citation", "web"):
        if isinstance(item.get(name), dict):
            item = {**item, **item[name]}
    yield _source_of(item, find_text(item, "cited_text", "quote", "text"))


def _source_of(item: Json, quote: str) -> ShownSource:
    url = find_text(item, "url", "uri")
    title = find_text(item, "title", "document_title", "filename", "file_id", "id", "source")
    return ShownSource(
        (title or url or as_text(item.get("type")) or "source")[:MAX_SOURCE_TEXT],
        url[:MAX_SOURCE_TEXT],
        quote[:MAX_SOURCE_TEXT],
    )


def read_grounding(candidate: Json) -> list[ShownSource]:
    """Return the sources of a Gemini candidate."""
    grounding = as_dict(find_member(candidate, "groundingMetadata", "grounding_metadata"))
    cited = as_dict(find_member(candidate, "citationMetadata", "citation_metadata"))
    chunks = as_list(find_member(grounding, "groundingChunks", "grounding_chunks"))
    return read_sources([*chunks, *as_list(find_member(cited, "citationSources", "citations"))])


# Pictures and files.


def _read_media(item: Json) -> ShownPart:
    """Return an image, a file or sound: a picture that the payload contains, otherwise what is known of it."""
    source = next((item[one] for one in MEDIA if one in item), item)
    fields = as_dict(source) or {"url": source}
    if isinstance(fields.get("data"), dict):  # of the AI SDK
        fields = {**fields, **fields["data"]}
    media_type = next((as_text(one[name]) for one in (fields, item) for name in MEDIA_TYPES if name in one), "")
    if as_text(fields.get("type")) == "text" and isinstance(fields.get("data"), str):
        return ShownPart("text", fields["data"][:MAX_TEXT], find_text(item, "title", "filename"))
    url = next(
        (as_text(fields[one]) for one in ("url", "image", "file_data", "fileUri", "file_uri") if one in fields), ""
    )
    data = as_text(fields.get("data"))
    if data and not url and not data.startswith(("http:", "https:", "data:")):
        url = f"data:{media_type};base64,{data}"
    url = url or data or find_text(fields, "file_id", "fileId")
    title = next((as_text(one[name]) for one in (fields, item) for name in ("filename", "title") if name in one), "")
    return read_picture(url, title, media_type)


def read_picture(url: str, title: str = "", media_type: str = "") -> ShownPart:
    """Return a picture in a data URL or in bare base64, or a line about anything else. An address is never loaded."""
    form = next((name for start, name in IMAGE_STARTS.items() if url.startswith(start)), "")
    if form:
        url = f"data:image/{form};base64,{url}"
    head, _, encoded = url.partition(";base64,")
    title = title[:MAX_SOURCE_TEXT]
    if head.lower() in PICTURES and len(url) <= MAX_IMAGE and _is_base64(encoded):
        return ShownPart("image", url=url, title=title)
    about = head if head.startswith("data:") else url
    size = f", {len(encoded) * 3 // 4:,} bytes" if encoded else ""
    return ShownPart("file", f"{about[:300] or media_type or 'file'}{size}", title)


def _is_base64(text: str) -> bool:
    return bool(text) and text.isascii() and all(one.isalnum() or one in "+/=" for one in text[:100])


MEDIA = ("source", "image_url", "inlineData", "inline_data", "fileData", "file_data", "input_audio", "file")
ADDRESSES = ("url", "image", "file_data", "fileUri", "file_uri")
FILES = ("image_url", "input_image", "image", "document", "file", "input_file", "input_audio", "container_upload")
CALLS = ("tool_use", "tool_call", "server_tool_use", "mcp_tool_use", "function_call", "custom_tool_call", "mcp_call")
MEDIA_TYPES = ("media_type", "mediaType", "mimeType", "mime_type")
ReadPart = Callable[[Json], ShownPart]
RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")
READERS: tuple[tuple[tuple[str, ...], ReadPart], ...] = (
    (("text", "input_text", "output_text"), _read_text),
    (("thinking", "reasoning", "redacted_thinking"), _read_reasoning),
    (FILES, _read_media),
    (CALLS, _read_call),
    (("refusal",), _read_refusal),
    (("source",), _read_source),
    (("image_generation_call",), _read_drawn),
    (RESULTS, _read_result),
)
# Members by which parts without a type are recognised.
SHAPES: Mapping[str, ReadPart] = {
    "functionCall": _read_function_call,
    "function_call": _read_function_call,
    "functionResponse": _read_function_response,
    "function_response": _read_function_response,
    "executableCode": _read_code,
    "executable_code": _read_code,
    "codeExecutionResult": _read_code_result,
    "code_execution_result": _read_code_result,
    "inlineData": _read_media,
    "inline_data": _read_media,
    "fileData": _read_media,
    "file_data": _read_media,
    "text": _read_text,
}
