"""Classifies errors of Google's API."""

import re
from typing import Any

import orjson
from msgspec import structs

from gateway.errors import GatewayError, UpstreamFailed
from gateway.providers.failures import RETRY_LIMIT_S, classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.protocol import Target, UpstreamReply

DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
CLIENT_CLOSED = 499  # CANCELLED: the provider cancelled the request
# A FAILED_PRECONDITION is about billing, country or account (troubleshooting guide), so the caller is not at fault.
ACCOUNT_STATUSES = frozenset(("FAILED_PRECONDITION",))


def read_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error for a response other than 2xx.

    The body is {error: {code, message, status, details}} or a list with one such object. `details` may have
    ErrorInfo.reason (API_KEY_INVALID …) and RetryInfo.retryDelay ("34.5s"); see AIP-193.
    """
    body = read_refusal(reply)
    error = _error_of(body)
    explanation = explain(body, (target.credential.secret,))
    status = error.get("status")
    if not isinstance(status, str):
        status = ""
    reason = next((d["reason"] for d in _details(error) if isinstance(d.get("reason"), str)), "")
    explanation = structs.replace(explanation, code=(reason or status).lower(), kind=status.lower())
    wait = retry_after(reply.headers)
    if wait is None:
        wait = _delay(error)
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
    """Return the delay of a RetryInfo in seconds, at most RETRY_LIMIT_S."""
    for entry in _details(error):
        match = DURATION.fullmatch(str(entry.get("retryDelay")))
        if match:
            return min(float(match[1]), RETRY_LIMIT_S)
    return None
