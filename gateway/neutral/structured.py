"""Operations whose body and answer are one object of their reference each: moderations, OCR, decisions."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.neutral.request import Request
from gateway.neutral.usage import Usage


class StructuredRequest(Request, eq=False):
    """`decode` gives the checked body, without model and gateway-only fields."""


class ModerationRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "moderations"


class OcrRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "ocr"


class DecisionRequest(StructuredRequest, eq=False):
    operation: ClassVar[str] = "decisions"


@dataclass(slots=True, unsafe_hash=True)
class StructuredResult:
    """`body` is the answer in the shape of the operation's reference, without model, id and usage."""

    body: dict[str, Any] = field(hash=False)
    usage: Usage | None = None
    model: str = ""
    upstream_id: str = ""
    service_tier: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def finish(self) -> str:
        return "stop"

    def text_bytes(self) -> int:
        """What is not told is counted by what was asked (Units)."""
        return 0
