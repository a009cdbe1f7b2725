"""Writes a neutral result as the body of a generate call, the elements that streams share with
it, and the conversion to older versions of the specification."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, Required, TypedDict

import orjson

from gateway.clock import to_iso
from gateway.dialects.aisdk import FINISH_WRITE, OWN_NAMESPACE, AiUsage, FailedCall, FinishShown, FlatUsage, write_usage
from gateway.dialects.error_details import DETAILED
from gateway.neutral.chat import ChatResult
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Media, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.neutral.usage import NO_USAGE
from gateway.surfaces.aisdk.options import other, write_reasoning, write_signature
from gateway.surfaces.aisdk.reader import Question
from gateway.surfaces.web.answer_structs import JsonObject
from gateway.surfaces.web.facts import Facts

# Answers for the AI SDK as types: the body of a generate call, and the parts of a stream.
#
# The formats are the types of `@ai-sdk/provider` 2, 3 and 4. Where they differ, the member has the type of each
# version.


class AiFile(TypedDict, total=False):
    """A file at a URL, or its base64 data."""

    type: Required[Literal["url", "data"]]
    url: str
    data: str


class AiContent(TypedDict, total=False):
    """A part of the content; its type decides which members it has."""

    type: Required[str]
    id: str
    text: str
    toolCallId: str
    toolName: str
    input: str
    result: list[JsonObject]
    providerExecuted: bool
    providerMetadata: JsonObject
    sourceType: Literal["url", "document"]
    url: str
    title: str
    mediaType: str
    data: AiFile | str


class AiResponse(TypedDict):
    id: str
    timestamp: str
    modelId: str


class AiEnd(TypedDict):
    finishReason: FinishShown | str
    usage: AiUsage | FlatUsage


class GeneratedAnswer(AiEnd):
    content: list[AiContent]
    warnings: list[JsonObject]
    providerMetadata: JsonObject
    response: AiResponse


class StreamPart(AiContent, total=False):
    """A part of a stream; its type decides which members it has."""

    delta: str
    warnings: list[JsonObject]
    timestamp: str
    modelId: str
    finishReason: FinishShown | str
    usage: AiUsage | FlatUsage
    error: Annotated[FailedCall, DETAILED]


# Web searches run by the provider, as tool calls and results under the name that the caller gave to web search.
#
# For each search that a provider reports, a caller sees a call with its query, then its result, then the
# sources.

Json = dict[str, Any]

RESULT = "web_search_result"
PAGED = "application/pdf"
PLAIN_TEXT = "text/plain"


def write_search_call(ident: str, name: str, arguments: str) -> StreamPart:
    """Return the call; the schema of every search tool accepts an object with a query."""
    text = orjson.dumps({"query": _query_of(arguments)}).decode()
    return {"type": "tool-call", "toolCallId": ident, "toolName": name, "input": text, "providerExecuted": True}


def write_result(ident: str, name: str, results: list[Json]) -> StreamPart:
    return {"type": "tool-result", "toolCallId": ident, "toolName": name, "result": results}


def write_source(source: Source, ident: str) -> StreamPart:
    """Return a source: a page, or a place in the caller's content."""
    if source.url:
        page: StreamPart = {"type": "source", "sourceType": "url", "id": ident, "url": source.url}
        if source.title:
            page["title"] = source.title
        return page
    kind = PAGED if source.place is not None and source.place.kind == "pages" else PLAIN_TEXT
    return {
        "type": "source",
        "sourceType": "document",
        "id": ident,
        "mediaType": kind,
        "title": source.title or "Document",
    }


def found_of(sources: Iterable[Source]) -> list[Json]:
    """Return the result of a search if its pages are only known from citations."""
    pages = {source.url: source.title for source in sources if source.url}
    return [{"type": RESULT, "url": url, "title": title} for url, title in pages.items()]


def found_in(body: Json) -> tuple[str, list[Json]]:
    """Return the call id and results in a provider's own block of results; ("", []) for any other block."""
    ident = body.get("tool_use_id")
    content = body.get("content")
    if not isinstance(ident, str) or not isinstance(content, list):
        return "", []
    pages = [page for page in content if isinstance(page, dict) and isinstance(page.get("url"), str)]
    return ident, [{"type": RESULT, "url": page["url"], "title": page.get("title") or ""} for page in pages]


