"""`reasoning_details`: the wire format in which reasoning and its opaque tokens are returned and sent back unchanged.

Items: {type: reasoning.text, text, signature}, {type: reasoning.summary, summary}, {type: reasoning.encrypted, data},
each with `format` (which vendor), `id` (the vendor's, optional) and `index` (items of one index are one block, also
across the chunks of a stream, where its first item alone has `format` and `id`). A token of a tool call is an encrypted
item whose `id` is the call's; one of the text has the id `content`. Clients may send back the items of one index as
they came, or joined as one item.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import Struct, field

from gateway.dialects.openai import REASONING_FORMATS, REASONING_VENDORS
from gateway.neutral.parts import Part, Reasoning, Text, ToolCall
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.openai.chat_answers import DetailPlace, ReasoningDetail

TEXT: Final = "reasoning.text"
SUMMARY: Final = "reasoning.summary"
SEALED: Final = "reasoning.encrypted"
CONTENT_ID = "content"
UNKNOWN = "unknown"


class ReasoningMarks(Struct, frozen=True):
    """Signatures of parts other than reasoning: (signature, vendor) of the text, and by call id."""

    text: tuple[str, str] = ("", "")
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)

    def of_call(self, call_id: str) -> tuple[str, str]:
        return self.calls.get(call_id, ("", ""))


class _Block(Struct):
    kind: str = TEXT
    texts: list[str] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    vendor: str = ""
    ident: str = ""
    index: Any = None

    @property
    def signed(self) -> bool:
        return any(self.signatures)

    def part(self) -> Reasoning:
        return Reasoning(
            "".join(self.texts),
            "".join(self.signatures),
            "".join(self.opaque),
            self.vendor,
            self.ident,
            self.kind == SUMMARY,
        )


def vendor_of(name: Any) -> str:
    """Return the vendor that a `format` stands for; an unknown format is its own name, "unknown" is none."""
    if not isinstance(name, str) or name == UNKNOWN:
        return ""
    return REASONING_VENDORS.get(name, name)


def format_of(vendor: str) -> str:
    return REASONING_FORMATS.get(vendor, vendor) or UNKNOWN


def read_details(
    items: list[dict[str, Any]] | None, reasoning: str, call_ids: Collection[str], path: str
) -> tuple[list[Reasoning], ReasoningMarks]:
    """Return the reasoning blocks and the other parts' tokens of one message. `reasoning` is its plain reasoning text,
    used when no item has any: a stream that identifies its vendor only at the end sends the text there only, and the
    signature covers it. Raises InvalidRequest for an item of another type."""
    if not items:
        return ([Reasoning(reasoning)] if reasoning else []), ReasoningMarks()
    blocks: list[_Block] = []
    text_mark = ("", "")
    calls = {}
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind not in (TEXT, SUMMARY, SEALED):
            raise invalid(f"{path}.{place}.type", f"expected {TEXT}, {SUMMARY} or {SEALED}")
        ident = _word(item, "id")
        vendor = vendor_of(item.get("format"))
        if kind == SEALED and ident == CONTENT_ID:
            text_mark = (_word(item, "data"), vendor)
        elif kind == SEALED and ident in call_ids:
            calls[ident] = (_word(item, "data"), vendor)
        else:
            _merge(blocks, item, ident, vendor)
    if reasoning and not any(text for block in blocks for text in block.texts):
        signed = next((block for block in blocks if block.signed), None)
        if signed is None:
            blocks.insert(0, _Block(texts=[reasoning]))
        else:
            signed.texts = [reasoning]
    return [block.part() for block in blocks], ReasoningMarks(text_mark, calls)


def _merge(blocks: list[_Block], item: dict[str, Any], ident: str, vendor: str) -> None:
    """Add an item to the block that it continues (same index and vendor), or begin another."""
    last = blocks[-1] if blocks else None
    if last is None or not _continues(last, item, vendor):
        last = _Block(kind=item["type"], vendor=vendor, index=item.get("index"))
        blocks.append(last)
    if item["type"] == SUMMARY or "summary" in item:
        last.kind = SUMMARY
    for name, pieces in (
        (_word(item, "summary") or _word(item, "text"), last.texts),
        (_word(item, "signature"), last.signatures),
        (_word(item, "data"), last.opaque),
    ):
        if name:
            pieces.append(name)
    last.ident = last.ident or ident


def _continues(block: _Block, item: dict[str, Any], vendor: str) -> bool:
    if vendor and vendor != block.vendor:
        return False
    lone_signature = not item.get("text") and item.get("signature") and not block.signatures
    index = item.get("index")
    return bool(lone_signature) or (index is not None and index == block.index)


def _word(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    if isinstance(value, str):
        return value
    return ""


def write_details(parts: Sequence[Part]) -> list[ReasoningDetail]:
    """Return the items of a message's parts: its reasoning, and the tokens that vendors need back."""
    items: list[ReasoningDetail] = []
    index = 0
    for part in parts:
        if isinstance(part, Reasoning):
            items += write_block(part, index)
        elif isinstance(part, Text) and part.signature:
            items.append(write_token(part.signature, part.vendor, CONTENT_ID, index))
        elif isinstance(part, ToolCall) and part.signature:
            items.append(write_token(part.signature, part.vendor, part.id, index))
        else:
            continue
        index += 1
    return items


def write_block(part: Reasoning, index: int) -> list[ReasoningDetail]:
    """Return one block of reasoning: its text or summary with the signature, then the encrypted data."""
    place: DetailPlace = {"format": format_of(part.vendor), "index": index}
    if part.ident:
        place["id"] = part.ident
    items: list[ReasoningDetail] = []
    if part.summary and part.text:
        items.append({"type": SUMMARY, "summary": part.text, **place})
    elif part.text or part.signature:
        items.append({"type": TEXT, "text": part.text, **place})
        if part.signature:
            items[0]["signature"] = part.signature
    if part.sealed:
        items.append({"type": SEALED, "data": part.sealed, **place})
    return items


def write_token(signature: str, vendor: str, ident: str, index: int) -> ReasoningDetail:
    """Return the opaque token of a text (`ident` CONTENT_ID) or of a tool call (its id)."""
    return {"type": SEALED, "data": signature, "format": format_of(vendor), "id": ident, "index": index}
