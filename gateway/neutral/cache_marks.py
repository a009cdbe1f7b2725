"""Cache marks by a project's policy: added to what is long and to the end, left as the caller set them, or taken out.

Marks mean something to a few vendors; who knows which targets have them decides whether to ask. A caller who marks
anything manages the cache: nothing is added then. What is marked depends on the beginning of the conversation and on
its end alone, so that the marks of one turn lie where the next one's prompt still begins the same.
"""

from msgspec import structs

from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements, Tool
from gateway.neutral.parts import CacheMark, File, Image, Message, Part, Text, ToolCall, ToolResult

AUTOMATIC = "automatic"
CLIENT = "client"
DISABLED = "disabled"
LONG = 4096  # characters, about the thousand tokens below which no vendor caches
LEAST_TURNS = 3  # from which on the end is marked: before, nothing of it is asked twice
LONG_TEXTS = 2  # beside the instructions and the end: four marks in all
MARKABLE = (Text, Image, File, ToolCall, ToolResult)
INSTRUCTIONS = ("system", "developer")
MARK = CacheMark()


def apply_policy(request: ChatRequest, policy: str) -> ChatRequest:
    """The request as `policy` (automatic, client, disabled) has it, for a target that knows cache marks.

    A native body stays; the options tell its protocol what to do with the marks in it.
    """
    if policy == AUTOMATIC and _is_small(request.requirements):
        return request
    change = {AUTOMATIC: add_marks, DISABLED: strip_marks}.get(policy)
    if change is None:
        return request
    options = structs.replace(request.options, cache_marks=policy)
    read = request.conversation
    return request.with_conversation(lambda: change(read()), options=options)


def add_marks(conversation: Conversation) -> Conversation:
    """Marks on the last long instruction, the last long texts and, from three turns on, the last part."""
    if is_marked(conversation):
        return conversation
    places = [
        (row, column) for row, message in enumerate(conversation.messages) for column in range(len(message.parts))
    ]
    instructions = [place for place in places if conversation.messages[place[0]].role in INSTRUCTIONS]
    spoken = [place for place in places if conversation.messages[place[0]].role not in INSTRUCTIONS]
    chosen = set([place for place in instructions if _is_long(_part(conversation, place))][-1:])
    chosen |= set([place for place in spoken if _is_long(_part(conversation, place))][-LONG_TEXTS:])
    if len({row for row, _ in spoken}) >= LEAST_TURNS:
        chosen |= set([place for place in spoken if _can_end(_part(conversation, place))][-1:])
    if chosen:
        return _with_marks(conversation, chosen)
    return conversation


def strip_marks(conversation: Conversation) -> Conversation:
    """Without any mark, on tools neither."""
    if not is_marked(conversation):
        return conversation
    tools = tuple(map(_unmarked, conversation.tools))
    messages = tuple(
        structs.replace(message, parts=tuple(map(_stripped, message.parts))) for message in conversation.messages
    )
    return structs.replace(conversation, messages=messages, tools=tools)


def is_marked(conversation: Conversation) -> bool:
    parts = [part for message in conversation.messages for part in message.parts]
    inner = [one for part in parts if isinstance(part, ToolResult) for one in part.parts]
    return any(getattr(one, "cache", None) is not None for one in (*conversation.tools, *parts, *inner))


def _is_small(needs: Requirements) -> bool:
    """Whether it has too few turns and too little text to be marked anywhere, as most have."""
    return needs.messages < LEAST_TURNS and needs.prompt_bytes < LONG


def _part(conversation: Conversation, place: tuple[int, int]) -> Part:
    return conversation.messages[place[0]].parts[place[1]]


def _is_long(part: Part) -> bool:
    return isinstance(part, Text) and len(part.text) >= LONG


def _can_end(part: Part) -> bool:
    """Blank text and reasoning bear no mark."""
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