def _query_of(arguments: str) -> str:
    try:
        given = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(given, dict):
        return ""
    queries = given.get("queries")
    query = given.get("query") or (queries[0] if isinstance(queries, list) and queries else "")
    if isinstance(query, str):
        return query
    return ""


ID_PREFIX = "gen_"
DEFAULT_IMAGE_TYPE = "image/png"
FAILED: FinishShown = {"unified": "error", "raw": "error"}


def reply(result: ChatResult, facts: Facts, question: Question) -> bytes:
    """Return the body in the question's version. Only the first choice is used: the format has room for one."""
    choice = result.choices[0]
    content = _Content(facts, question).write(choice.parts)
    called = any(part["type"] == "tool-call" and not part.get("providerExecuted") for part in content)
    usage, metadata = write_costs(facts)
    body: GeneratedAnswer = {
        "content": content,
        "finishReason": write_finish(choice.finish, called),
        "usage": usage,
        "warnings": write_warnings(facts, question),
        "providerMetadata": metadata,
        "response": write_response(facts),
    }
    return dumps(downgrade_body(body, question.version), result.large)


def write_finish(reason: Any, called: bool) -> FinishShown:
    """Return the finish reason. Clients run tools whenever the response has calls of their tools, so calls decide
    between the two usual words."""
    unified = FINISH_WRITE[reason]
    if reason in ("stop", "tool_calls"):
        unified = "tool-calls" if called else "stop"
    return {"unified": unified, "raw": reason}


def write_costs(facts: Facts) -> tuple[AiUsage, Json]:
    """Return usage and provider metadata, both with the cost."""
    cost = facts.cost()
    return write_usage(facts.usage, cost), {OWN_NAMESPACE: {**facts.metadata(), **cost}}


def write_no_costs() -> AiUsage:
    """Return the usage of a response that never began."""
    return write_usage(NO_USAGE, {})


def write_warnings(facts: Facts, question: Question) -> list[Json]:
    return [*question.warnings, *map(other, facts.warnings)]


def write_response(facts: Facts) -> AiResponse:
    timestamp = to_iso(facts.context.at_us)
    return {"id": facts.answer_id, "timestamp": timestamp, "modelId": facts.served}


def as_link(media: Media) -> str:
    """Return a file at a URL as text, for versions that cannot represent it otherwise."""
    return f"![file]({media.url})"


def write_file(media: Media) -> StreamPart:
    kind = media.media_type or DEFAULT_IMAGE_TYPE
    data: AiFile
    data = {"type": "url", "url": media.url} if media.url else {"type": "data", "data": media.data}
    return {"type": "file", "mediaType": kind, "data": data}


def write_call(ident: str, name: str, arguments: str, custom: bool, signature: str, vendor: str) -> StreamPart:
    """Return a call that the caller has to run. `input` is JSON text; free text is a JSON string."""
    text = orjson.dumps(arguments).decode() if custom else arguments or "{}"
    call: StreamPart = {"type": "tool-call", "toolCallId": ident, "toolName": name, "input": text}
    return with_metadata(call, write_signature(signature, vendor))


def with_metadata(part: StreamPart, metadata: Json) -> StreamPart:
    if metadata:
        part["providerMetadata"] = metadata
    return part


