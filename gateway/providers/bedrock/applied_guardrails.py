"""Guardrails of Amazon Bedrock as an outside checker: `ApplyGuardrail`, which judges texts and images without a model.

Wire facts: Amazon Bedrock, API reference of ApplyGuardrail (`GuardrailContentBlock`, `GuardrailAssessment`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import orjson

from gateway.clock import SECOND_US
from gateway.guardrails.checkers import FoundValue, checked_kind
from gateway.providers.bedrock.signing import CredentialScope, read_access_key, sign
from gateway.providers.checker_calls import CheckCall, CheckedPiece, CheckRequest, Verdicts, bounded, find_all

SERVICE = "bedrock"
INTERVENED, NONE = "GUARDRAIL_INTERVENED", "NONE"
# Where an assessment lists what was found: its policy, the list, the member that names the kind, and that of the value.
POLICIES = (
    ("topicPolicy", "topics", "name", ""),
    ("contentPolicy", "filters", "type", ""),
    ("wordPolicy", "customWords", "", "match"),
    ("wordPolicy", "managedWordLists", "type", "match"),
    ("sensitiveInformationPolicy", "piiEntities", "type", "match"),
    ("sensitiveInformationPolicy", "regexes", "name", "match"),
    ("contextualGroundingPolicy", "filters", "type", ""),
)


def calls(request: CheckRequest) -> list[CheckCall]:
    """Return a signed call for each piece."""
    checker = request.checker
    region = checker.setting("region")
    base = checker.address.replace("{region}", region).rstrip("/")
    guardrail = quote(checker.setting("guardrail"), safe="~")
    url = f"{base}/guardrail/{guardrail}/version/{checker.setting('version')}/apply"
    found = []
    for piece in request.pieces:
        source = "OUTPUT" if piece.role == "answer" else "INPUT"
        body = orjson.dumps({"source": source, "content": [_content(piece)]})
        headers = _authorize(request, url, region, body)
        found.append(CheckCall((piece,), url, headers, body, partial(_read, piece)))
    return found


def _content(piece: CheckedPiece) -> dict[str, Any]:
    if piece.media_type:
        return {"image": {"format": piece.media_type.partition("/")[2], "source": {"bytes": piece.text}}}
    return {"text": {"text": piece.text}}


def _authorize(request: CheckRequest, url: str, region: str, body: bytes) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json"}
    key = read_access_key(request.credential)
    if key is None:
        return {**headers, "authorization": f"Bearer {request.credential}"}
    at = datetime.fromtimestamp(request.now_us / SECOND_US, UTC)
    return sign("POST", url, headers, body, key, CredentialScope(region, SERVICE, at))


def _read(piece: CheckedPiece, answer: Any) -> Verdicts:
    if answer["action"] not in (INTERVENED, NONE):
        raise ValueError
    found = bounded(one for assessment in answer.get("assessments") or () for one in _found(piece, assessment))
    if answer["action"] == INTERVENED and not found:
        found = [FoundValue("intervened")]
    return [found]


def _found(piece: CheckedPiece, assessment: Any) -> Iterator[FoundValue]:
    for policy, members, name, value in POLICIES:
        for one in (assessment.get(policy) or {}).get(members) or ():
            if one["action"] == NONE:
                continue
            kind = checked_kind(one[name] if name else "word")
            yield from find_all(piece.text, one[value], kind) if value else [FoundValue(kind)]
