"""The operations of the product that ask models for something: one entry each.

Surfaces are ways in (chat is asked for by four of them); what stands here holds for an operation by whatever surface.
The names here are the only ones that catalogue entries may use.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import UpstreamFailed
from gateway.neutral import chat, images
from gateway.neutral.chat import ChatRequest
from gateway.neutral.embeddings import ID_BYTES, EmbeddingsRequest, EmbeddingsResult, join, split
from gateway.neutral.images import ImageEditsRequest, ImagesRequest
from gateway.neutral.realtime import RealtimeRequest
from gateway.neutral.request import Request
from gateway.neutral.rerank import RerankRequest, RerankResult
from gateway.neutral.speech import SpeechRequest
from gateway.neutral.structured import DecisionRequest, ModerationRequest, OcrRequest
from gateway.neutral.transcriptions import TranscriptionRequest, TranslationRequest
from gateway.neutral.videos import VideosRequest

MESSAGE_TOKENS = 8  # roles and separators around each message or input
MEDIA_TOKENS = 16_384  # an image or file that was not counted: the most that one image was seen to count as


@dataclass(frozen=True, slots=True)
class ModelOperation:
    """`name` is what catalogue entries, usage rows and codecs call it; `request` its neutral form.

    `prompt_tokens` gives the most tokens that a request may count as, from which its upper bound follows. `cacheable`:
    its answers may be given again; `streams`: they may come in pieces. `check` raises UpstreamFailed for a result that
    lacks something of what was asked for, so that another provider is tried. `split` makes several requests of one
    whose provider does fewer in a call (the request, the most of them, the most tokens or 0), and `join` one result of
    theirs; `counted` is how many it asks for, `limit` the field of a mapping that has the most of a call (0: any).
    """

    name: str
    request: type[Any]
    prompt_tokens: Callable[[Any], int]
    streams: bool = False
    cacheable: bool = True
    check: Callable[[Any, Any], None] | None = None
    split: Callable[[Any, int, int], Iterator[Any]] | None = None
    join: Callable[[Sequence[Any]], Any] | None = None
    counted: Callable[[Any], int] = lambda request: request.requirements.messages
    limit: str = "max_inputs"


def chat_tokens(request: ChatRequest) -> int:
    """A token is at least one byte, so bytes bound tokens."""
    needs = request.requirements
    text = needs.prompt_bytes + MESSAGE_TOKENS * (needs.messages + 1)
    if needs.media:
        return text + (needs.media_tokens or MEDIA_TOKENS * needs.media)
    return text


def embeddings_tokens(request: EmbeddingsRequest) -> int:
    """As of texts; token ids count one each."""
    needs = request.requirements
    return needs.prompt_bytes - (ID_BYTES - 1) * request.token_ids + MESSAGE_TOKENS * needs.messages


def check_vectors(request: EmbeddingsRequest, result: EmbeddingsResult) -> None:
    """Clients tell whose a vector is by its place alone."""
    wanted = request.requirements.messages
    got = len(result.vectors)
    if got != wanted:
        raise UpstreamFailed(f"The provider answered {wanted} inputs with {got} vectors.", upstream_status=200)


def check_scores(request: RerankRequest, result: RerankResult) -> None:
    """Each score is of a document that was sent, and no two of one."""
    indices = {index for index, _ in result.scores}
    if not indices or len(indices) < len(result.scores) or max(indices) >= request.requirements.messages:
        raise UpstreamFailed("The provider answered with scores of other documents.", upstream_status=200)


def no_tokens(request: Request) -> int:
    """What it may count as stands in its units alone."""
    return 0


def text_tokens(request: Request) -> int:
    """Of a prompt that is one text: a token is at least one byte."""
    return request.requirements.prompt_bytes + MESSAGE_TOKENS


def judged_tokens(request: Request) -> int:
    """Of texts with images beside them."""
    return text_tokens(request) + MEDIA_TOKENS * request.requirements.media


def heard_tokens(request: Request) -> int:
    """Of a conversation that is counted as it goes on: the tokens themselves stand in for its bytes."""
    return request.requirements.prompt_bytes


# Several images of a model that makes fewer in a call.
SEVERAL_IMAGES: dict[str, Any] = {
    "split": images.split,
    "join": images.join,
    "counted": lambda request: request.content().n,
    "limit": "max_n",
}
OPERATIONS: dict[str, ModelOperation] = {
    one.name: one
    for one in (
        ModelOperation("chat", ChatRequest, chat_tokens, streams=True, split=chat.split, join=chat.join),
        ModelOperation("embeddings", EmbeddingsRequest, embeddings_tokens, check=check_vectors, split=split, join=join),
        ModelOperation("speech", SpeechRequest, text_tokens, streams=True, cacheable=False),
        ModelOperation("transcriptions", TranscriptionRequest, text_tokens, streams=True, cacheable=False),
        ModelOperation("images", ImagesRequest, text_tokens, cacheable=False, **SEVERAL_IMAGES),
        ModelOperation("image_edits", ImageEditsRequest, text_tokens, cacheable=False, **SEVERAL_IMAGES),
        ModelOperation("rerank", RerankRequest, no_tokens, check=check_scores),
        ModelOperation("moderations", ModerationRequest, judged_tokens),
        ModelOperation("ocr", OcrRequest, no_tokens, cacheable=False),
        ModelOperation("decisions", DecisionRequest, text_tokens),
        ModelOperation("videos", VideosRequest, text_tokens, cacheable=False),
        ModelOperation("translations", TranslationRequest, text_tokens, streams=True, cacheable=False),
        ModelOperation("realtime", RealtimeRequest, heard_tokens, streams=True, cacheable=False),
    )
}


def names() -> tuple[str, ...]:
    """The name of every operation that a catalogue entry may serve."""
    return tuple(OPERATIONS)
