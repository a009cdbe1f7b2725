"""One signed delivery to a webhook, its signature, and the delay of the next attempt."""

import base64
import binascii
import hashlib
import hmac
import secrets
from contextlib import suppress
from typing import NamedTuple

from gateway.clock import SECOND_US
from gateway.errors import GatewayError
from gateway.transport.client import Transport

# Signatures of the gateway's webhooks, as defined by Standard Webhooks.

PREFIX = "whsec_"
SECRET_BYTES = 32


def make_secret() -> str:
    """Return a new secret: `whsec_` and standard base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, ident: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery. `ident` is the same for all attempts, the time is that of this attempt.

    The body is signed with the secret as it is written. A secret in base64, with or without `whsec_`, also signs with
    the bytes that it encodes, which most libraries expect.
    """
    signed = b"%b.%d.%b" % (ident.encode(), timestamp_s, body)
    keys = [secret.encode()]
    digits = secret.removeprefix(PREFIX)
    with suppress(binascii.Error, ValueError):
        keys.append(base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True))
    signatures = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": ident,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


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
