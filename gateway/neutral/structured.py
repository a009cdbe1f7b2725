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
