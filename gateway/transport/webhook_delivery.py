"""One signed delivery to a webhook, and the delay of the next attempt."""

from typing import NamedTuple

from gateway.clock import SECOND_US
from gateway.errors import GatewayError
from gateway.runtime.webhook_signatures import sign
from gateway.transport.client import Transport

ATTEMPTS = 8
FIRST_RETRY_S = 30.0
MAX_RETRY_S = 3600.0
TIMEOUT_S = 10.0


class DeliveryResult(NamedTuple):
    """The result of a delivery. `status` is the response's, 0 without one; `problem` is "" when it was accepted."""

    status: int
    problem: str


def deliver(transport: Transport, url: str, secret: str, event_id: str, body: bytes, now_us: int) -> DeliveryResult:
    """Deliver once, signed unless `secret` is "". Any 2xx accepts it; redirects do not. The address must be public
    unless the operator allows private ones."""
    headers = {"content-type": "application/json", "user-agent": "llmgateway"}
    if secret:
        headers |= sign(secret, event_id, now_us // SECOND_US, body)
    try:
        status = transport.notify(url, headers, body, timeout_s=TIMEOUT_S)
    except GatewayError as error:
        return DeliveryResult(error.upstream_status, error.message)
    if 200 <= status < 300:
        return DeliveryResult(status, "")
    return DeliveryResult(status, f"it answered {status}")


def next_wait_us(attempts: int) -> int | None:
    """Return the delay after `attempts` failed ones, doubled each time; None after the last attempt."""
    if attempts >= ATTEMPTS:
        return None
    wait_us: int = round(min(FIRST_RETRY_S * 2 ** (attempts - 1), MAX_RETRY_S) * SECOND_US)
    return wait_us
