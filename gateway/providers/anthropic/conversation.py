"""Writes messages as alternating turns and separate system instructions, with at most four cache marks.

Wire facts: Anthropic API reference, "Messages"; documentation, "Prompt caching" (four breakpoints, longer lifetimes
first) and "Tool use" (tool results come first in the user turn after the calls).
"""

from collections.abc import Iterable
from typing import Any

from gateway.neutral.parts import Message, ToolCall, ToolResult
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.content import Block, write_part
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import (
    ASKED_TO_CONTINUE,
    CONTINUE,
    GENERATED,
    INSTRUCTIONS,
    NOTHING_SAID,
    mark_instruction,
)

# Turns of a messages body: joined neighbours of one role, and instructions in their places.
#
# Wire facts: Anthropic documentation, "Mid-conversation system messages" (a system message follows a user turn and
# never comes first).

TurnBlock = dict[str, Any]
Turn = dict[str, Any]

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"


def blocks_of(turn: Turn) -> list[TurnBlock]:
    """Return the blocks of a turn's content, of which a text is one."""
    content = turn["content"]
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content and content.strip() else []


class TurnList:
    """Turns of which neighbours of one role become one. Turns that come in are not changed."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._own: Turn | None = None  # the last turn, if its list of blocks is not shared

    def add(self, role: str, blocks: list[TurnBlock]) -> None:
        """Append to the last turn if it has this role, or begin the next turn."""
        if not blocks:
            return
        last = self.turns[-1] if self.turns else None
        if last is None or last["role"] != role:
            self._own = {"role": role, "content": list(blocks)}
            self.turns.append(self._own)
            return
        if last is not self._own:
            self._own = self.turns[-1] = {"role": role, "content": list(blocks_of(last))}
        self._own["content"] += blocks

    def keep(self, turn: Turn) -> None:
        """Append a turn as it is; one of the role of the last turn joins it."""
        if self.turns and self.turns[-1]["role"] == turn["role"]:
            self.add(turn["role"], blocks_of(turn))
        else:
            self.turns.append(turn)


def place_instructions(turns: list[Turn], native: bool) -> tuple[list[TurnBlock], list[Turn]]:
    """Return the blocks of the instructions in front, and the turns with later instructions where they are: as system
    messages if the model takes those (`native`), otherwise as marked texts of the user."""
    begun = next((place for place, turn in enumerate(turns) if turn["role"] not in INSTRUCTIONS), len(turns))
    front = [block for turn in turns[:begun] for block in blocks_of(turn)]
    if not any([turn["role"] in INSTRUCTIONS for turn in turns[begun:]]):
        return front, turns[begun:]
    following = _following_roles(turns)
    placed = TurnList()
    for place, turn in enumerate(turns[begun:], begun):
        if turn["role"] not in INSTRUCTIONS:
            placed.keep(turn)
            continue
        after_user = bool(placed.turns) and placed.turns[-1]["role"] in (USER, SYSTEM)
        if native and after_user and following[place] == ASSISTANT:
            placed.add(SYSTEM, blocks_of(turn))
        else:
            placed.add(USER, [_as_reminder(block) for block in blocks_of(turn)])
    return front, placed.turns


def _following_roles(turns: list[Turn]) -> list[str]:
    """Return the role of the next turn with another role than instructions, for each turn; at the end the model
    answers."""
    roles = [ASSISTANT] * len(turns)
    for place in range(len(turns) - 2, -1, -1):
        after = turns[place + 1]["role"]
        roles[place] = roles[place + 1] if after in INSTRUCTIONS else after
    return roles


def _as_reminder(block: TurnBlock) -> TurnBlock:
    if block["type"] != "text":
        return block
    return {**block, "text": mark_instruction(block["text"])}


def results_first(turns: list[Turn]) -> None:
    """Move tool results to the front of each user turn."""
    for turn in turns:
        if turn["role"] == USER and isinstance(turn["content"], list):
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")


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
        if role == USER:
            _add(turns, role, blocks)
            answers = answers or message.role == "tool"
        elif not MEDIA.isdisjoint([block["type"] for block in blocks]):
            _add_apart(turns, role, blocks)
            late = late or role == SYSTEM
        elif role == SYSTEM and not turns:
            system += blocks
        else:
            _add(turns, role, blocks)
            late = late or role == SYSTEM
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
    _close(turns, target, warnings)
    return system, turns


def _add_apart(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Add the blocks of a message, and its media in the next user turn."""
    _add(turns, role, [block for block in blocks if block["type"] not in MEDIA])
    note = [{"type": "text", "text": GENERATED}] if role == ASSISTANT else []
    _add(turns, USER, [*note, *(block for block in blocks if block["type"] in MEDIA)])


def _write_blocks(message: Message, addresses: bool, warnings: list[str]) -> list[Block]:
    answered: set[str] | None = None
    blocks = []
    for part in message.parts:
        # The API refuses a server tool's call without a result: it belongs to another vendor.
        if isinstance(part, ToolCall) and part.executed:
            if answered is None:
                answered = {each.call_id for each in message.parts if isinstance(each, ToolResult) and each.executed}
            if part.id not in answered:
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


def _close(turns: list[Turn], target: Target, warnings: list[str]) -> None:
    """Complete the end of the turns: a conversation of blank texts says so, and an answer to be continued has no white
    space at its end (API reference, "Prefill"). A model that does not continue answers receives a request to do so."""
    if not turns:
        turns.append({"role": "user", "content": [{"type": "text", "text": NOTHING_SAID}]})
    last = turns[-1]["content"][-1]
    if turns[-1]["role"] != "assistant" or last["type"] == "tool_use":
        return
    if not host_rules.continues_answers(target):
        warnings.append(ASKED_TO_CONTINUE)
        _add(turns, USER, [{"type": "text", "text": CONTINUE}])
    elif last["type"] == "text":
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
    if not marked:
        return
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
