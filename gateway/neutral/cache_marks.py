"""Cache marks under a project's policy: added to long parts and to the ends of turns, kept as the caller set them, or
removed.

Only a few vendors support cache marks; the calling code knows which targets do. The caller's own marks stay, and others
are added while the vendor allows more. Two marks follow the conversation: one at its end, and one where it ended a turn
before, so that the vendor finds what it wrote then, however much the last turn added. The marks are no part of the
prompt: its text is the same from turn to turn.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import structs

from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Tool
from gateway.neutral.parts import CacheMark, File, Image, Part, Text, ToolCall, ToolResult

AUTOMATIC = "automatic"
CLIENT = "client"
DISABLED = "disabled"
MARK_LIMIT = 4  # the number that every vendor with marks allows
MINIMUM_TOKENS = 1024  # of a prompt that a vendor caches, where the catalogue has no number
BYTES_PER_TOKEN = 3  # few texts have fewer; a mark in a prompt that is too short has no effect
LEAST_BYTES = 1024  # no vendor caches a shorter prompt
# Number of messages from which the end is marked: a shorter conversation has no prefix that was sent before
MIN_TURNS = 3
LONG_TEXTS = 2  # at most, besides the instructions and the ends
HOUR: Literal["1h"] = "1h"
SHORT: Literal["5m"] = "5m"
MARKABLE = (Text, Image, File, ToolCall, ToolResult)
INSTRUCTIONS = ("system", "developer")
Ttl = Literal["", "5m", "1h"]
Place = tuple[int, int]


class MarkableBlock(NamedTuple):
    """A part of a message: the bytes of its text (0: none, or not counted), whether it may have a mark, and the
    lifetimes of the marks that the caller gave it and what it contains."""

    size: int
    markable: bool
    marks: tuple[str, ...] = ()


Row = tuple[str, Sequence[MarkableBlock]]  # the role of a message, and its blocks


def apply_policy(request: ChatRequest, policy: str, minimum_tokens: int = 0, ttl: Ttl = "") -> ChatRequest:
    """Return the request with the cache marks of `policy` (automatic, client, disabled), for a target that supports
    them and caches prompts of at least `minimum_tokens`. `ttl` is the lifetime of added marks.

    A native body is kept; the options tell its protocol how to treat the marks in it.
    """
    needs = request.requirements
    if policy == AUTOMATIC:
        # Most requests have too few turns and too little text for any mark.
        if needs.messages < MIN_TURNS and needs.prompt_bytes < minimum_bytes(minimum_tokens):
            return request
    elif policy != DISABLED:
        return request
    options = structs.replace(request.options, cache_marks=policy, cache_ttl=ttl)
    read = request.conversation

    def decode() -> Conversation:
        if policy == DISABLED:
            return strip_marks(read())
        return add_marks(read(), needs.prompt_bytes, minimum_bytes(minimum_tokens), ttl)

    return request.with_conversation(decode, options=options)


def minimum_bytes(minimum_tokens: int) -> int:
    """Return the bytes of the shortest prompt that may have that many tokens."""
    return (minimum_tokens or MINIMUM_TOKENS) * BYTES_PER_TOKEN


def add_marks(conversation: Conversation, prompt_bytes: int, minimum: int, ttl: Ttl = "") -> Conversation:
    """Return the conversation with the marks of `choose_places` beside the caller's."""
    tools = [tool.cache.ttl or SHORT for tool in conversation.tools if isinstance(tool, FunctionTool) and tool.cache]
    rows = [(message.role, list(map(_block_of, message.parts))) for message in conversation.messages]
    places = choose_places(tools, rows, prompt_bytes, minimum, ttl)
    if places:
        return _with_marks(conversation, places)
    return conversation


def choose_places(
    tools: Sequence[str], rows: Sequence[Row], prompt_bytes: int, minimum: int, ttl: Ttl, at_end: str = ""
) -> dict[Place, Ttl]:
    """Return where marks are added, with their lifetimes: at most as many as the caller's marks leave of the limit.

    `tools` are the lifetimes of the caller's marks on tools, `at_end` that of a mark that the vendor itself puts at the
    end. In the order of their worth: the end of the conversation, its end before the last turn, the instructions, and
    the last long texts. `prompt_bytes` is the size of all text, that of the tools included; what has less than
    `minimum` is not cached.
    """
    own = [
        ((number, column), life)
        for number, (_, blocks) in enumerate(rows)
        for column, block in enumerate(blocks)
        for life in block.marks
    ]
    left = MARK_LIMIT - len(tools) - len(own) - bool(at_end)
    if left <= 0:
        return {}
    taken = {place for place, _ in own}
    chosen: list[Place] = []
    for place in _wanted(rows, prompt_bytes, minimum, at_end):
        if place not in taken and len(chosen) < left:
            taken.add(place)
            chosen.append(place)
    if not (own or tools or at_end):
        return dict.fromkeys(chosen, ttl)
    # A mark of an hour may come before one of five minutes, but not after one.
    hourly = [place for place, life in own if life == HOUR]
    last_hour = (len(rows), 0) if at_end == HOUR else max(hourly, default=(-1, 0))
    only_hours = {*tools, *(life for _, life in own), at_end} <= {HOUR, ""}
    return {place: HOUR if only_hours or place < last_hour else "" for place in chosen}


