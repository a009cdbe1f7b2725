"""Turns of a messages body: joined neighbours of one role, and instructions in their places.

Wire facts: Anthropic documentation, "Mid-conversation system messages" (a system message follows a user turn and never
comes first).
"""

from typing import Any

from gateway.providers.unsupported_parts import INSTRUCTIONS, mark_instruction

Block = dict[str, Any]
Turn = dict[str, Any]

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"


def blocks_of(turn: Turn) -> list[Block]:
    """Return the blocks of a turn's content, of which a text is one."""
    content = turn["content"]
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content and content.strip() else []


def add_turn(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Append to the last turn if it has this role, or begin the next turn. Blocks of the turns are not changed."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1] = {"role": role, "content": [*blocks_of(turns[-1]), *blocks]}
    else:
        turns.append({"role": role, "content": list(blocks)})


def place_instructions(turns: list[Turn], native: bool) -> tuple[list[Block], list[Turn]]:
    """Return the blocks of the instructions in front, and the turns with later instructions where they are: as system
    messages if the model takes those (`native`), otherwise as marked texts of the user."""
    begun = next((place for place, turn in enumerate(turns) if turn["role"] not in INSTRUCTIONS), len(turns))
    front = [block for turn in turns[:begun] for block in blocks_of(turn)]
    if not any([turn["role"] in INSTRUCTIONS for turn in turns[begun:]]):
        return front, turns[begun:]
    following = _following_roles(turns)
    placed: list[Turn] = []
    for place, turn in enumerate(turns[begun:], begun):
        if turn["role"] not in INSTRUCTIONS:
            if placed and placed[-1]["role"] == turn["role"]:
                add_turn(placed, turn["role"], blocks_of(turn))
            else:
                placed.append(turn)
            continue
        after_user = bool(placed) and placed[-1]["role"] in (USER, SYSTEM)
        if native and after_user and following[place] == ASSISTANT:
            add_turn(placed, SYSTEM, blocks_of(turn))
        else:
            add_turn(placed, USER, [_as_reminder(block) for block in blocks_of(turn)])
    return front, placed


def _following_roles(turns: list[Turn]) -> list[str]:
    """Return the role of the next turn with another role than instructions, for each turn; at the end the model
    answers."""
    roles = [ASSISTANT] * len(turns)
    for place in range(len(turns) - 2, -1, -1):
        after = turns[place + 1]["role"]
        roles[place] = roles[place + 1] if after in INSTRUCTIONS else after
    return roles


def _as_reminder(block: Block) -> Block:
    if block["type"] != "text":
        return block
    return {**block, "text": mark_instruction(block["text"])}


def results_first(turns: list[Turn]) -> None:
    """Move tool results to the front of each user turn."""
    for turn in turns:
        if turn["role"] == USER and isinstance(turn["content"], list):
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
