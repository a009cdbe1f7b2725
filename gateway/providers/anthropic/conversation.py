"""Writes messages as the alternating turns of the format, with system instructions separate and at most four cache
marks.

Wire facts: Anthropic API reference, "Messages"; documentation, "Prompt caching" (four breakpoints, longer lifetimes
first) and "Tool use" (results come first in the user turn after the calls).
"""

from collections.abc import Iterable
from typing import Any

from gateway.neutral.parts import Message, ToolCall, ToolResult
from gateway.providers.anthropic.content import Block, write_part

MARK_LIMIT = 4
MARK = "cache_control"
OPENING = "(The conversation so far begins with an answer.)"
FOREIGN_SEARCH = "Calls of another provider's server tools in past turns were left out."

Turn = dict[str, Any]


def write_turns(messages: Iterable[Message], *, addresses: bool, warnings: list[str]) -> tuple[list[Block], list[Turn]]:
    """Instruction blocks, and turns that alternate and begin with the user's.

    Instructions all move to the front, in their order: the format knows no others in every model. A conversation of
    instructions alone is asked as the user's.
    """
    system: list[Block] = []
    turns: list[Turn] = []
    for message in messages:
        blocks = _write_blocks(message, addresses, warnings)
        if message.role in ("system", "developer"):
            system += [block for block in blocks if block["type"] == "text"]
            moved = [block for block in blocks if block["type"] != "text"]
            _add(turns, "user", moved)
        else:
            _add(turns, "assistant" if message.role == "assistant" else "user", blocks)
    if not turns and system:
        turns = [{"role": "user", "content": system}]
        system = []
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    _trim_end(turns)
    return system, turns


def _write_blocks(message: Message, addresses: bool, warnings: list[str]) -> list[Block]:
    answered = {part.call_id for part in message.parts if isinstance(part, ToolResult) and part.executed}
    blocks = []
    for part in message.parts:
        # A server tool's call without its own result is another vendor's: it is refused there.
        if isinstance(part, ToolCall) and part.executed and part.id not in answered:
            if FOREIGN_SEARCH not in warnings:
                warnings.append(FOREIGN_SEARCH)
            continue
        block = write_part(part, addresses=addresses)
        if block is not None:
            blocks.append(block)
    return blocks


def _add(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Append to the current turn of this role, or begin the next turn."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": list(blocks)})


def _trim_end(turns: list[Turn]) -> None:
    """An answer to be continued may not end in white space (API reference, "Prefill")."""
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        last = turns[-1]["content"][-1]
        turns[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}


def limit_marks(tools: list[Block], system: list[Block], turns: list[Turn], warnings: list[str]) -> None:
    """At most four cache marks, the last ones, since they cover the longest beginnings; none of an hour behind one
    of five minutes. The blocks with marks are this request's own and are changed in place."""
    marked = [block for block in (*tools, *system) if MARK in block]
    for turn in turns:
        for block in turn["content"]:
            if block["type"] == "tool_result":
                inner = block.get("content")
            else:
                inner = None
            marked += [one for one in inner if MARK in one] if isinstance(inner, list) else []
            if MARK in block:
                marked.append(block)
    for block in marked[:-MARK_LIMIT]:
        del block[MARK]
    if len(marked) > MARK_LIMIT:
        warnings.append(f"Only the last {MARK_LIMIT} cache marks are used.")
    short = False
    for block in marked[-MARK_LIMIT:]:
        if short and block[MARK].get("ttl") == "1h":
            block[MARK] = {"type": "ephemeral", "ttl": "5m"}
            warnings.append("A cache mark of one hour behind one of five minutes holds for five minutes.")
        short = short or block[MARK].get("ttl") != "1h"
