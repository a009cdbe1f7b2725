"""`encrypted_content`: the one opaque member in which reasoning and signatures of any vendor are returned and sent back
unchanged.

Content that a server of this dialect encrypted is wrapped byte for byte with the account that can decrypt it. Data of
other vendors (signed or encrypted reasoning, signatures of texts and tool calls) and the gateway's own compactions are
packed as JSON.
"""

import base64
import binascii
from typing import Any

import orjson
from msgspec import Struct, field

from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.parts import Reasoning
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.responses import schema

PARAGRAPH = "\n\n"
MARKS = "marks"


class SealedMarks(Struct):
    """Opaque signatures of parts other than reasoning: of the last text of the response, and of tool calls by id."""

    vendor: str = ""
    text: str = ""
    calls: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.text or self.calls)


def seal_reasoning(part: Reasoning, origin: str) -> str:
    """Return the opaque token of a reasoning block, "" when its vendor needs none of it back."""
    if part.vendor == dialect.NAME:
        if part.sealed:
            return dialect.write_token(dialect.NAME, origin, part.sealed)
        return ""
    if not part.vendor or not (part.signature or part.sealed):
        return ""
    packed = {"text": part.text, "signature": part.signature, "sealed": part.sealed, "id": part.ident}
    return dialect.write_token(part.vendor, "", _pack({key: value for key, value in packed.items() if value}))


def seal_marks(marks: SealedMarks) -> str:
    return dialect.write_token(marks.vendor, MARKS, _pack({"text": marks.text, "calls": marks.calls}))


def seal_summary(text: str) -> str:
    """Return the opaque token of a compaction made by the gateway."""
    return dialect.write_token(dialect.COMPACTOR, "", _pack({"text": text}))


def wrap(item: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return an upstream's item with its encrypted content wrapped; the item itself when it has none."""
    sealed = item.get("encrypted_content")
    if not isinstance(sealed, str) or not sealed or dialect.read_token(sealed) is not None:
        return item
    return {**item, "encrypted_content": dialect.write_token(dialect.NAME, origin, sealed)}


def open_reasoning(item: schema.Reasoning, path: str) -> Reasoning | SealedMarks:
    """Return the content of a reasoning item. An opaque token of this dialect stays encrypted: only its account can
    decrypt it."""
    summary = PARAGRAPH.join(part.text for part in item.summary or ())
    text = summary or PARAGRAPH.join(part.text for part in item.content or ())
    token = dialect.read_token(item.encrypted_content)
    if token is None or token.vendor == dialect.NAME:
        sealed = item.encrypted_content or ""
        return Reasoning(text, sealed=sealed, vendor=dialect.NAME if sealed else "", summary=bool(summary))
    packed = _unpack(token.payload, path)
    if token.origin == MARKS:
        calls = packed.get("calls")
        return SealedMarks(token.vendor, _word(packed, "text"), calls if isinstance(calls, dict) else {})
    return Reasoning(
        _word(packed, "text"), _word(packed, "signature"), _word(packed, "sealed"), token.vendor, _word(packed, "id")
    )


def open_summary(item: schema.Compaction, path: str) -> str | None:
    """Return the summary of a compaction made by the gateway, None for any other."""
    token = dialect.read_token(item.encrypted_content)
    if token is None or token.vendor != dialect.COMPACTOR:
        return None
    return _word(_unpack(token.payload, path), "text")


def _pack(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).decode()


def _unpack(payload: str, path: str) -> dict[str, Any]:
    try:
        value = orjson.loads(base64.b64decode(payload, altchars=b"-_", validate=True))
    except (binascii.Error, orjson.JSONDecodeError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise invalid(f"{path}.encrypted_content", "it was modified; send it back unchanged")
    return value


def _word(packed: dict[str, Any], name: str) -> str:
    value = packed.get(name)
    if isinstance(value, str):
        return value
    return ""
