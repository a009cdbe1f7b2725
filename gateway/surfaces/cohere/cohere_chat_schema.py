"""The body of a chat in version 2 of Cohere's format. Unknown members are dropped.

Source: Cohere API reference, v2 "Chat".
"""

from typing import Annotated, Any, Literal

import orjson
from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.dialects.cohere import NAME
from gateway.neutral.parameters import Count
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.unknown_parts import UNKNOWN, require_unknown, wrap
from gateway.surfaces.bodies.validation_errors import decode_json

Json = dict[str, Any]
Name = Annotated[str, Meta(min_length=1)]


class CohereObject(Struct, omit_defaults=True, gc=False):
    """An object of the format."""


class CohereTextBlock(CohereObject, tag_field="type", tag="text"):
    text: str


class CohereThinkingBlock(CohereObject, tag_field="type", tag="thinking"):
    thinking: str


class CohereImageUrl(CohereObject):
    url: Name
    detail: Literal["auto", "low", "high"] | None = None


class CohereImageBlock(CohereObject, tag_field="type", tag="image_url"):
    image_url: CohereImageUrl


class CohereDocument(CohereObject):
    data: Json
    id: str | None = None


class CohereDocumentBlock(CohereObject, tag_field="type", tag="document"):
    document: CohereDocument


KNOWN_BLOCKS = frozenset(("text", "thinking", "image_url", "document"))


class CohereUnknownBlock(CohereObject, tag_field="type", tag=UNKNOWN):
    """A block of a type that is newer than this gateway."""

    kind: Name
    body: Json

    def __post_init__(self) -> None:
        require_unknown(self.kind, self.body, KNOWN_BLOCKS)


class CohereCalledFunction(CohereObject, kw_only=True):
    name: Name
    arguments: str = ""


class CohereCall(CohereObject, kw_only=True):
    id: Name
    type: Literal["function"]
    function: CohereCalledFunction


class CohereSystemMessage(CohereObject, tag_field="role", tag="system"):
    content: str | list[CohereTextBlock | CohereUnknownBlock]


class CohereUserMessage(CohereObject, tag_field="role", tag="user"):
    content: str | list[CohereTextBlock | CohereImageBlock | CohereUnknownBlock]


class CohereAssistantMessage(CohereObject, tag_field="role", tag="assistant"):
    content: str | list[CohereTextBlock | CohereThinkingBlock | CohereUnknownBlock] | None = None
    tool_plan: str | None = None
    tool_calls: list[CohereCall] | None = None
    citations: list[Json] | None = None


class CohereToolMessage(CohereObject, tag_field="role", tag="tool"):
    tool_call_id: Name
    content: str | list[CohereTextBlock | CohereDocumentBlock | CohereUnknownBlock]


CohereMessage = CohereSystemMessage | CohereUserMessage | CohereAssistantMessage | CohereToolMessage


class CohereFunction(CohereObject):
    name: Name
    description: str | None = None
    parameters: Json | None = None


class CohereTool(CohereObject):
    type: Literal["function"]
    function: CohereFunction


class CohereFormat(CohereObject):
    """`schema` is the older name of `json_schema`, which LangChain sends."""

    type: Literal["text", "json_object"]
    json_schema: Json | None = None
    schema: Json | None = None


class CohereThinking(CohereObject):
    type: Literal["enabled", "disabled"]
    token_budget: Count | None = None


@with_parameters(NAME)
class CohereChatBody(CohereObject, kw_only=True):
    """Every member that has an effect. Models of other vendors have no counterpart of the last six."""

    model: Name
    messages: Annotated[list[CohereMessage], Meta(min_length=1)]
    stream: bool | None = None
    tools: list[CohereTool] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    documents: list[str | CohereDocument] | None = None
    response_format: CohereFormat | None = None
    thinking: CohereThinking | None = None
    stop_sequences: list[str] | None = None
    strict_tools: bool | None = None
    citation_options: Json | None = None
    safety_mode: str | None = None
    seed: int | None = None
    logprobs: bool | None = None
    priority: int | None = None


DECODER = Decoder(CohereChatBody)


def decode(raw: bytes) -> CohereChatBody:
    """Return the validated body of a request. Raises InvalidRequest."""
    try:
        return DECODER.decode(raw)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return decode_json(DECODER, _with_wrapped_blocks(raw))


def _with_wrapped_blocks(raw: bytes) -> bytes:
    """Return a body with its blocks of unknown types wrapped; the same body if it has none."""
    try:
        wire = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError):
        return raw
    found = False
    messages = wire.get("messages") if isinstance(wire, dict) else None
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            message["content"] = [wrap(block, KNOWN_BLOCKS) for block in content]
            found = found or message["content"] != content
    return orjson.dumps(wire) if found else raw
