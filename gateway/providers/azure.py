"""Azure AI Content Safety as a checker of guardrails: harmful texts and images, and Prompt Shields against attacks.

Wire facts: Azure AI Content Safety, REST API 2024-09-01 (`text:analyze`, `image:analyze`, `text:shieldPrompt`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from gateway.guardrails.checkers import FoundValue, checked_kind
from gateway.providers.checker_calls import CheckCall, CheckedPiece, CheckRequest, Verdicts

VERSION = "2024-09-01"
ATTACK = "prompt_attack"
NO_CATEGORIES = "none"


def calls(request: CheckRequest) -> list[CheckCall]:
    """Return up to two calls for each piece: content is analyzed, and requests are searched for attacks."""
    checker = request.checker
    severity = int(checker.setting("severity"))
    chosen = checker.setting("categories")
    categories = [] if chosen == NO_CATEGORIES else chosen.split(",")
    blocklists = checker.setting("blocklists").split(",") if checker.setting("blocklists") else []
    found: list[CheckCall] = []
    body: dict[str, Any]
    for piece in request.pieces:
        if piece.media_type:
            body = {"image": {"content": piece.text}, **({"categories": categories} if categories else {})}
            found.append(_call(request, piece, "image:analyze", body, partial(_read_analysis, severity)))
            continue
        if categories or blocklists:
            body = {"text": piece.text, "outputType": "EightSeverityLevels"}
            if categories:
                body["categories"] = categories
            if blocklists:
                body |= {"blocklistNames": blocklists, "haltOnBlocklistHit": False}
            found.append(_call(request, piece, "text:analyze", body, partial(_read_analysis, severity)))
        if checker.setting("shield") == "yes" and piece.role != "answer":
            body = {"documents": [piece.text]} if piece.role == "tool" else {"userPrompt": piece.text, "documents": []}
            found.append(_call(request, piece, "text:shieldPrompt", body, _read_shield))
    return found


def _call(
    request: CheckRequest, piece: CheckedPiece, verb: str, body: dict[str, Any], read: Callable[[Any], Verdicts]
) -> CheckCall:
    url = f"{request.checker.address.rstrip('/')}/contentsafety/{verb}?api-version={VERSION}"
    headers = {"content-type": "application/json", "ocp-apim-subscription-key": request.credential}
    return CheckCall((piece,), url, headers, orjson.dumps(body), read)


def _read_analysis(severity: int, answer: Any) -> Verdicts:
    found = [
        FoundValue(checked_kind(one["category"]))
        for one in answer["categoriesAnalysis"]
        if int(one.get("severity") or 0) >= severity
    ]
    lists = answer.get("blocklistsMatch") or ()
    return [[*found, *(FoundValue(checked_kind(f"blocklist/{one['blocklistName']}")) for one in lists)]]


def _read_shield(answer: Any) -> Verdicts:
    judged = [answer.get("userPromptAnalysis"), *(answer.get("documentsAnalysis") or ())]
    verdicts = [one["attackDetected"] for one in judged if one is not None]
    if not verdicts:
        raise ValueError
    return [[FoundValue(ATTACK)] if any(verdicts) else []]
