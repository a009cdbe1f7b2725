"""Tokens of pages of the console: each stands for one existing key of its visitor for some minutes. They are signed and
stored nowhere, and end before their time when the key or the visitor's session does.

Form: `llmgpg_<id of the key>.<id of the session>.<expiry in µs>.<HMAC-SHA-256 of these under the secret of token
hashes>`.
"""

import hmac
from collections.abc import Sequence
from typing import NamedTuple

from gateway.callers.tokens import hash_token

PREFIX = "llmgpg_"
SUBJECT = "page token\n"  # no token of a key has a line break, so no hash of one is a signature


class PageToken(NamedTuple):
    key_id: str
    session_id: str
    expires_at_us: int


def make(token: PageToken, hash_key: bytes) -> str:
    """Return the text of a token."""
    signed = f"{PREFIX}{token.key_id}.{token.session_id}.{token.expires_at_us}"
    return f"{signed}.{hash_token(SUBJECT + signed, hash_key)}"


def read(text: str, hash_keys: Sequence[bytes]) -> PageToken | None:
    """Return the token of a text; None unless one of the secrets signed it."""
    signed, _, signature = text.rpartition(".")
    parts = signed.removeprefix(PREFIX).split(".")
    if not text.startswith(PREFIX) or len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit()):
        return None
    for hash_key in hash_keys:
        if hmac.compare_digest(hash_token(SUBJECT + signed, hash_key).encode(), signature.encode()):
            return PageToken(parts[0], parts[1], int(parts[2]))
    return None
