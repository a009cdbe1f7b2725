"""The ids of calls and the names of functions that OpenAI's APIs take."""

import hashlib
import re
from typing import Any

# Error messages of the service: "maximum length 40" of `tool_calls[].id`, "maximum length 64" of `call_id`.
CHAT_LIMIT = 40
RESPONSES_LIMIT = 64
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def shorten(ident: str, limit: int) -> str:
    """Return an id within the limit. A long one is replaced by its hash, so it stays the same in each turn."""
    if len(ident) <= limit:
        return ident
    return f"call_{hashlib.sha256(ident.encode(errors='replace')).hexdigest()[:32]}"


def is_name(name: Any) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None
