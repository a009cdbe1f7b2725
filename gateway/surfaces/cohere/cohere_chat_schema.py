"""The body of a chat in version 2 of Cohere's format. Unknown members are dropped.

Source: Cohere API reference, v2 "Chat".
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.dialects.cohere import NAME
from gateway.neutral.parameters import Count
from gateway.surfaces.request_parameters import with_parameters

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


class CohereCalledFunction(CohereObject, kw_only=True):
    name: Name
    arguments: str = ""


class CohereCall(CohereObject, kw_only=True):
    id: Name
    type: Literal["function"]
    function: CohereCalledFunction


class CohereSystemMessage(CohereObject, tag_field="role", tag="system"):
    content: str | list[CohereTextBlock]


class CohereUserMessage(CohereObject, tag_field="role", tag="user"):
    content: str | list[CohereTextBlock | CohereImageBlock]


class CohereAssistantMessage(CohereObject, tag_field="role", tag="assistant"):
    content: str | list[CohereTextBlock | CohereThinkingBlock] | None = None
    tool_plan: str | None = None
    tool_calls: list[CohereCall] | None = None
    citations: list[Json] | None = None


class CohereToolMessage(CohereObject, tag_field="role", tag="tool"):
    tool_call_id: Name
    content: str | list[CohereTextBlock | CohereDocumentBlock]


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
