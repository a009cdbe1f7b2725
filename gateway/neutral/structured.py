"""Moderations, OCR and decisions: operations with one object as request and one as response."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import Struct

from gateway.neutral.request import Request, WholeResult
from gateway.neutral.usage import Units, Usage

# Requests to rank documents by relevance to a query, and their result.

DOCUMENTS_PER_SEARCH = 100  # the billing unit of some vendors: one query with this number of documents
# Longer documents count several times: once for every 500 tokens, those of the query included (Cohere's pricing page);
# a token is at least one byte.
BYTES_PER_CHUNK = 2000
MIN_BYTES_PER_CHUNK = 500
BYTES_PER_TOKEN = 4


class RerankInput(Struct, frozen=True):
    query: str
    documents: tuple[str, ...]


class RerankRequest(Request, eq=False):
    """A rerank request. `decode` returns a RerankInput."""

    operation: ClassVar[str] = "rerank"


@dataclass(slots=True, unsafe_hash=True)
class RerankResult(WholeResult):
    """The result. `scores` holds (index of the document, score) in any order."""

    scores: tuple[tuple[int, float], ...]


def units_of(content: RerankInput) -> Units:
    """Return the billable units, by searches and by tokens: the query is read with each document."""
    sizes = [len(document.encode("utf-8", "replace")) for document in content.documents]
    query = len(content.query.encode("utf-8", "replace"))
    read = sum(sizes) + query * len(sizes)
    maximum = Usage(input=read, searches=_searches(query, sizes, MIN_BYTES_PER_CHUNK))
    return Units(maximum, Usage(input=-(-read // BYTES_PER_TOKEN), searches=_searches(query, sizes, BYTES_PER_CHUNK)))


def _searches(query: int, sizes: list[int], chunk: int) -> int:
    return -(-sum(max(1, -(-(query + size) // chunk)) for size in sizes) // DOCUMENTS_PER_SEARCH)


class StructuredRequest(Request, eq=False):
    """A request with a structured body. `decode` returns the validated body, without model and gateway-only fields."""


class ModerationRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "moderations"


class OcrRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "ocr"


class DecisionRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "decisions"


@dataclass(slots=True, unsafe_hash=True)
class StructuredResult(WholeResult):
    """A structured result. `body` is the response in the shape of the API reference, without model, id and usage."""

    body: dict[str, Any] = field(hash=False)

    def text_length(self) -> int:
        """Return the length of the text that a model wrote: the pages that it read, or its answers."""
        pages = self.body.get("pages")
        if isinstance(pages, list):
            texts = [page.get("markdown") for page in pages if isinstance(page, dict)]
            return sum(len(text) for text in texts if isinstance(text, str))
        answers = self.body.get("answers")
        if answers:
            return len(str(answers))
        return 0
