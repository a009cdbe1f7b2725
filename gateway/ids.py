"""Prefixed, time-ordered ids and secret tokens."""

import hmac
import secrets
from hashlib import blake2b

from uuid_utils import uuid7

from gateway.secret_text import TOKEN_PREFIXES


def new(prefix: str) -> str:
    """Return `<prefix>_<32 hex digits of a version 7 UUID>`, e.g. org_0199…; ids sort by creation time."""
    return f"{prefix}_{uuid7().hex}"


def new_hex() -> str:
    """Return 32 hex digits without a prefix, for wire formats that add their own (chatcmpl-, msg_, resp_)."""
    return uuid7().hex


def token(prefix: str) -> str:
    """Return a new secret: one of the prefixes that logs hide, and 40 URL-safe random characters (240 bits)."""
    if prefix not in TOKEN_PREFIXES:
        raise ValueError(f"{prefix!r} is missing in TOKEN_PREFIXES")
    return prefix + secrets.token_urlsafe(30)


def digest(text: str) -> str:
    """Return 32 hex digits that stand for a text which may not be stored, such as the name of a session."""
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def keyed_digest(text: str, key: bytes) -> str:
    """Return 32 hex digits that stand for a text that could be guessed: without the key, a guess cannot be tried."""
    return hmac.digest(key, text.encode(errors="replace"), "sha256")[:16].hex()


def mask(secret: str) -> str:
    """Return the part of a token that may be shown: its first twelve characters, then bullets."""
    return secret[:12] + "•" * min(5, max(0, len(secret) - 12))
