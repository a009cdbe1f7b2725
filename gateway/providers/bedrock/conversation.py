"""Writes messages as the alternating turns of the format, with system instructions separate.

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
NOTHING = "(no message)"
FOREIGN_SEARCH = "Calls of another provider's server tools in past turns were left out."

Turn = dict[str, Any]


def write_turns(
    messages: Iterable[Message], family: Family, writer: PartWriter, warnings: list[str]
) -> tuple[list[Block], list[Turn]]:
    """Instruction blocks, and turns that alternate and begin with the user's. Instructions all move to the front, in
    their order; media among them, and those an assistant made, go into the user's turn that follows."""
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
        moved = [block for block in blocks if role == "assistant" and not _is_assistants(block)]
        _add(turns, role, [block for block in blocks if block not in moved])
        _add(turns, "user", moved)
    if not turns:
        turns = [{"role": "user", "content": system or [{"text": NOTHING}]}]
        system = []
    if turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"text": OPENING}]})
    for turn in turns:
        _settle(turn)
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


def _is_assistants(block: Block) -> bool:
    """Whether an assistant's turn may hold this block: no media."""
    return not block.keys() & {"image", "document", "audio", "video"}


def _add(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Behind the running turn of this role, or as the next turn. A cache point alone begins none."""
    if not blocks or all(POINT in block for block in blocks):
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": list(blocks)})


def _settle(turn: Turn) -> None:
    """Results first (with the cache points right behind them), and a text beside documents."""
    content: list[Block] = turn["content"]
    if any("toolResult" in block for block in content):
        first: list[Block] = []
        rest: list[Block] = []
        goal = rest
        for block in content:
            if "toolResult" in block:
                goal = first
            else:
                goal = goal if POINT in block else rest
            goal.append(block)
        content = turn["content"] = first + rest
    if any("document" in block for block in content) and not any("text" in block for block in content):
        content.append({"text": ATTACHED})


def _trim_end(turns: list[Turn]) -> None:
    """An answer to be continued may not end in white space."""
    last = turns[-1]["content"][-1]
    if turns[-1]["role"] == "assistant" and "text" in last:
        turns[-1]["content"][-1] = {"text": last["text"].rstrip()}


def limit_points(tools: list[Block], system: list[Block], turns: list[Turn], warnings: list[str]) -> None:
    """At most four cache points, the last ones, since they cover the longest beginnings; none of an hour behind one
    of five minutes."""
    lists = [tools, system, *(turn["content"] for turn in turns)]
    places = [(blocks, place) for blocks in lists for place, block in enumerate(blocks) if POINT in block]
    if len(places) > POINT_LIMIT:
        warnings.append(f"Only the last {POINT_LIMIT} cache marks are used.")
    short = False
    for blocks, place in places[-POINT_LIMIT:]:
        if short and "ttl" in blocks[place][POINT]:
            blocks[place] = {POINT: {"type": "default"}}
            warnings.append("A cache mark of one hour behind one of five minutes holds for five minutes.")
        short = short or "ttl" not in blocks[place][POINT]
    for blocks, place in reversed(places[:-POINT_LIMIT]):
        del blocks[place]
