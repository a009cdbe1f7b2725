"""Every form of outside checkers, by the name that rules use, and the own form of the gateway."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from gateway.clock import SECOND_US, to_iso
from gateway.guardrails.checkers import FoundValue, checked_kind
from gateway.providers import azure, lakera, presidio
from gateway.providers.bedrock import applied_guardrails
from gateway.providers.checker_calls import CheckCall, CheckRequest, FormCalls, Verdicts, together
from gateway.transport.webhook_delivery import sign

# The gateway's own format for checkers of organizations: a signed request with texts, and an answer with findings.
#
# docs/guardrails.md publishes the format. Requests are signed as Standard Webhooks describes.

TYPE = "guardrail.check"
VERSION = 1


def webhook_calls(request: CheckRequest) -> list[CheckCall]:
    """Return a call for as many pieces as one takes."""
    found = []
    for number, pieces in enumerate(together(request)):
        contents = [
            {"place": piece.place, "data": piece.text, "mediaType": piece.media_type}
            if piece.media_type
            else {"place": piece.place, "text": piece.text}
            for piece in pieces
        ]
        body = orjson.dumps(
            {
                "type": TYPE,
                "version": VERSION,
                "requestId": request.ident,
                "timestamp": to_iso(request.now_us),
                "contents": contents,
            }
        )
        ident = f"check_{request.ident}_{number}"
        headers = {"content-type": "application/json", "user-agent": "llmgateway"}
        headers |= sign(request.credential, ident, request.now_us // SECOND_US, body)
        found.append(CheckCall(pieces, request.checker.address, headers, body, partial(_read_findings, len(pieces))))
    return found


def _read_findings(count: int, answer: Any) -> Verdicts:
    found: Verdicts = [[] for _ in range(count)]
    for one in answer["findings"]:
        number = one["content"]
        if not 0 <= number < count:
            raise ValueError
        start, end = int(one.get("start") or 0), int(one.get("end") or 0)
        found[number].append(FoundValue(checked_kind(one["kind"]), start, end))
    return found


FORMS: Mapping[str, FormCalls] = {
    "webhook": webhook_calls,
    "presidio": presidio.calls,
    "azure_content_safety": azure.calls,
    "bedrock_guardrail": applied_guardrails.calls,
    "lakera_guard": lakera.calls,
}
