"""Signatures of what the gateway sends to addresses of its users, as the libraries of Standard Webhooks check them."""

import base64
import binascii
import hashlib
import hmac
import secrets
from contextlib import suppress

PREFIX = "whsec_"
SECRET_BYTES = 32


def make_secret() -> str:
    """A new secret: `whsec_` and standard base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, ident: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery. `ident` stays the same over its repetitions, the time is that of this attempt.

    Signed with the secret as it is written; one in base64, with `whsec_` before it or not, also with the bytes that it
    stands for, which is what most libraries take it for.
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
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }
