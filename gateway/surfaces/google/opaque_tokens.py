"""Carries reasoning and signatures of other vendors in `thoughtSignature`, which clients of the format return.

The member holds bytes: clients decode its base64 and write it again in the other alphabet (RFC 4648, section 5). An
envelope is therefore the base64 of ENVELOPE_MARK and a JSON list [vendor, signature, sealed, ident, summary]; the
base64 of ENVELOPE_MARK is the same in both alphabets. Signatures of the format's own vendor are passed on as they are.
"""

import binascii
from base64 import b64decode, b64encode

import orjson
from msgspec import Struct

from gateway.dialects.google import NAME
from gateway.neutral.file_types import normalize_base64

ENVELOPE_MARK = b"llmgw1"  # 6 bytes, so that its base64 is the beginning of every envelope
ENVELOPE_PREFIX = b64encode(ENVELOPE_MARK).decode()
FIELDS = 5


class SignedData(Struct, frozen=True):
    """The opaque data of one part, and the vendor that reads it."""

    vendor: str = ""
    signature: str = ""
    sealed: str = ""
    ident: str = ""
    summary: bool = False


def write_signature(signed: SignedData) -> str:
    """Return the `thoughtSignature` of a part; "" when no vendor needs anything back."""
    if signed.vendor == NAME:
        return signed.signature
    if not (signed.signature or signed.sealed or signed.ident):
        return ""
    values = [signed.vendor, signed.signature, signed.sealed, signed.ident, signed.summary]
    return b64encode(ENVELOPE_MARK + orjson.dumps(values)).decode()


def read_signature(text: str) -> SignedData:
    """Return what a `thoughtSignature` carries; an envelope that was modified carries nothing."""
    if not is_enveloped(text):
        return SignedData(NAME, normalize_base64(text)) if text else SignedData()
    try:
        values = orjson.loads(b64decode(normalize_base64(text))[len(ENVELOPE_MARK) :])
    except (binascii.Error, ValueError):
        return SignedData()
    if not isinstance(values, list) or len(values) != FIELDS or not all(isinstance(v, str) for v in values[:4]):
        return SignedData()
    vendor, signature, sealed, ident, summary = values
    return SignedData(vendor, signature, sealed, ident, summary is True)


def is_enveloped(text: str) -> bool:
    """Return whether a `thoughtSignature` carries data of another vendor than the format's own."""
    return text.startswith(ENVELOPE_PREFIX)