def _wanted(rows: Sequence[Row], prompt_bytes: int, minimum: int, at_end: str) -> Iterator[Place]:
    spoken = [number for number, (role, _) in enumerate(rows) if role not in INSTRUCTIONS]
    if len(spoken) >= MIN_TURNS:
        if not at_end:
            yield from _last(rows, spoken)
        if prompt_bytes >= minimum:
            yield from _last(rows, _before_last_turn(rows, spoken))
    yield from _of_instructions(rows, spoken, prompt_bytes, minimum)
    long_texts = (
        (number, column)
        for number in reversed(spoken)
        for column in range(len(rows[number][1]) - 1, -1, -1)
        if rows[number][1][column].size >= minimum
    )
    for _, place in zip(range(LONG_TEXTS), long_texts, strict=False):
        yield place


def _last(rows: Sequence[Row], numbers: Sequence[int]) -> Iterator[Place]:
    """Yield the place of the last block of these rows that may have a mark, if there is one."""
    for number in reversed(numbers):
        blocks = rows[number][1]
        for column in range(len(blocks) - 1, -1, -1):
            if blocks[column].markable:
                yield number, column
                return


def _before_last_turn(rows: Sequence[Row], spoken: Sequence[int]) -> Sequence[int]:
    """Return the messages before the model's last answer: all that the request of the turn before had."""
    end = len(spoken)
    while end and rows[spoken[end - 1]][0] != "assistant":
        end -= 1
    while end and rows[spoken[end - 1]][0] == "assistant":
        end -= 1
    return spoken[:end]


def _of_instructions(rows: Sequence[Row], spoken: Sequence[int], prompt_bytes: int, minimum: int) -> Iterator[Place]:
    """Yield the place of the last long instruction, or of the last one where they are long together with the tools."""
    numbers = [number for number, (role, _) in enumerate(rows) if role in INSTRUCTIONS]
    long_ones = [
        (number, column)
        for number in numbers
        for column, block in enumerate(rows[number][1])
        if block.markable and block.size >= minimum
    ]
    if long_ones:
        yield long_ones[-1]
        return
    begun = spoken[0] if spoken else len(rows)
    said = sum([block.size for number in spoken for block in rows[number][1]])
    if prompt_bytes - said >= minimum:
        yield from _last(rows, [number for number in numbers if number < begun])


def size_of(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def member(value: Any, name: str) -> Any:
    """Return a member of a native body's value, which is a dict or a struct, None without it."""
    if isinstance(value, dict):
        return value.get(name)
    config = getattr(value, "__struct_config__", None)
    if config is not None and config.tag_field == name:
        return config.tag
    return getattr(value, name, None)


def strip_marks(conversation: Conversation) -> Conversation:
    """Return the conversation without any mark, including those on tools."""
    if not is_marked(conversation):
        return conversation
    tools = tuple(map(_unmarked, conversation.tools))
    messages = tuple(
        structs.replace(message, parts=tuple(map(_stripped, message.parts))) for message in conversation.messages
    )
    return structs.replace(conversation, messages=messages, tools=tools)


def is_marked(conversation: Conversation) -> bool:
    parts = [part for message in conversation.messages for part in message.parts]
    result_parts = [inner for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    return any(getattr(item, "cache", None) is not None for item in (*conversation.tools, *parts, *result_parts))


def _block_of(part: Part) -> MarkableBlock:
    """Return what a part is for the choice. Blank text and reasoning bear no mark."""
    text = part.text if isinstance(part, Text) else ""
    markable = isinstance(part, MARKABLE) and not (isinstance(part, Text) and not text.strip())
    marked = (*part.parts, part) if isinstance(part, ToolResult) else (part,)
    marks = tuple([mark.ttl or SHORT for each in marked if (mark := getattr(each, "cache", None)) is not None])
    return MarkableBlock(size_of(text), markable, marks)


def _with_marks(conversation: Conversation, places: dict[Place, Ttl]) -> Conversation:
    messages = list(conversation.messages)
    for (row, column), ttl in places.items():
        parts = list(messages[row].parts)
        part = parts[column]
        if isinstance(part, MARKABLE):
            parts[column] = structs.replace(part, cache=CacheMark(ttl))
        messages[row] = structs.replace(messages[row], parts=tuple(parts))
    return structs.replace(conversation, messages=tuple(messages))


def _stripped(part: Part) -> Part:
    if isinstance(part, ToolResult):
        part = structs.replace(part, parts=tuple(map(_stripped, part.parts)))
    if isinstance(part, MARKABLE) and part.cache is not None:
        return structs.replace(part, cache=None)
    return part


def _unmarked(tool: Tool) -> Tool:
    if isinstance(tool, FunctionTool) and tool.cache is not None:
        return structs.replace(tool, cache=None)
    return tool
