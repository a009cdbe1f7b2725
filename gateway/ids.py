"""Prefixed, time-ordered ids and secret tokens."""

import secrets

from uuid_utils import uuid7

TOKEN_LENGTH = 40


def new(prefix: str) -> str:
    """`<prefix>_<32 hex digits of a version 7 UUID>`, e.g. org_0199…; sorts by time of making."""
    return f"{prefix}_{uuid7().hex}"


def new_hex() -> str:
    """The bare 32 hex digits, for wire ids that bring their own prefix (chatcmpl-, msg_, resp_)."""
    return uuid7().hex


def token(prefix: str) -> str:
    """A secret: prefix and 40 URL-safe random characters (240 bits)."""
    return prefix + secrets.token_urlsafe(30)


def mask(secret: str) -> str:
    """What may be shown of a token: its first twelve characters, then bullets."""
    return secret[:12] + "•" * min(5, max(0, len(secret) - 12))
