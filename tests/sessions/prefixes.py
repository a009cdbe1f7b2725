"""The part of a request that a provider's prompt cache can reuse: all of it up to the last turn."""

import json
from typing import Any

Json = dict[str, Any]
HEADS = ("system", "systemInstruction", "instructions", "tools", "toolConfig", "tool_choice", "preamble")
TURNS = ("messages", "input", "contents")
CONTENTS = ("content", "parts")


def prefix_of(body: Json) -> tuple[str, list[str]]:
    """Return what stands before the turns, and the turns in pieces: a role, or one of its blocks, each as JSON."""
    heads = json.dumps({name: body[name] for name in HEADS if name in body})
    turns = next(body[name] for name in TURNS if name in body)
    return heads, [piece for turn in turns for piece in _pieces(turn)]


def _pieces(turn: Json) -> list[str]:
    """Return a turn in pieces. A text is the same as one block with the text, an empty one the same as none; the marks
    of Anthropic's and Bedrock's caches are no part of the prompt."""
    name = next((name for name in CONTENTS if turn.get(name)), "")
    head = {key: value for key, value in turn.items() if key not in CONTENTS}
    blocks = turn.get(name) or []
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    inner = [
        json.dumps({key: value for key, value in _plain(block).items() if key != "cache_control"})
        for block in blocks
        if "cachePoint" not in block
    ]
    if (
        "tool_calls" in head
    ):  # their arguments are texts, and the order of the members around them is none of the prompt
        return [*inner, json.dumps(head, sort_keys=True)]
    return [json.dumps(head), *inner]


def _plain(block: Json) -> Json:
    """Return a text of the Responses API under the type that it has elsewhere, since a text alone has none."""
    return {**block, "type": "text"} if block.get("type") == "input_text" else block


def difference(before: Json, after: Json) -> str:
    """Return the first piece of a request that the next one does not repeat; "" when it repeats all of it."""
    heads, pieces = prefix_of(before)
    later_heads, later = prefix_of(after)
    if heads != later_heads:
        return f"{heads} became {later_heads}"
    for place, piece in enumerate(pieces):
        if place >= len(later) or later[place] != piece:
            return f"{piece} became {later[place] if place < len(later) else 'nothing'}"
    return ""
