"""Gemini's responses as types.

Source: Gemini API reference, "GenerateContentResponse" and "Embeddings".
"""

from collections.abc import MutableSequence
from typing import Annotated, Any, NotRequired, TypedDict

from gateway.dialects.google import GeminiTokens
from gateway.surfaces.answer_structs import RELAYED, JsonObject
from gateway.surfaces.facts import AnswerCost, RoutingMetadata


class GeminiCall(TypedDict):
    name: str
    args: Any
    id: NotRequired[str]


class GeminiData(TypedDict):
    mimeType: str
    data: str


class GeminiFile(TypedDict):
    mimeType: str
    fileUri: str


class GeminiPart(TypedDict, total=False):
    """A part of a content: a text, a call or a file."""

    text: str
    thought: bool
    thoughtSignature: str
    functionCall: GeminiCall
    inlineData: GeminiData
    fileData: GeminiFile


class GeminiContent(TypedDict):
    parts: NotRequired[list[Annotated[GeminiPart, RELAYED]]]
    role: NotRequired[str]


class GroundingPage(TypedDict):
    uri: str
    title: str


class GroundingChunk(TypedDict):
    web: GroundingPage


class GroundingSegment(TypedDict):
    startIndex: int
    endIndex: int
    text: str


class GroundingSupport(TypedDict):
    segment: GroundingSegment
    groundingChunkIndices: list[int]


class GroundingMetadata(TypedDict, total=False):
    """Pages, and the statements that they support."""

    groundingChunks: list[Annotated[GroundingChunk, RELAYED]]
    groundingSupports: list[Annotated[GroundingSupport, RELAYED]]


class GeminiCandidate(TypedDict):
    content: NotRequired[GeminiContent]
    finishReason: NotRequired[str]
    index: NotRequired[int]
    groundingMetadata: NotRequired[Annotated[GroundingMetadata, RELAYED]]


class GeminiUsage(GeminiTokens, AnswerCost):
    """Tokens, and their cost in US dollars."""


class GeminiEnd(TypedDict):
    responseId: str
    usageMetadata: Annotated[GeminiUsage, RELAYED]
    metadata: RoutingMetadata


class GeminiBeginning(TypedDict):
    candidates: NotRequired[list[Annotated[GeminiCandidate, RELAYED]]]
    promptFeedback: NotRequired[JsonObject]
    modelVersion: NotRequired[str]


class GeminiResponse(GeminiBeginning, GeminiEnd):
    """A complete response, or the last item of a stream."""


class GeminiItem(GeminiBeginning):
    """An item of a stream before the last one."""

    responseId: str


class GeminiEmbeddingUsage(AnswerCost):
    promptTokenCount: int


class GeminiEmbeddingEnd(TypedDict):
    usageMetadata: GeminiEmbeddingUsage
    metadata: RoutingMetadata


class GeminiVector(TypedDict):
    values: MutableSequence[float]


class GeminiEmbedding(GeminiEmbeddingEnd):
    embedding: GeminiVector


class GeminiEmbeddings(GeminiEmbeddingEnd):
    embeddings: list[GeminiVector]