class _Content:
    """The parts of one complete response, in order."""

    def __init__(self, facts: Facts, question: Question) -> None:
        self._request_id = facts.context.request_id
        self._search = question.search
        self._version = question.version
        self._sources = 0
        self._searched = False

    def write(self, parts: Sequence[Part]) -> list[AiContent]:
        results: dict[str, list[Json]] = {}
        for part in parts:
            if isinstance(part, VendorPart):
                ident, pages = found_in(part.body)
                results[ident] = pages
        ran = [part for part in parts if isinstance(part, ToolCall) and part.executed]
        sources = [source for part in parts for source in getattr(part, "sources", ())]
        if ran and ran[-1].id not in results:
            results[ran[-1].id] = found_of(sources)
        content: list[AiContent] = []
        for part in parts:
            content += self._write(part, results, sources)
        return content

    def _write(self, part: Part, results: dict[str, list[Json]], sources: list[Source]) -> list[AiContent]:
        match part:
            case Text():
                return self._write_text(part, sources)
            case Refusal():
                return [{"type": "text", "text": part.text}]
            case Reasoning():
                return [with_metadata({"type": "reasoning", "text": part.text}, write_reasoning(part))]
            case ToolCall() if part.executed:
                return self._write_search(part.id, part.arguments, results.get(part.id, []))
            case ToolCall():
                return [write_call(part.id, part.name, part.arguments, part.custom, part.signature, part.vendor)]
            case Image() if part.media.url and not takes_addresses(self._version):
                return [{"type": "text", "text": as_link(part.media)}]
            case Image():
                return [write_file(part.media)]
        return []

    def _write_text(self, part: Text, sources: list[Source]) -> list[AiContent]:
        content: list[AiContent] = []
        if part.sources and not self._searched:
            # A provider that reports only sources searched nevertheless.
            content += self._write_search(f"search_{self._request_id}", "", found_of(sources))
        for source in part.sources:
            content.append(write_source(source, f"src_{self._request_id}_{self._sources}"))
            self._sources += 1
        if part.text or part.signature:
            text: StreamPart = {"type": "text", "text": part.text}
            content.append(with_metadata(text, write_signature(part.signature, part.vendor)))
        return content

    def _write_search(self, ident: str, arguments: str, results: list[Json]) -> list[AiContent]:
        """Write a search. If an option enabled search, the caller has no name for the tool, and nothing is sent."""
        self._searched = True
        if not self._search:
            return []
        return [
            write_search_call(ident, self._search, arguments),
            write_result(ident, self._search, results),
        ]


# Converts a response of the newest specification version to an older one, one small step per version.
#
# The formats are the types of `@ai-sdk/provider` 2, 3 and 4. A client of version 2 fails on parts that it does not
# know, so no step may leave one in.

Step = dict[str, Callable[[Json], Json]]

NEWEST = 4
OLDEST = 2
BODY = "generate"  # the steps' name for the body of a complete response, which is no part


def takes_addresses(version: int) -> bool:
    """Return whether a file can be given by its URL; older versions accept only bytes, so there it becomes text."""
    return version == NEWEST


def downgrade_part(part: Any, version: int) -> Any:
    """Return a stream part or content part in the format of `version`."""
    if version == NEWEST:
        return part
    return _take(part, part["type"], version)


def downgrade_body(body: Any, version: int) -> Any:
    """Return the body of a complete response in the format of `version`."""
    if version == NEWEST:
        return body
    body["content"] = [downgrade_part(part, version) for part in body["content"]]
    return _take(body, BODY, version)


def _take(part: Json, kind: str, version: int) -> Json:
    for older, step in ((3, TO_3), (2, TO_2)):
        if version <= older and kind in step:
            part = step[kind](part)
    return part


def _bare_file(part: Json) -> Json:
    """Convert the data of a file to bare base64."""
    return {**part, "data": part["data"]["data"]}


def _named_setting(part: Json) -> Json:
    """Add the name of the setting under version 2's key to warnings."""
    warnings = [
        {**warning, "setting": warning["feature"]} if warning["type"] == "unsupported" else warning
        for warning in part["warnings"]
    ]
    return {**part, "warnings": warnings}


def _flat_end(part: Json) -> Json:
    """Convert the finish reason to a word and usage to one level of numbers."""
    usage = part["usage"]
    read = usage["inputTokens"]
    made = usage["outputTokens"]
    flat = {
        "inputTokens": read["total"],
        "outputTokens": made["total"],
        "totalTokens": read["total"] + made["total"],
        "reasoningTokens": made["reasoning"],
        "cachedInputTokens": read["cacheRead"],
    }
    return {**part, "finishReason": part["finishReason"]["unified"], "usage": flat}


TO_3: Step = {"file": _bare_file}
TO_2: Step = {
    "tool-result": lambda part: {**part, "providerExecuted": True},
    "stream-start": _named_setting,
    "finish": _flat_end,
    BODY: lambda body: _named_setting(_flat_end(body)),
}
