"""Classifies errors of Google's API."""

import dataclasses
import re
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamFailed
from gateway.providers.failures import RETRY_LIMIT_S, classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.protocol import Target, UpstreamReply

DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
CLIENT_CLOSED = 499  # CANCELLED: their side gave up
# A FAILED_PRECONDITION speaks of billing, country or account (troubleshooting guide): ours, not the caller's.
ACCOUNT_STATUSES = frozenset(("FAILED_PRECONDITION",))


def read_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """The error for an answer other than 2xx: {error: {code, message, status, details}}, also as a list of one.

    `details` may hold ErrorInfo.reason (API_KEY_INVALID …) and RetryInfo.retryDelay ("34.5s"); see AIP-193.
    """
    body = read_refusal(reply)
    error = _error_of(body)
    explanation = explain(body, (target.credential.secret,))
    status = error.get("status")
    if isinstance(status, str):
        status = status
    else:
        status = ""
    reason = next((d["reason"] for d in _details(error) if isinstance(d.get("reason"), str)), "")
    explanation = dataclasses.replace(explanation, code=(reason or status).lower(), kind=status.lower())
    wait = retry_after(reply.headers)
    wait = _delay(error) if wait is None else wait
    if reply.status == CLIENT_CLOSED:
        return UpstreamFailed(
            "The provider cancelled the request.", details=diagnose(explanation, target), upstream_status=499
        )
    if reply.status == 400 and status in ACCOUNT_STATUSES:
        return classify(402, explanation, target, wait)
    return classify(reply.status, explanation, target, wait)


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        wire = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return {}
    if isinstance(wire, list):
        wire = wire[0] if wire else None
    if isinstance(wire, dict):
        error = wire.get("error")
    else:
        error = None
    if isinstance(error, dict):
        return error
    return {}


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    details = error.get("details")
    if isinstance(details, list):
        return [entry for entry in details if isinstance(entry, dict)]
    return []


def _delay(error: dict[str, Any]) -> float | None:
    """Seconds of a RetryInfo, at most a day."""
    for entry in _details(error):
        found = DURATION.fullmatch(str(entry.get("retryDelay")))
        if found:
            return min(float(found[1]), RETRY_LIMIT_S)
    return None
