"""Writes messages as alternating turns and separate system instructions.

Wire facts: Amazon Bedrock API reference, Message (documents need a text beside them, and belong in user turns); user
guide, "Prompt caching" (four cache points) and "Call a tool with Converse".
"""

from collections.abc import Iterable
from typing import Any

from gateway.neutral.parts import Message, Text, ToolCall, ToolResult
from gateway.providers.bedrock.content import Block, PartWriter, cache_point
from gateway.providers.bedrock.families import Family

POINT = "cachePoint"
POINT_LIMIT = 4
OPENING = "(The conversation so far begins with an answer.)"
ATTACHED = "See the attached document."
EMPTY_MESSAGE = "(no message)"
FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."

Turn = dict[str, Any]


def write_turns(
    messages: Iterable[Message], family: Family, writer: PartWriter, warnings: list[str]
) -> tuple[list[Block], list[Turn]]:
    """Return the system blocks, and turns that alternate between roles and begin with a user turn.

    Instructions are at the front (see `with_late_instructions`). Media in instructions or in an assistant message go
    into the next user turn.
    """
    system: list[Block] = []
    turns: list[Turn] = []
    for message in messages:
        if message.role in ("system", "developer"):
            _add_instructions(message, system, turns, family, writer)
            continue
        blocks = _write_message(message, writer, warnings)
        if message.role == "assistant":
            role = "assistant"
        else:
            role = "user"
        moved = [block for block in blocks if role == "assistant" and not _fits_assistant(block)]
        _add(turns, role, [block for block in blocks if block not in moved])
        _add(turns, "user", moved)
    if not turns:
        turns = [{"role": "user", "content": system or [{"text": EMPTY_MESSAGE}]}]
        system = []
    if turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"text": OPENING}]})
    for turn in turns:
        _order_blocks(turn)
    _trim_end(turns)
    return system, turns


def _add_instructions(
    message: Message, system: list[Block], turns: list[Turn], family: Family, writer: PartWriter
) -> None:
    for part in message.parts:
        if not isinstance(part, Text):
            _add(turns, "user", writer.write(part))
        elif part.text.strip():
            system.append({"text": part.text})
            if part.cache is not None and "system" in family.cache:
                system.append(cache_point(part.cache, family))


def _write_message(message: Message, writer: PartWriter, warnings: list[str]) -> list[Block]:
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, ToolCall | ToolResult) and part.executed:
            if FOREIGN_SEARCH not in warnings:
                warnings.append(FOREIGN_SEARCH)
        else:
            blocks += writer.write(part)
    return blocks


def _fits_assistant(block: Block) -> bool:
    """Return whether an assistant turn may contain this block; it may not contain media."""
    return not block.keys() & {"image", "document", "audio", "video"}


def _add(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Append to the current turn of this role, or begin the next turn; a cache point alone begins no turn."""
    if not blocks or all(POINT in block for block in blocks):
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": list(blocks)})


def _order_blocks(turn: Turn) -> None:
    """Move tool results with their cache points to the front, and add a text to a turn of documents alone."""
    content: list[Block] = turn["content"]
    if any("toolResult" in block for block in content):
        results: list[Block] = []
        rest: list[Block] = []
        destination = rest
        for block in content:
            if "toolResult" in block:
                destination = results
            elif POINT not in block:
                destination = rest
            destination.append(block)
        content = turn["content"] = results + rest
    if any("document" in block for block in content) and not any("text" in block for block in content):
        content.append({"text": ATTACHED})


def _trim_end(turns: list[Turn]) -> None:
    """Strip white space from the end of a prefilled answer, where the API refuses it."""
    last = turns[-1]["content"][-1]
    if turns[-1]["role"] == "assistant" and "text" in last:
        turns[-1]["content"][-1] = {"text": last["text"].rstrip()}


def limit_points(tools: list[Block], system: list[Block], turns: list[Turn], warnings: list[str]) -> None:
    """Keep the last four cache points, which cover the longest prefixes, and shorten points that break the order.

    The API refuses a cache point of one hour after one of five minutes.
    """
    lists = [tools, system, *(turn["content"] for turn in turns)]
    points = [(blocks, index) for blocks in lists for index, block in enumerate(blocks) if POINT in block]
    if len(points) > POINT_LIMIT:
        warnings.append(f"Only the last {POINT_LIMIT} cache marks are used.")
    short = False
    for blocks, index in points[-POINT_LIMIT:]:
        if short and "ttl" in blocks[index][POINT]:
            blocks[index] = {POINT: {"type": "default"}}
            warnings.append("A one-hour cache mark after a five-minute one was shortened to five minutes.")
        short = short or "ttl" not in blocks[index][POINT]
    for blocks, index in reversed(points[:-POINT_LIMIT]):
        del blocks[index]
