"""Waiting once for a service that is busy."""

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import requests

MAX_WAIT_S = 60.0
DEFAULT_WAIT_S = 2.0
TOO_MANY = 429
UNAVAILABLE = 503
REASONS = {TOO_MANY: "There were too many requests.", UNAVAILABLE: "The service is busy."}

sleep = time.sleep


def delay_of(reply: requests.Response, repeatable: bool) -> float | None:
    """Return the seconds to wait before one more attempt; None if there should be none.

    A request that was refused with 429 did not happen, so it may be repeated. A 503 may come from a proxy that lost the
    answer, so only requests that cannot happen twice are repeated then.
    """
    if reply.status_code != TOO_MANY and not (reply.status_code == UNAVAILABLE and repeatable):
        return None
    delay_s = _retry_after_s(reply.headers.get("Retry-After", ""))
    if delay_s > MAX_WAIT_S:
        return None
    return delay_s


def reason_of(reply: requests.Response) -> str:
    """Return the sentence that says why the program waits."""
    return REASONS[reply.status_code]


def _retry_after_s(value: str) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date."""
    if value.isascii() and value.strip().isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return DEFAULT_WAIT_S
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
