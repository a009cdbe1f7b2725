"""The part of a body that is retained: all except its member `headers`, in which clients repeat the caller's own
headers, secrets included."""

import msgspec
from msgspec import Raw

from gateway.runtime.threads import compute
from gateway.surfaces import caps

MEMBER = "headers"


def without_headers(body: bytes) -> bytes:
    """Return the body without the member, all else byte for byte; nothing for a body that is not a JSON object."""
    if len(body) < caps.LARGE:
        return _strip(body)
    return compute(_strip, body)


def _strip(body: bytes) -> bytes:
    try:
        members = msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return b""
    if members.pop(MEMBER, None) is not None:
        return msgspec.json.encode(members)
    return body
