"""Carries reasoning and signatures of other vendors in the one opaque member that every client of the format returns.

A token is the `signature` of a thinking block: "gw1." and the base64 of a JSON list [what, vendor, signature, sealed,
ident, summary]. `what` tells what it belongs to: "" reasoning; "call:<id>" a tool call; "text" the text before it,
"next" the text after it.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import orjson
from msgspec import Struct

PREFIX = "gw1."
REASONING = ""
CALL = "call:"
TEXT = "text"
NEXT = "next"
FIELDS = 6


class OpaqueToken(Struct, frozen=True):
    what: str = REASONING
    vendor: str = ""
    signature: str = ""
    sealed: str = ""
    ident: str = ""
    summary: bool = False


def write_token(token: OpaqueToken) -> str:
    """Return the signature that carries `token`."""
    values = [token.what, token.vendor, token.signature, token.sealed, token.ident, token.summary]
    return PREFIX + urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def read_token(signature: str) -> OpaqueToken | None:
    """Return the content of a gateway signature; None for any other or modified signature."""
    if not signature.startswith(PREFIX):
        return None
    text = signature[len(PREFIX) :]
    try:
        values = orjson.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return None
    if not isinstance(values, list) or len(values) != FIELDS or not all(isinstance(v, str) for v in values[:5]):
        return None
    what, vendor, signature, sealed, ident, summary = values
    return OpaqueToken(what, vendor, signature, sealed, ident, summary is True)


def is_ours(signature: str) -> bool:
    return signature.startswith(PREFIX)
