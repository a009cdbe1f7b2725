"""Differences between the prompts of two requests: the additions of the later one, and the first place that differs.

Providers cache a prompt from its beginning (tools, instructions, then messages), so everything after the first
difference is read again at the full price. All comparisons are linear in the length of the prompts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from gateway.runtime.plurals import many
from gateway.surfaces.console.shown_conversation import (
    MAX_NAME,
    SAID,
    SYSTEM,
    TURNS,
    list_tools,
    load_request,
    name_tool,
)
from gateway.surfaces.console.shown_parts import (
    Json,
    ShownMessage,
    as_dict,
    as_list,
    as_text,
    read_message,
    write_short,
)

BYTES_PER_TOKEN = 4
MAX_UNITS = 20_000  # tools and parts of messages that are compared
MAX_CHANGES = 20  # that are listed
MAX_ADDED = 40  # messages that are shown as added
MAX_EXCERPT = 600  # characters of a changed text
AROUND = 80  # characters before and after the change
MARK_DEPTH = 4  # levels of a message at which cache marks are left out
MARKS = ("cache_control", "cachePoint", "providerOptions")
SPOKEN = ("content", "parts", "role", *MARKS)


class PromptUnit(NamedTuple):
    """A part of a prompt that a provider reads in one piece. `group` is tool, system or message; `place` its number in
    the group, for a message that of the message."""

    group: str
    place: int
    name: str
    text: str


class PromptChange(Struct, frozen=True):
    """A difference at a place of the prompt. `kind` is changed, added, removed or moved; the texts are excerpts."""

    kind: str
    place: str
    before: str = ""
    after: str = ""


class PromptDifference(Struct, frozen=True):
    """The differences of a prompt to an earlier one. `kept_tokens` are at the beginning of both, `lost_tokens` follow
    in the earlier one after the `first` difference; both are estimates. `added` are the messages after all of the
    earlier prompt, `more_added` how many of them are not shown. `settings` are parameters with their values before and
    now."""

    changes: list[PromptChange]
    kept_tokens: int
    lost_tokens: int
    first: str
    added: list[ShownMessage]
    more_added: int
    settings: list[tuple[str, str, str]]

    @property
    def is_continued(self) -> bool:
        """Whether all of the earlier prompt is the beginning of this one."""
        return not self.lost_tokens and not self.changes


def compare_payloads(before: bytes, after: bytes) -> PromptDifference | None:
    """Return the differences of two requests; None unless both are conversations."""
    earlier, later = (as_dict(load_request(sent)[0]) for sent in (before, after))
    return compare_prompts(earlier, later)


def compare_prompts(earlier: Json, later: Json) -> PromptDifference | None:
    """Return the differences of two bodies; None unless both have messages."""
    old, new = (list(islice(list_units(body), MAX_UNITS)) for body in (earlier, later))
    if not (old and new) or old[-1].group != "message" or new[-1].group != "message":
        return None
    kept = count_common(old, new)
    lost = sum(len(unit.text) for unit in old[kept:])
    added: list[ShownMessage] = []
    if kept == len(old):
        added = _added_messages(later, new, kept)
    return PromptDifference(
        list(islice(_list_changes(old, new, kept), MAX_CHANGES)),
        sum(len(unit.text) for unit in old[:kept]) // BYTES_PER_TOKEN,
        lost // BYTES_PER_TOKEN,
        _describe(new[kept] if kept < len(new) else old[kept]) if kept < len(old) else "",
        added[:MAX_ADDED],
        max(0, len(added) - MAX_ADDED),
        list(islice(_changed_settings(earlier, later), MAX_CHANGES)),
    )


def count_common(old: Sequence[PromptUnit], new: Sequence[PromptUnit]) -> int:
    """Return how many units both prompts begin with."""
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        if one.group != other.group or one.text != other.text:
            return number
    return min(len(old), len(new))


# The units of a prompt, in the order in which providers cache them.


def list_units(body: Json) -> Iterator[PromptUnit]:
    """Yield the tools, instructions and parts of messages of a request."""
    for number, (tool, _) in enumerate(list_tools(body)):
        yield PromptUnit("tool", number, name_tool(tool), _write(tool))
    for name in SYSTEM:
        content = as_dict(body.get(name)).get("parts", body.get(name))
        for number, text in enumerate(_split(content)):
            yield PromptUnit("system", number, "", text)
    for number, item in enumerate(_list_items(body)):
        yield from _units_of(number, item)


def _list_items(body: Json) -> Iterator[Any]:
    """Yield the messages of a request, objects or texts."""
    for name in TURNS:
        content = body.get(name)
        yield from [content] if isinstance(content, str) else as_list(content)
    if isinstance(body.get("message"), str):
        yield body["message"]


def _units_of(number: int, item: Any) -> Iterator[PromptUnit]:
    if isinstance(item, str):
        yield PromptUnit("message", number, "user", item)
        return
    message = as_dict(item)
    role = as_text(message.get("role")) or as_text(message.get("type")) or "user"
    content = message.get("content", message.get("parts"))
    for text in _split(content):
        yield PromptUnit("message", number, role, text)
    rest = {name: value for name, value in message.items() if name not in SPOKEN and value}
    if rest:
        yield PromptUnit("message", number, role, _write(rest))


def _split(content: Any) -> Iterator[str]:
    """Yield the parts of a content as text. A text alone equals a list with this text, as providers read it."""
    if isinstance(content, str):
        yield content
        return
    for item in [content] if isinstance(content, dict) else as_list(content):
        part = as_dict(item)
        if isinstance(item, str):
            yield item
        elif isinstance(part.get("text"), str) and len(part.keys() - {"type", *MARKS}) == 1:
            yield part["text"]
        else:
            yield _write(item)


def _write(value: Any) -> str:
    try:
        return orjson.dumps(_unmarked(value, MARK_DEPTH)).decode()
    except orjson.JSONEncodeError:
        return ""


def _unmarked(value: Any, depth: int) -> Any:
    """Return a value without cache marks, which move with every turn."""
    if not depth:
        return value
    if isinstance(value, dict):
        return {name: _unmarked(one, depth - 1) for name, one in value.items() if name not in MARKS}
    if isinstance(value, list):
        return [_unmarked(one, depth - 1) for one in value]
    return value


# The list of changes.


def _list_changes(old: Sequence[PromptUnit], new: Sequence[PromptUnit], kept: int) -> Iterator[PromptChange]:
    if kept == len(old) and all(unit.group == "message" for unit in new[kept:]):
        return
    yield from _tool_changes(_of(old, "tool"), _of(new, "tool"))
    yield from _text_changes(_of(old, "system"), _of(new, "system"))
    earlier, later = _of(old, "message"), _of(new, "message")
    common = count_common(earlier, later)
    if common == len(earlier):
        return
    if common == len(later):
        yield PromptChange("removed", f"{many(len(earlier) - common, 'part')} of messages at the end")
        return
    one, other = earlier[common], later[common]
    yield PromptChange("changed", _describe(other), *_excerpts(one.text, other.text))
    if len(later) < len(earlier):
        yield PromptChange("removed", f"{many(len(earlier) - len(later), 'part')} of earlier messages")


def _of(units: Sequence[PromptUnit], group: str) -> list[PromptUnit]:
    return [unit for unit in units if unit.group == group]


def _tool_changes(old: Sequence[PromptUnit], new: Sequence[PromptUnit]) -> Iterator[PromptChange]:
    earlier, later = ({unit.name: unit.text for unit in units} for units in (old, new))
    for name, text in later.items():
        if name not in earlier:
            yield PromptChange("added", f"tool {name}")
        elif earlier[name] != text:
            yield PromptChange("changed", f"tool {name}", *_excerpts(earlier[name], text))
    for name in earlier:
        if name not in later:
            yield PromptChange("removed", f"tool {name}")
    if earlier == later and [unit.text for unit in old] != [unit.text for unit in new]:
        yield PromptChange("moved", "tools: the same ones in another order")


def _text_changes(old: Sequence[PromptUnit], new: Sequence[PromptUnit]) -> Iterator[PromptChange]:
    for number, (one, other) in enumerate(zip_longest(old, new), 1):
        place = f"part {number} of the instructions"
        if one is None:
            yield PromptChange("added", place, "", other.text[:MAX_EXCERPT])
        elif other is None:
            yield PromptChange("removed", place, one.text[:MAX_EXCERPT])
        elif one.text != other.text:
            yield PromptChange("changed", place, *_excerpts(one.text, other.text))


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Return the parts of two texts that differ, each with some characters around it."""
    start = _common_length(before, after)
    limit = min(len(before), len(after)) - start
    same = _common_length(before[len(before) - limit :][::-1], after[len(after) - limit :][::-1])
    return _cut(before, start, same), _cut(after, start, same)


