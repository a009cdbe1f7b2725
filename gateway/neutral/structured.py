"""Operations whose body and answer are one object of their reference each: moderations, OCR, decisions."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.neutral.request import Request, WholeResult


class StructuredRequest(Request, eq=False):
    """`decode` gives the checked body, without model and gateway-only fields."""


class ModerationRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "moderations"


class OcrRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "ocr"


class DecisionRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "decisions"


@dataclass(slots=True, unsafe_hash=True)
class StructuredResult(WholeResult):
    """`body` is the answer in the shape of the operation's reference, without model, id and usage."""

    body: dict[str, Any] = field(hash=False)

    def text_length(self) -> int:
        """The length of the text that a model wrote: that of the pages it read, or its answers."""
        pages = self.body.get("pages")
        if isinstance(pages, list):
            texts = [page.get("markdown") for page in pages if isinstance(page, dict)]
            return sum(len(text) for text in texts if isinstance(text, str))
        answers = self.body.get("answers")
        if answers:
            return len(str(answers))
        return 0
