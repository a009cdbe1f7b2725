"""Writes a neutral answer as a GenerateContentResponse, and its parts as parts of a content."""

from collections.abc import Iterable, Mapping, MutableSequence
from typing import Annotated, Any, NotRequired, TypedDict

from gateway.dialects.google import FINISH_WRITE, NAME, GeminiTokens, write_usage
from gateway.neutral.chat import ChatResult, Choice, FinishReason, sources_of
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.neutral.tool_arguments import read_arguments
from gateway.surfaces.google.opaque_tokens import SignedData, write_signature
from gateway.surfaces.web.answer_structs import RELAYED, JsonObject
from gateway.surfaces.web.facts import AnswerCost, Facts, RoutingMetadata

# Gemini's responses as types.
#
# Source: Gemini API reference, "GenerateContentResponse" and "Embeddings".


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


NO_USAGE: Any = {}
EMPTY: GeminiPart = {"text": ""}  # clients forget a turn with a content that has no part


def reply(result: ChatResult, facts: Facts) -> bytes:
    """Return the body of a response. A relayed one keeps all of the upstream's members but its id and its cost."""
    body: Mapping[str, Any]
    usage: GeminiTokens
    if result.native is not None:
        body = result.native.body
        usage = body.get("usageMetadata") or NO_USAGE
    else:
        silent = facts.hides_reasoning
        beginning: GeminiBeginning = {
            "candidates": [write_candidate(choice, place, silent) for place, choice in enumerate(result.choices)],
            "modelVersion": facts.served,
        }
        body = beginning
        usage = write_usage(facts.usage)
    return dumps({**body, **write_end(usage, facts)}, result.large)


def write_end(usage: GeminiTokens, facts: Facts) -> GeminiEnd:
    """Return the members that every response has besides its content."""
    return {
        "responseId": facts.answer_id,
        "usageMetadata": {**usage, **facts.cost()},
        "metadata": facts.metadata(),
    }


def write_candidate(choice: Choice, place: int, silent: bool) -> GeminiCandidate:
    """Return a candidate; `silent`: the caller wants no thoughts."""
    parts = [written for part in choice.parts for written in write_part(part, silent)]
    candidate: GeminiCandidate = {
        "content": {"parts": parts or [EMPTY], "role": "model"},
        "finishReason": write_finish(choice.finish, any(isinstance(part, Refusal) for part in choice.parts)),
        "index": place,
    }
    grounding = write_grounding(sources_of(choice), "".join(p.text for p in choice.parts if isinstance(p, Text)))
    if grounding:
        candidate["groundingMetadata"] = grounding
    return candidate


def write_finish(reason: FinishReason, refused: bool) -> str:
    """Return the finishReason. Other vendors end a refusal as any other answer."""
    return FINISH_WRITE["refusal" if refused and reason == "stop" else reason]


def write_part(part: Part, silent: bool) -> list[GeminiPart]:
    """Return the parts that show a part: none for one that only another vendor's client understands."""
    match part:
        case Text():
            return write_text(part.text, SignedData(part.vendor, part.signature))
        case Refusal():
            return write_text(part.text, SignedData())
        case Reasoning():
            return [] if silent else write_thought(part)
        case ToolCall():
            return write_call(part)
        case Image():
            return [write_image(part)]
        case VendorPart(vendor=vendor) if vendor == NAME:
            own: Any = part.body
            return [own]
        case _:
            return []


def write_text(text: str, signed: SignedData) -> list[GeminiPart]:
    signature = write_signature(signed)
    if signature:
        return [{"text": text, "thoughtSignature": signature}]
    if text:
        return [{"text": text}]
    return []


def write_thought(part: Reasoning) -> list[GeminiPart]:
    """Return a thought with everything that its vendor needs back."""
    written: GeminiPart = {"text": part.text, "thought": True}
    signature = write_signature(SignedData(part.vendor, part.signature, part.sealed, part.ident, part.summary))
    if signature:
        written["thoughtSignature"] = signature
    elif not part.text:
        return []
    return [written]


def write_call(part: ToolCall) -> list[GeminiPart]:
    """Return a function call; none for one that a provider's server executed."""
    if part.executed:
        return []
    call: GeminiCall = {"name": part.name, "args": read_arguments(part)}
    if part.id:
        call["id"] = part.id
    signature = write_signature(SignedData(part.vendor, part.signature))
    if signature:
        return [{"functionCall": call, "thoughtSignature": signature}]
    return [{"functionCall": call}]


def write_image(image: Image) -> GeminiPart:
    media = image.media
    if media.data:
        return {"inlineData": {"mimeType": media.media_type or "image/png", "data": media.data}}
    return {"fileData": {"mimeType": media.media_type or "image/png", "fileUri": media.url}}


def write_grounding(sources: Iterable[Source], text: str) -> GroundingMetadata:
    """Return `groundingMetadata` with the pages and the statements that they support; empty without a page. Segments
    count bytes of UTF-8 (API reference, Segment)."""
    pages: dict[str, int] = {}
    chunks: list[GroundingChunk] = []
    supports: list[GroundingSupport] = []
    for source in sources:
        if not source.url:
            continue
        if source.url not in pages:
            pages[source.url] = len(chunks)
            chunks.append({"web": {"uri": source.url, "title": source.title or source.url}})
        if 0 <= source.start <= source.end <= len(text) and source.end:
            start = len(text[: source.start].encode("utf-8", "replace"))
            statement = text[source.start : source.end]
            segment: GroundingSegment = {
                "startIndex": start,
                "endIndex": start + len(statement.encode("utf-8", "replace")),
                "text": statement,
            }
            supports.append({"segment": segment, "groundingChunkIndices": [pages[source.url]]})
    if not chunks:
        return {}
    if supports:
        return {"groundingChunks": chunks, "groundingSupports": supports}
    return {"groundingChunks": chunks}