def _common_length(text: str, other: str) -> int:
    """Return how many characters two texts begin with. Each step compares half of what the step before did."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, start: int, same: int) -> str:
    begin = max(0, start - AROUND)
    end = min(len(text), len(text) - same + AROUND)
    shown = text[begin : min(end, begin + MAX_EXCERPT)]
    return f"{'…' if begin else ''}{shown}{'…' if begin + len(shown) < len(text) else ''}"


def _describe(unit: PromptUnit) -> str:
    if unit.group == "tool":
        return f"tool {unit.name}"
    if unit.group == "system":
        return f"part {unit.place + 1} of the instructions"
    return f"message {unit.place + 1} ({unit.name[:MAX_NAME]})"


def _added_messages(body: Json, new: Sequence[PromptUnit], kept: int) -> list[ShownMessage]:
    """Return the messages of a prompt from its unit `kept` on; one that an earlier part belongs to is left out."""
    if kept >= len(new):
        return []
    first = new[kept].place + (kept > 0 and new[kept - 1].group == "message" and new[kept - 1].place == new[kept].place)
    items = islice(_list_items(body), first, None)
    messages = [read_message(item if isinstance(item, dict) else {"content": item}) for item in items]
    return [message for message in messages if message.parts]


def _changed_settings(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    names = [*later, *(name for name in earlier if name not in later)]
    for name in names:
        if name not in SAID and earlier.get(name) != later.get(name):
            yield name[:MAX_NAME], _setting(earlier, name), _setting(later, name)


def _setting(body: Mapping[str, Any], name: str) -> str:
    return write_short(body[name]) if name in body else ""
