"""The product's operations that call models, with one entry each.

Surfaces are API formats (chat has four of them); these entries hold for an operation in any format. Catalogue entries
may use only the names defined here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import UpstreamFailed
from gateway.neutral import chat, images
from gateway.neutral.chat import ChatRequest
from gateway.neutral.embeddings import ID_BYTES, EmbeddingsRequest, EmbeddingsResult, join, split
from gateway.neutral.images import ImageEditsRequest, ImagesRequest
from gateway.neutral.realtime import RealtimeRequest
from gateway.neutral.request import Request
from gateway.neutral.speech import SpeechRequest
from gateway.neutral.structured import DecisionRequest, ModerationRequest, OcrRequest, RerankRequest, RerankResult
from gateway.neutral.transcriptions import TranscriptionRequest, TranslationRequest
from gateway.neutral.videos import VideosRequest

MESSAGE_TOKENS = 8  # tokens of roles and separators for each message or input
MEDIA_TOKENS = 16_384  # for an image or file that was not counted: the highest observed count of one image


def input_count(request: Request) -> int:
    return request.requirements.messages


def image_count(request: ImagesRequest) -> int:
    n: int = request.content().n
    return n


class ModelOperation(Struct, frozen=True):
    """An operation. `name` is used by catalogue entries, usage rows and codecs; `request` is its neutral request type.

    `prompt_tokens` returns the maximum number of prompt tokens of a request, from which its cost bound follows.
    `cacheable`: responses may be served from the cache. `streams`: responses may be streamed. `check` raises
    UpstreamFailed for an incomplete result, so that another provider is tried. If a provider handles fewer items in a
    call, `split` makes several requests (arguments: the request, the item limit, the token limit or 0) and `join`
    merges their results; `item_count` returns the number of items, and `limit` names the mapping's field with the item
    limit (0: no limit). `path` is named to callers whose model serves this operation instead of the requested one.
    `one_model`: results of different models cannot be compared, so an automatic choice never changes the model.
    """

    name: str
    request: type[Any]
    prompt_tokens: Callable[[Any], int]
    streams: bool = False
    cacheable: bool = True
    check: Callable[[Any, Any], None] | None = None
    split: Callable[[Any, int, int], Iterator[Any]] | None = None
    join: Callable[[Sequence[Any]], Any] | None = None
    item_count: Callable[[Any], int] = input_count
    limit: str = "max_inputs"
    path: str = ""
    one_model: bool = False

    @property
    def shown(self) -> str:
        """The name and the path."""
        if self.path:
            return f"{self.name} ({self.path})"
        return self.name


def chat_tokens(request: ChatRequest) -> int:
    """Return the token bound of a chat: a token is at least one byte."""
    requirements = request.requirements
    text = requirements.prompt_bytes + MESSAGE_TOKENS * (requirements.messages + 1)
    if requirements.media:
        return text + (requirements.media_tokens or MEDIA_TOKENS * requirements.media)
    return text


def embeddings_tokens(request: EmbeddingsRequest) -> int:
    """Return the token bound of texts; each token id counts as one token."""
    requirements = request.requirements
    return requirements.prompt_bytes - (ID_BYTES - 1) * request.token_ids + MESSAGE_TOKENS * requirements.messages


def check_vectors(request: EmbeddingsRequest, result: EmbeddingsResult) -> None:
    """Check the number of vectors: clients match vectors to inputs by position only."""
    expected = request.requirements.messages
    got = len(result.vectors)
    if got != expected:
        raise UpstreamFailed(f"The provider returned {got} vectors for {expected} inputs.", upstream_status=200)


def check_scores(request: RerankRequest, result: RerankResult) -> None:
    """Check that each score belongs to a document that was sent, and that no document has two."""
    indices = {index for index, _ in result.scores}
    outside = not indices or min(indices) < 0 or max(indices) >= request.requirements.messages
    if outside or len(indices) < len(result.scores):
        raise UpstreamFailed("The provider returned scores that do not match the documents.", upstream_status=200)


def no_tokens(request: Request) -> int:
    """Return 0: the request is billed by its units only."""
    return 0


def text_tokens(request: Request) -> int:
    """Return the token bound of a single text: a token is at least one byte."""
    return request.requirements.prompt_bytes + MESSAGE_TOKENS


def judged_tokens(request: Request) -> int:
    """Return the token bound of texts with images."""
    return text_tokens(request) + MEDIA_TOKENS * request.requirements.media


def realtime_tokens(request: Request) -> int:
    """Return the token bound of a realtime session: `prompt_bytes` holds its token count, which is tracked during the
    session.
    """
    return request.requirements.prompt_bytes


# For models that generate fewer images in a call than requested.
SEVERAL_IMAGES: dict[str, Any] = {
    "cacheable": False,
    "split": images.split,
    "join": images.join,
    "item_count": image_count,
    "limit": "max_n",
}
SOUND: dict[str, Any] = {"streams": True, "cacheable": False}
OPERATIONS: dict[str, ModelOperation] = {
    operation.name: operation
    for operation in (
        ModelOperation(
            "chat",
            ChatRequest,
            chat_tokens,
            streams=True,
            split=chat.split,
            join=chat.join,
            path="/v1/chat/completions",
        ),
        ModelOperation(
            "embeddings",
            EmbeddingsRequest,
            embeddings_tokens,
            check=check_vectors,
            split=split,
            join=join,
            path="/v1/embeddings",
            one_model=True,
        ),
        ModelOperation("speech", SpeechRequest, text_tokens, **SOUND, path="/v1/audio/speech"),
        ModelOperation("transcriptions", TranscriptionRequest, text_tokens, **SOUND, path="/v1/audio/transcriptions"),
        ModelOperation("images", ImagesRequest, text_tokens, **SEVERAL_IMAGES, path="/v1/images/generations"),
        ModelOperation("image_edits", ImageEditsRequest, text_tokens, **SEVERAL_IMAGES, path="/v1/images/edits"),
        ModelOperation("rerank", RerankRequest, no_tokens, check=check_scores, path="/v1/rerank"),
        ModelOperation("moderations", ModerationRequest, judged_tokens, path="/v1/moderations"),
        ModelOperation("ocr", OcrRequest, no_tokens, cacheable=False, path="/v1/ocr"),
        ModelOperation("decisions", DecisionRequest, text_tokens, path="/v1/systemone"),
        ModelOperation("videos", VideosRequest, text_tokens, cacheable=False, path="/v1/videos"),
        ModelOperation("translations", TranslationRequest, text_tokens, **SOUND, path="/v1/audio/translations"),
        ModelOperation("realtime", RealtimeRequest, realtime_tokens, **SOUND, path="/v1/realtime"),
    )
}


def names() -> tuple[str, ...]:
    """The name of every operation that a catalogue entry may serve."""
    return tuple(OPERATIONS)
