"""Blocks of types that the gateway does not know: new ones of the format work on the day of their release."""

from typing import Any, get_args

from msgspec import DecodeError, json

from gateway.surfaces.anthropic import blocks as wire

# Types of parts and tools that only the other format has.
OTHER_FORMATS = ("image_url", "input_audio", "input_text", "input_image", "function", "file", "refusal")
KNOWN_CHOICES = ("auto", "any", "tool", "none", "required")  # the last one is of the other format
UNKNOWN = wire.UnknownBlock.__struct_config__.tag


def _tags(union: Any) -> frozenset[str]:
    """Return the types of blocks in a list type."""
    (kinds,) = get_args(union)
    return frozenset(str(kind.__struct_config__.tag) for kind in get_args(kinds))


KNOWN = _tags(wire.Blocks)
KNOWN_IN_RESULTS = _tags(wire.ResultParts)


def wrap_unknown(body: bytes) -> bytes | None:
    """Return a body with its blocks of unknown types wrapped as UnknownBlock, None if there are none or if they belong
    to another format."""
    try:
        wire_body = json.decode(body)
    except (DecodeError, RecursionError):
        return None
    messages = wire_body.get("messages") if isinstance(wire_body, dict) else None
    found = [_wrap(message, KNOWN) for message in messages if isinstance(message, dict)] if messages else []
    choice = wire_body.get("tool_choice") if isinstance(wire_body, dict) else None
    kind = choice.get("type") if isinstance(choice, dict) else None
    if isinstance(kind, str) and kind and kind not in (*KNOWN_CHOICES, *OTHER_FORMATS):
        wire_body["tool_choice"] = {"type": UNKNOWN, "kind": kind, "body": choice}
        found.append(True)
    if not any(found):
        return None
    return json.encode(wire_body)


def _wrap(holder: dict[str, Any], known: frozenset[str]) -> bool:
    """Wrap the unknown blocks in the content of a message or a result; return whether there are any."""
    content = holder.get("content")
    if not isinstance(content, list):
        return False
    found = False
    for place, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or not kind or kind in OTHER_FORMATS:
            continue
        if kind not in known or kind == UNKNOWN:
            content[place] = {"type": UNKNOWN, "kind": kind, "body": block}
            found = True
        elif kind == "tool_result":
            found = _wrap(block, KNOWN_IN_RESULTS) or found
    return found
