"""Presidio's `/analyze`: types, places and scores of personal data.

Wire facts: Presidio, API reference of the analyzer (`AnalyzeRequest`, `RecognizerResultWithAnalysis`).
"""

from typing import Any

import orjson

from gateway.guardrails.checkers import FoundValue, checked_kind
from gateway.providers.checker_calls import CheckCall, CheckRequest, Verdicts


def calls(request: CheckRequest) -> list[CheckCall]:
    """Return a call for each piece."""
    checker = request.checker
    headers = {"content-type": "application/json", "accept": "application/json"}
    if request.credential:
        headers["authorization"] = f"Bearer {request.credential}"
    members: dict[str, Any] = {
        "language": checker.setting("language"),
        "score_threshold": float(checker.setting("score")),
        "correlation_id": request.ident,
    }
    if checker.setting("entities"):
        members["entities"] = checker.setting("entities").split(",")
    url = f"{checker.address.rstrip('/')}/analyze"
    return [
        CheckCall((piece,), url, headers, orjson.dumps({"text": piece.text, **members}), _read)
        for piece in request.pieces
    ]


def _read(answer: Any) -> Verdicts:
    if not isinstance(answer, list):
        raise ValueError
    return [[FoundValue(checked_kind(one["entity_type"]), int(one["start"]), int(one["end"])) for one in answer]]
