"""Sets cache marks in a relayed body by a project's policy, as neutral/cache_marks.py does for a rebuilt one.

Values below the top level are shared and may be another layer's types: what changes is copied, the rest is left
unchanged.
"""

from typing import Any

from msgspec import structs

from gateway.neutral.cache_marks import AUTOMATIC, DISABLED, LEAST_TURNS, LONG, LONG_TEXTS

MARK = "cache_control"
EPHEMERAL = {"type": "ephemeral"}
UNMARKED = ("thinking", "redacted_thinking")  # documentation, "Prompt caching": what cannot be marked
Body = dict[str, Any]


def apply_policy(body: Body, policy: str) -> Body:
    """The body as `policy` has it: a copy where it changes."""
    if policy == AUTOMATIC and not _is_marked(body):
        return _add(body)
    if policy == DISABLED and _is_marked(body):
        return _strip(body)
    return body


def _is_marked(body: Body) -> bool:
    system = body.get("system")
    held = [*(body.get("tools") or ()), *(system if isinstance(system, list) else ())]
    for message in body["messages"]:
        for block in _blocks(message):
            held += [block, *_blocks(block)]
    return bool(body.get(MARK)) or any(_get(one, MARK) for one in held)


def _add(body: Body) -> Body:
    messages = [*body["messages"]]
    texts = [
        (row, column)
        for row, message in enumerate(messages)
        for column, text in enumerate(_texts(message))
        if len(text) >= LONG
    ]
    chosen = set(texts[-LONG_TEXTS:])
    if len(messages) >= LEAST_TURNS:
        chosen |= _end(messages)
    for row in {row for row, _ in chosen}:
        messages[row] = _marked(messages[row], {column for place, column in chosen if place == row})
    changed = {**body, "messages": messages}
    if body.get("system"):
        changed["system"] = _mark_system(body["system"])
    return changed


def _texts(message: Any) -> list[str]:
    """The text of each block, "" of one that is none; a plain content is one block."""
    content = _get(message, "content")
    if isinstance(content, str):
        return [content]
    return [_get(block, "text") or "" for block in content or ()]


def _end(messages: list[Any]) -> set[tuple[int, int]]:
    """The last block of the last message that can be marked."""
    row = len(messages) - 1
    content = _get(messages[row], "content")
    if isinstance(content, str):
        if content.strip():
            return {(row, 0)}
        return set()
    fitting = [column for column, block in enumerate(content or ()) if _takes_mark(block)]
    if fitting:
        return {(row, fitting[-1])}
    return set()


def _takes_mark(block: Any) -> bool:
    if isinstance(block, dict):
        return block.get("type") not in UNMARKED
    return hasattr(block, MARK)


def _marked(message: Any, columns: set[int]) -> Any:
    content = _get(message, "content")
    if isinstance(content, str):
        return _set(message, "content", [{"type": "text", "text": content, MARK: EPHEMERAL}])
    blocks = [_set(block, MARK, EPHEMERAL) if column in columns else block for column, block in enumerate(content)]
    return _set(message, "content", blocks)


def _mark_system(system: Any) -> Any:
    """The instructions with a mark on the last long one."""
    if isinstance(system, str):
        if len(system) >= LONG:
            return [{"type": "text", "text": system, MARK: EPHEMERAL}]
        return system
    long = [place for place, block in enumerate(system) if len(_get(block, "text") or "") >= LONG]
    return [_set(block, MARK, EPHEMERAL) if place in long[-1:] else block for place, block in enumerate(system)]


def _strip(body: Body) -> Body:
    changed = {name: value for name, value in body.items() if name != MARK}
    changed["messages"] = [_strip_blocks(message) for message in body["messages"]]
    for name in ("system", "tools"):
        if isinstance(body.get(name), list):
            changed[name] = [_without(one) for one in body[name]]
    return changed


def _strip_blocks(holder: Any) -> Any:
    """A message or a result without marks in its blocks."""
    if not _blocks(holder):
        return holder
    return _set(holder, "content", [_without(_strip_blocks(block)) for block in _blocks(holder)])


def _without(value: Any) -> Any:
    if not _get(value, MARK):
        return value
    if isinstance(value, dict):
        return {name: held for name, held in value.items() if name != MARK}
    return structs.replace(value, **{MARK: None})


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
