"""Applies a project's cache policy to a relayed body, as neutral/cache_marks.py does for a neutral conversation.

Values below the top level are shared with the parsed request and may be structs: a changed value is copied first.
"""

from typing import Any

from msgspec import structs

from gateway.dialects.anthropic import THINKING
from gateway.neutral.cache_marks import AUTOMATIC, DISABLED, LONG_TEXTS, MIN_CACHED_CHARACTERS, MIN_TURNS

CACHE_CONTROL = "cache_control"
EPHEMERAL = {"type": "ephemeral"}
Body = dict[str, Any]


def apply_policy(body: Body, policy: str) -> Body:
    """Return the body with the cache marks of `policy`; a copy if anything changes."""
    if policy == AUTOMATIC and not _is_marked(body):
        return _add_marks(body)
    if policy == DISABLED and _is_marked(body):
        return _strip_marks(body)
    return body


def _is_marked(body: Body) -> bool:
    system = body.get("system")
    blocks = list(body.get("tools") or ())
    if isinstance(system, list):
        blocks += system
    for message in body["messages"]:
        for block in _blocks(message):
            blocks += [block, *_blocks(block)]
    return bool(body.get(CACHE_CONTROL)) or any(_get(block, CACHE_CONTROL) for block in blocks)


def _add_marks(body: Body) -> Body:
    messages = [*body["messages"]]
    texts = [
        (row, column)
        for row, message in enumerate(messages)
        for column, text in enumerate(_texts(message))
        if len(text) >= MIN_CACHED_CHARACTERS
    ]
    chosen = set(texts[-LONG_TEXTS:])
    if len(messages) >= MIN_TURNS:
        chosen |= _last_block(messages)
    for row in {row for row, _ in chosen}:
        messages[row] = _marked(messages[row], {column for chosen_row, column in chosen if chosen_row == row})
    changed = {**body, "messages": messages}
    if body.get("system"):
        changed["system"] = _mark_system(body["system"])
    return changed


def _texts(message: Any) -> list[str]:
    """Return the text of each block ("" for blocks without text); a string content counts as one block."""
    content = _get(message, "content")
    if isinstance(content, str):
        return [content]
    return [_get(block, "text") or "" for block in content or ()]


def _last_block(messages: list[Any]) -> set[tuple[int, int]]:
    """Return the position of the last block in the last message that can have a mark; empty if there is none."""
    row = len(messages) - 1
    content = _get(messages[row], "content")
    if isinstance(content, str):
        if content.strip():
            return {(row, 0)}
        return set()
    columns = [column for column, block in enumerate(content or ()) if _can_have_mark(block)]
    if columns:
        return {(row, columns[-1])}
    return set()


def _can_have_mark(block: Any) -> bool:
    if isinstance(block, dict):
        return block.get("type") not in THINKING
    return hasattr(block, CACHE_CONTROL)


def _marked(message: Any, columns: set[int]) -> Any:
    content = _get(message, "content")
    if isinstance(content, str):
        return _set(message, "content", [{"type": "text", "text": content, CACHE_CONTROL: EPHEMERAL}])
    blocks = [
        _set(block, CACHE_CONTROL, EPHEMERAL) if column in columns else block for column, block in enumerate(content)
    ]
    return _set(message, "content", blocks)


def _mark_system(system: Any) -> Any:
    """Return the system instructions with a mark on the last long block."""
    if isinstance(system, str):
        if len(system) >= MIN_CACHED_CHARACTERS:
            return [{"type": "text", "text": system, CACHE_CONTROL: EPHEMERAL}]
        return system
    long_blocks = [
        index for index, block in enumerate(system) if len(_get(block, "text") or "") >= MIN_CACHED_CHARACTERS
    ]
    marked = list(system)
    for index in long_blocks[-1:]:
        marked[index] = _set(marked[index], CACHE_CONTROL, EPHEMERAL)
    return marked


def _strip_marks(body: Body) -> Body:
    changed = {name: value for name, value in body.items() if name != CACHE_CONTROL}
    changed["messages"] = [_strip_blocks(message) for message in body["messages"]]
    for name in ("system", "tools"):
        if isinstance(body.get(name), list):
            changed[name] = [_without_mark(block) for block in body[name]]
    return changed


def _strip_blocks(holder: Any) -> Any:
    """Return a message or a tool result without marks in its blocks."""
    if not _blocks(holder):
        return holder
    return _set(holder, "content", [_without_mark(_strip_blocks(block)) for block in _blocks(holder)])


def _without_mark(value: Any) -> Any:
    if not _get(value, CACHE_CONTROL):
        return value
    if isinstance(value, dict):
        return {name: member for name, member in value.items() if name != CACHE_CONTROL}
    return structs.replace(value, **{CACHE_CONTROL: None})


def _blocks(holder: Any) -> list[Any]:
    content = _get(holder, "content")
    if isinstance(content, list):
        return content
    return []


def _get(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    return getattr(value, name, None)


def _set(value: Any, name: str, new: Any) -> Any:
    if isinstance(value, dict):
        return {**value, name: new}
    return structs.replace(value, **{name: new})
