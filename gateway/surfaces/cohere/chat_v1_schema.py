"""The body of a chat in version 1 of Cohere's format, and its conversion to version 2. Unknown members are dropped.

Source: Cohere API reference, v1 "Chat"; guide "Migrating from API v1 to API v2".
"""

from collections.abc import Sequence
from typing import Any, Literal

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from gateway.dialects.cohere import NAME
from gateway.surfaces.cohere import cohere_chat_schema as v2
from gateway.surfaces.cohere.cohere_chat_schema import CohereChatBody, CohereMessage, CohereObject, Json, Name
from gateway.surfaces.request_parameters import with_parameters
from gateway.surfaces.validation_errors import invalid

AUTO = "auto"  # for requests without a model, which clients of this version need not name
# Types of parameters are written as in Python.
TYPES = {
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
SAFETY = {"NONE": "OFF"}
NO_STORE = "conversations are not stored; send the earlier messages in chat_history"
NO_CONNECTORS = "connectors are not supported; send the texts in documents"
NO_QUERIES = "search queries are not generated apart from an answer; ask for them in the message"
NO_RAW = "prompts without the template of a chat are not supported"


class V1Object(Struct, gc=False):
    """An object that the answer repeats in full."""


class V1Call(V1Object):
    name: Name
    parameters: Json = {}


class V1Result(V1Object):
    call: V1Call
    outputs: list[Json] = []


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
    schema: Json | None = None


@with_parameters(NAME)
class V1ChatBody(CohereObject, kw_only=True):
    """Every member that has an effect, and those that are refused."""

    message: str
    model: Name = AUTO
    stream: bool | None = None
    preamble: str | None = None
    chat_history: list[V1Message] | None = None
    documents: list[Json] | None = None
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
SHARED = tuple(
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
        **{name: getattr(body, name) for name in SHARED},
        messages=_Messages().of(body),
        tools=list(map(_read_tool, body.tools)) if body.tools else None,
        documents=list(map(_read_document, body.documents)) if body.documents else None,
        response_format=_read_format(body.response_format),
        citation_options={"mode": quality.upper()} if quality else None,
        safety_mode=SAFETY.get(body.safety_mode, body.safety_mode) if body.safety_mode else None,
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


def _read_document(document: Json) -> v2.CohereDocument:
    """Return a document, which has all its members at its top in version 1."""
    ident = document.get("id")
    data = {name: value for name, value in document.items() if name != "id"}
    return v2.CohereDocument(data, ident if isinstance(ident, str) else None)


def _read_tool(tool: V1Tool) -> v2.CohereTool:
    given = tool.parameter_definitions or {}
    properties = {name: _schema_of(parameter) for name, parameter in given.items()}
    schema: Json = {"type": "object", "properties": properties}
    required = [name for name, parameter in given.items() if parameter.required]
    if required:
        schema["required"] = required
    return v2.CohereTool("function", v2.CohereFunction(tool.name, tool.description, schema))


def _schema_of(parameter: V1Parameter) -> Json:
    schema = _type_of(parameter.type)
    if parameter.description:
        schema["description"] = parameter.description
    return schema


def _type_of(text: str) -> Json:
    """Return the schema of a type: `str`, `List[int]`, `Dict[str, float]`; any value for an unknown type."""
    name, _, inner = text.strip().partition("[")
    kind = TYPES.get(name.strip().lower())
    if kind is None:
        return {}
    if kind == "array" and inner:
        return {"type": kind, "items": _type_of(inner.rpartition("]")[0])}
    return {"type": kind}


def _read_format(shape: V1Format | None) -> v2.CohereFormat | None:
    if shape is None:
        return None
    return v2.CohereFormat(shape.type, json_schema=shape.schema)
