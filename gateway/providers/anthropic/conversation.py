"""Writes messages as alternating turns and separate system instructions, with at most four cache marks.

Wire facts: Anthropic API reference, "Messages"; documentation, "Prompt caching" (four breakpoints, longer lifetimes
first) and "Tool use" (tool results come first in the user turn after the calls).
"""

from collections.abc import Iterable
from typing import Any

from gateway.neutral.parts import Message, ToolCall, ToolResult
from gateway.providers.anthropic.content import Block, write_part

MARK_LIMIT = 4
CACHE_CONTROL = "cache_control"
OPENING = "(The conversation so far begins with an answer.)"
FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."

Turn = dict[str, Any]


def write_turns(messages: Iterable[Message], *, addresses: bool, warnings: list[str]) -> tuple[list[Block], list[Turn]]:
    """Return the system blocks, and turns that alternate between roles and begin with a user turn.

    All instructions move to the front in their order, since not every model accepts them elsewhere. A conversation that
    consists only of instructions is sent as a user turn.
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
        # The API refuses a server tool's call without a result: it belongs to another vendor.
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
    """Strip white space from the end of a prefilled answer, where the API refuses it (API reference, "Prefill")."""
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        last = turns[-1]["content"][-1]
        turns[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}


def limit_marks(tools: list[Block], system: list[Block], turns: list[Turn], warnings: list[str]) -> None:
    """Keep the last four cache marks, which cover the longest prefixes, and shorten marks that break the order.

    The API refuses a mark of one hour after a mark of five minutes. Blocks with marks are changed in place: they belong
    to this request alone.
    """
    marked = [block for block in (*tools, *system) if CACHE_CONTROL in block]
    for turn in turns:
        for block in turn["content"]:
            content = block.get("content")
            if block["type"] == "tool_result" and isinstance(content, list):
                marked += [inner for inner in content if CACHE_CONTROL in inner]
            if CACHE_CONTROL in block:
                marked.append(block)
    for block in marked[:-MARK_LIMIT]:
        del block[CACHE_CONTROL]
    if len(marked) > MARK_LIMIT:
        warnings.append(f"Only the last {MARK_LIMIT} cache marks are used.")
    short = False
    for block in marked[-MARK_LIMIT:]:
        if short and block[CACHE_CONTROL].get("ttl") == "1h":
            block[CACHE_CONTROL] = {"type": "ephemeral", "ttl": "5m"}
            warnings.append("A one-hour cache mark after a five-minute one was shortened to five minutes.")
        short = short or block[CACHE_CONTROL].get("ttl") != "1h"
