"""Chats in version 1 of Cohere's format: bodies become those of version 2, and its answers those of version 1."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from gateway.dialects.cohere import FAILED, NAME, TIMED_OUT, CohereCounts
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatResult
from gateway.neutral.events import Batch
from gateway.neutral.long_json import dumps
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.cohere import cohere_chat_reader as v2
from gateway.surfaces.cohere.cohere_chat_reader import CohereChatBody, CohereMessage, CohereObject, Name
from gateway.surfaces.cohere.cohere_chat_reader import Json as CohereChatSchemaJson
from gateway.surfaces.cohere.cohere_chat_writer import ChatEvents, CohereEvent, answer_of, failure_of
from gateway.surfaces.cohere.embed import CohereVersion
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata
from gateway.surfaces.web.http_responses import write_frames

# The body of a chat in version 1 of Cohere's format, and its conversion to version 2. Unknown members are dropped.
#
# Source: Cohere API reference, v1 "Chat"; guide "Migrating from API v1 to API v2".

DEFAULT_MODEL = "auto"  # for requests without a model, which clients of this version need not name
# Types of parameters are written as in Python.
PARAMETER_TYPES = {
    "str": "string",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
    "list": "array",
    "array": "array",
    "dict": "object",
    "object": "object",
}
SAFETY_MODES = {"NONE": "OFF"}
NO_STORE = "conversations are not stored; send the earlier messages in chat_history"
NO_CONNECTORS = "connectors are not supported; send the texts in documents"
NO_QUERIES = "search queries are not generated apart from an answer; ask for them in the message"
NO_RAW = "prompts without the template of a chat are not supported"


class V1Object(Struct, gc=False):
    """An object that the answer repeats in full."""


class V1Call(V1Object):
    name: Name
    parameters: CohereChatSchemaJson = {}


class V1Result(V1Object):
    call: V1Call
    outputs: list[CohereChatSchemaJson] = []


class V1UserMessage(V1Object, tag_field="role", tag="USER"):
    message: str = ""


class V1SystemMessage(V1Object, tag_field="role", tag="SYSTEM"):
    message: str = ""


class V1ChatbotMessage(V1Object, tag_field="role", tag="CHATBOT"):
    message: str = ""
    tool_calls: list[V1Call] | None = None


class V1ToolMessage(V1Object, tag_field="role", tag="TOOL"):
    tool_results: list[V1Result] | None = None


V1Message = V1UserMessage | V1SystemMessage | V1ChatbotMessage | V1ToolMessage


class V1Parameter(CohereObject):
    type: str
    description: str | None = None
    required: bool | None = None


class V1Tool(CohereObject):
    name: Name
    description: str | None = None
    parameter_definitions: dict[str, V1Parameter] | None = None


class V1Format(CohereObject):
    type: Literal["text", "json_object"]
    schema: CohereChatSchemaJson | None = None


@with_parameters(NAME)
class V1ChatBody(CohereObject, kw_only=True):
    """Every member that has an effect, and those that are refused."""

    message: str
    model: Name = DEFAULT_MODEL
    stream: bool | None = None
    preamble: str | None = None
    chat_history: list[V1Message] | None = None
    documents: list[CohereChatSchemaJson] | None = None
    tools: list[V1Tool] | None = None
    tool_results: list[V1Result] | None = None
    response_format: V1Format | None = None
    citation_quality: str | None = None
    safety_mode: str | None = None
    seed: int | None = None
    stop_sequences: list[str] | None = None
    conversation_id: str | None = None
    connectors: list[Any] | None = None
    search_queries_only: bool | None = None
    raw_prompting: bool | None = None


DECODER = Decoder(V1ChatBody)
REFUSED = (
    ("conversation_id", NO_STORE),
    ("connectors", NO_CONNECTORS),
    ("search_queries_only", NO_QUERIES),
    ("raw_prompting", NO_RAW),
)
# Members of the same name and meaning in both versions.
SHARED_MEMBERS = tuple(
    name
    for name in V1ChatBody.__struct_fields__
    if name in CohereChatBody.__struct_fields__ and name not in ("documents", "tools", "response_format", "safety_mode")
)


def to_v2(body: V1ChatBody) -> CohereChatBody:
    """Return the body of the same chat in version 2. InvalidRequest for members that have no counterpart."""
    for name, reason in REFUSED:
        if getattr(body, name):
            raise invalid(name, reason)
    quality = body.citation_quality
    return CohereChatBody(
        **{name: getattr(body, name) for name in SHARED_MEMBERS},
        messages=_Messages().of(body),
        tools=list(map(_read_tool, body.tools)) if body.tools else None,
        documents=list(map(_read_document, body.documents)) if body.documents else None,
        response_format=_read_format(body.response_format),
        citation_options={"mode": quality.upper()} if quality else None,
        safety_mode=SAFETY_MODES.get(body.safety_mode, body.safety_mode) if body.safety_mode else None,
    )


class _Messages:
    """The messages of one chat. Calls of tools have no ids in version 1: a result repeats its call instead."""

    def __init__(self) -> None:
        self._messages: list[CohereMessage] = []
        self._waiting: dict[tuple[str, str], list[v2.CohereCall]] = {}  # calls without a result, by name and arguments
        self._calls = 0

    def of(self, body: V1ChatBody) -> list[CohereMessage]:
        if body.preamble:
            self._messages.append(v2.CohereSystemMessage(body.preamble))
        for earlier in body.chat_history or ():
            self._add(earlier)
        if body.message:
            self._add(V1UserMessage(body.message))
        self._add_results(body.tool_results or ())
        if not self._messages:
            raise invalid("message", "expected a text that is not empty")
        return self._messages

    def _add(self, message: V1Message) -> None:
        match message:
            case V1UserMessage():
                self._messages.append(v2.CohereUserMessage(message.message))
            case V1SystemMessage():
                self._messages.append(v2.CohereSystemMessage(message.message))
            case V1ToolMessage():
                self._add_results(message.tool_results or ())
            case V1ChatbotMessage():
                calls = list(map(self._call, message.tool_calls or ()))
                self._waiting = {}
                for call in reversed(calls):
                    self._waiting.setdefault(_key_of(call), []).append(call)
                text = message.message
                if calls:
                    self._messages.append(v2.CohereAssistantMessage(tool_plan=text or None, tool_calls=calls))
                else:
                    self._messages.append(v2.CohereAssistantMessage(text))

    def _add_results(self, results: Sequence[V1Result]) -> None:
        """Add results behind their calls. A call that is not in the history is added as well."""
        calls = list(map(self._call, (result.call for result in results)))
        known = [self._take(call) for call in calls]
        missing = [call for call, waiting in zip(calls, known, strict=True) if waiting is None]
        if missing:
            self._messages.append(v2.CohereAssistantMessage(tool_calls=missing))
        for result, call, waiting in zip(results, calls, known, strict=True):
            outputs = [v2.CohereDocumentBlock(v2.CohereDocument(output)) for output in result.outputs]
            self._messages.append(v2.CohereToolMessage((waiting or call).id, [*outputs]))

    def _take(self, call: v2.CohereCall) -> v2.CohereCall | None:
        """Return the earliest equal call without a result."""
        waiting = self._waiting.get(_key_of(call))
        if waiting:
            return waiting.pop()
        return None

    def _call(self, call: V1Call) -> v2.CohereCall:
        self._calls += 1
        function = v2.CohereCalledFunction(name=call.name, arguments=orjson.dumps(call.parameters).decode())
        return v2.CohereCall(id=f"call_{self._calls}", type="function", function=function)


def _key_of(call: v2.CohereCall) -> tuple[str, str]:
    return call.function.name, call.function.arguments


def _read_document(document: CohereChatSchemaJson) -> v2.CohereDocument:
    """Return a document, which has all its members at its top in version 1."""
    ident = document.get("id")
    data = {name: value for name, value in document.items() if name != "id"}
    return v2.CohereDocument(data, ident if isinstance(ident, str) else None)


def _read_tool(tool: V1Tool) -> v2.CohereTool:
    given = tool.parameter_definitions or {}
    properties = {name: _schema_of(parameter) for name, parameter in given.items()}
    schema: CohereChatSchemaJson = {"type": "object", "properties": properties}
    required = [name for name, parameter in given.items() if parameter.required]
    if required:
        schema["required"] = required
    return v2.CohereTool("function", v2.CohereFunction(tool.name, tool.description, schema))


def _schema_of(parameter: V1Parameter) -> CohereChatSchemaJson:
    schema = _type_of(parameter.type)
    if parameter.description:
        schema["description"] = parameter.description
    return schema


def _type_of(text: str) -> CohereChatSchemaJson:
    """Return the schema of a type: `str`, `List[int]`, `Dict[str, float]`; any value for an unknown type."""
    name, _, inner = text.strip().partition("[")
    kind = PARAMETER_TYPES.get(name.strip().lower())
    if kind is None:
        return {}
    if kind == "array" and inner:
        return {"type": kind, "items": _type_of(inner.rpartition("]")[0])}
    return {"type": kind}


def _read_format(shape: V1Format | None) -> v2.CohereFormat | None:
    if shape is None:
        return None
    return v2.CohereFormat(shape.type, json_schema=shape.schema)


# Chats in version 1 of Cohere's format as types: the complete answer, and the events of a stream.
#
# Source: Cohere API reference, v1 "Chat" and "Chat with streaming".


class V1ToolCall(TypedDict):
    name: str
    parameters: JsonObject


class V1Citation(TypedDict):
    start: int
    end: int
    text: str
    document_ids: list[str]


class V1Meta(TypedDict):
    api_version: CohereVersion
    billed_units: NotRequired[Annotated[CohereCounts, RELAYED]]
    tokens: NotRequired[Annotated[CohereCounts, RELAYED]]
    cached_tokens: NotRequired[int]
    warnings: NotRequired[list[str]]


class V1ChatAnswer(TypedDict):
    """A complete answer. `chat_history` is that of the request with the new messages."""

    response_id: str
    generation_id: str
    text: str
    finish_reason: str
    chat_history: list[JsonObject]
    meta: V1Meta
    model: str
    usage: AnswerCost
    metadata: RoutingMetadata
    citations: NotRequired[list[V1Citation]]
    documents: NotRequired[list[JsonObject]]
    tool_calls: NotRequired[list[V1ToolCall]]


class V1CallDelta(TypedDict, total=False):
    index: int
    name: str
    parameters: str


class V1ChatEvent(TypedDict, total=False):
    """An event, one JSON object in a line. Its type decides which members it has."""

    event_type: str
    is_finished: bool
    generation_id: str
    text: str
    citations: list[V1Citation]
    tool_calls: list[V1ToolCall]
    tool_call_delta: V1CallDelta
    finish_reason: str
    response: V1ChatAnswer
    error: str


Json = dict[str, Any]
History = list[Json]
THREAD_SIZE = 1 << 17  # characters of an answer from which its last event is written in a thread
EVENT_END = b"\n"  # behind each event; an empty line keeps the connection open
FINISH_REASONS = {"TOOL_CALL": "COMPLETE", TIMED_OUT: FAILED}  # reasons that this version lacks


def reply(result: ChatResult, facts: Facts, history: History) -> bytes:
    """Return the body of a response; `history` are the messages of the request."""
    return dumps(_write_answer(answer_of(result, facts), history), result.large)


def frames(batches: Iterable[Batch], facts: Facts, history: History, large: bool) -> Iterator[bytes]:
    """Write one event a line. The last one has the whole answer and the history, which is `large` as the request."""
    events = ChatEvents(facts, _V1Events(history, large).write, EVENT_END)
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
    return orjson.dumps(event) + EVENT_END


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
        "finish_reason": FINISH_REASONS.get(body["finish_reason"], body["finish_reason"]),
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
    written: V1ChatAnswer = answer
    return written


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
