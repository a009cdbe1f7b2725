"""Moderations, OCR and decisions: operations with one object as request and one as response."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.neutral.request import Request, WholeResult


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
