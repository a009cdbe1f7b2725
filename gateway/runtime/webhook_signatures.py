"""Signatures of the gateway's webhooks, as defined by Standard Webhooks."""

import base64
import binascii
import hashlib
import hmac
import secrets
from contextlib import suppress

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
