"""Answers for the AI SDK as types: the body of a generate call, and the parts of a stream.

The formats are the types of `@ai-sdk/provider` 2, 3 and 4. Where they differ, the member has the type of each version.
"""

from typing import Annotated, Literal, Required, TypedDict

from gateway.dialects.aisdk import AiUsage, FailedCall, FinishShown, FlatUsage
from gateway.dialects.error_details import DETAILED
from gateway.surfaces.answer_structs import JsonObject


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
