"""Writes messages as alternating turns and separate system instructions, with at most four cache marks.

Wire facts: Anthropic API reference, "Messages"; documentation, "Prompt caching" (four breakpoints, longer lifetimes
first) and "Tool use" (tool results come first in the user turn after the calls).
"""

from collections.abc import Iterable

from gateway.neutral.parts import Message, ToolCall, ToolResult
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.content import Block, write_part
from gateway.providers.anthropic.turns import ASSISTANT, SYSTEM, USER, Turn, place_instructions, results_first
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import GENERATED

MARK_LIMIT = 4
CACHE_CONTROL = "cache_control"
OPENING = "(The conversation so far begins with an answer.)"
FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."
ROLES = {"system": SYSTEM, "developer": SYSTEM, "assistant": ASSISTANT, "user": USER, "tool": USER}
MEDIA = frozenset(("image", "document"))  # blocks that belong in user turns


def write_turns(messages: Iterable[Message], target: Target, warnings: list[str]) -> tuple[list[Block], list[Turn]]:
    """Return the system blocks, and turns that alternate between roles and begin with a user turn.

    Instructions behind other messages stay where they are (see `place_instructions`). Media of an assistant message go
    into the next user turn. A conversation that consists only of instructions is sent as a user turn.
    """
    addresses = host_rules.takes_addresses(target)
    system: list[Block] = []
    turns: list[Turn] = []
    late = answers = False
    for message in messages:
        role = ROLES[message.role]
        blocks = _write_blocks(message, addresses, warnings)
        if role != USER and not MEDIA.isdisjoint([block["type"] for block in blocks]):
            _add_apart(turns, role, blocks)
        elif role != SYSTEM or turns:
            _add(turns, role, blocks)
        else:
            system += blocks
        late = late or (role == SYSTEM and bool(turns))
        answers = answers or message.role == "tool"
    if late:
        front, turns = place_instructions(turns, host_rules.takes_instructions(target))
        system += front
    if not turns and system:
        turns = [{"role": "user", "content": system}]
        system = []
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if answers:
        results_first(turns)
    _trim_end(turns)
    return system, turns


def _add_apart(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Add the blocks of a message, and its media in the next user turn."""
    _add(turns, role, [block for block in blocks if block["type"] not in MEDIA])
    note = [{"type": "text", "text": GENERATED}] if role == ASSISTANT else []
    _add(turns, USER, [*note, *(block for block in blocks if block["type"] in MEDIA)])


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
