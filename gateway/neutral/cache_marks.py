"""Cache marks under a project's policy: added to long parts and to the end, kept as the caller set them, or removed.

Only a few vendors support cache marks; the calling code knows which targets do. A caller that sets any mark manages
the cache, and no mark is added. The marks depend only on the beginning of the conversation and on its end, so that the
marks of one turn are at positions where the next turn's prompt is still identical.
"""

from msgspec import structs

from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements, Tool
from gateway.neutral.parts import CacheMark, File, Image, Message, Part, Text, ToolCall, ToolResult

AUTOMATIC = "automatic"
CLIENT = "client"
DISABLED = "disabled"
MIN_CACHED_CHARACTERS = 4096  # characters, about the thousand tokens below which no vendor caches
# Number of messages from which the end is marked: a shorter conversation has no prefix that was sent before
MIN_TURNS = 3
LONG_TEXTS = 2  # at most, besides the instructions and the end: vendors allow four marks
MARKABLE = (Text, Image, File, ToolCall, ToolResult)
INSTRUCTIONS = ("system", "developer")
MARK = CacheMark()


def apply_policy(request: ChatRequest, policy: str) -> ChatRequest:
    """Return the request with the cache marks of `policy` (automatic, client, disabled), for a target that supports
    them.

    A native body is kept; the options tell its protocol how to treat the marks in it.
    """
    if policy == AUTOMATIC and _is_small(request.requirements):
        return request
    change = {AUTOMATIC: add_marks, DISABLED: strip_marks}.get(policy)
    if change is None:
        return request
    options = structs.replace(request.options, cache_marks=policy)
    read = request.conversation

    def decode() -> Conversation:
        return change(read())

    return request.with_conversation(decode, options=options)


def add_marks(conversation: Conversation) -> Conversation:
    """Mark the last long instruction, the last long texts and, from three turns on, the last part."""
    if is_marked(conversation):
        return conversation
    places = [
        (row, column) for row, message in enumerate(conversation.messages) for column in range(len(message.parts))
    ]
    instructions = [place for place in places if conversation.messages[place[0]].role in INSTRUCTIONS]
    spoken = [place for place in places if conversation.messages[place[0]].role not in INSTRUCTIONS]
    chosen = set([place for place in instructions if _is_long(_part(conversation, place))][-1:])
    chosen |= set([place for place in spoken if _is_long(_part(conversation, place))][-LONG_TEXTS:])
    if len({row for row, _ in spoken}) >= MIN_TURNS:
        chosen |= set([place for place in spoken if _can_end(_part(conversation, place))][-1:])
    if chosen:
        return _with_marks(conversation, chosen)
    return conversation


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


def _is_small(requirements: Requirements) -> bool:
    """Return whether the request has too few turns and too little text for any mark, as most requests have."""
    return requirements.messages < MIN_TURNS and requirements.prompt_bytes < MIN_CACHED_CHARACTERS


def _part(conversation: Conversation, place: tuple[int, int]) -> Part:
    return conversation.messages[place[0]].parts[place[1]]


def _is_long(part: Part) -> bool:
    return isinstance(part, Text) and len(part.text) >= MIN_CACHED_CHARACTERS


def _can_end(part: Part) -> bool:
    """Return whether a part can carry the mark at the end; blank text and reasoning cannot."""
    return isinstance(part, MARKABLE) and not (isinstance(part, Text) and not part.text.strip())


def _with_marks(conversation: Conversation, chosen: set[tuple[int, int]]) -> Conversation:
    messages: list[Message] = []
    for row, message in enumerate(conversation.messages):
        columns = {column for place, column in chosen if place == row}
        parts = tuple(
            structs.replace(part, cache=MARK) if column in columns and isinstance(part, MARKABLE) else part
            for column, part in enumerate(message.parts)
        )
        messages.append(structs.replace(message, parts=parts) if columns else message)
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
