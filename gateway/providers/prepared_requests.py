"""A chat request as one target's format can express it, and what its answer needs to be the caller's again."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest, Conversation, CustomTool, FunctionTool, Tool, VendorTool
from gateway.neutral.message_order import in_order
from gateway.neutral.parts import NAME_LENGTH, NAMED, Message, Part, PartMembers, ToolResult, VendorPart
from gateway.providers import custom_tools
from gateway.providers.function_parameters import with_complete_schemas
from gateway.providers.tool_names import NameWriter, with_plain_names
from gateway.providers.unsupported_parts import INSTRUCTIONS

# Parts and tools that only another vendor understands: what a conversation has in their place.

NOTHING_LEFT = "This provider can read no message of the conversation, only other providers can: {}."
BESIDE = "Members of parts that this provider has no field for were left out: {}."
LEFT_OUT = "Parts of earlier turns that only another provider reads were left out: {}."


class ReadableParts(NamedTuple):
    """The parts that a target reads: of its `dialect`, and of these only the `kinds` (None: all)."""

    dialect: str
    kinds: frozenset[str] | None = None

    def reads(self, part: VendorPart) -> bool:
        return part.vendor == self.dialect and (self.kinds is None or part.kind in self.kinds)


def readable(conversation: Conversation, reader: ReadableParts, warnings: list[str]) -> Conversation:
    """Return the conversation for a target: parts and tools of other vendors are replaced by their counterparts, and
    parts without one are left out with a warning. NotSupported if nothing is left."""
    lost: dict[str, None] = {}
    dialect = reader.dialect
    messages = tuple(
        split for message in conversation.messages for split in _split(_read_message(message, reader, lost))
    )
    if lost:
        if all(message.role in INSTRUCTIONS for message in messages):
            raise NotSupported(NOTHING_LEFT.format(", ".join(lost)), param="messages")
        warnings.append(LEFT_OUT.format(", ".join(lost)))
    beside = {name: None for message in conversation.messages for name in _beside(message, dialect)}
    if beside:
        warnings.append(BESIDE.format(_listed(beside)))
    messages = in_order(messages)
    tools = tuple(read for tool in conversation.tools for read in _read_tool(tool, dialect))
    return replace(conversation, messages=messages, tools=tools)


def _listed(names: dict[str, None]) -> str:
    """Return the first names, since a caller may write many."""
    return ", ".join(list(names)[:NAMED])


def _beside(message: Message, dialect: str) -> Iterator[str]:
    """Yield the names of members beside the parts that only another vendor reads."""
    for part in message.parts:
        members: PartMembers | None = getattr(part, "beside", None)
        if members is not None and members.vendor != dialect:
            yield from (name[:NAME_LENGTH] for name in members.body)


def _read_message(message: Message, reader: ReadableParts, lost: dict[str, None]) -> Message:
    if not any(isinstance(part, VendorPart | ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(read for part in message.parts for read in _read_part(part, reader, lost)))


def _read_part(part: Part, reader: ReadableParts, lost: dict[str, None]) -> tuple[Part, ...]:
    if isinstance(part, VendorPart) and not reader.reads(part):
        if not part.instead and not part.silent:
            lost[part.kind] = None
        return part.instead
    if isinstance(part, ToolResult) and not part.executed:
        inner = tuple(read for each in part.parts for read in _read_part(each, reader, lost))
        return (replace(part, parts=inner),)
    return (part,)


def _split(message: Message) -> Iterator[Message]:
    """Yield an assistant message in pieces: results among its parts are messages of their own."""
    if message.role != "assistant" or not any(
        isinstance(part, ToolResult) and not part.executed for part in message.parts
    ):
        if message.parts:
            yield message
        return
    run: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult) and not part.executed:
            if run:
                yield replace(message, parts=tuple(run))
                run = []
            yield Message("tool", (part,))
        else:
            run.append(part)
    if run:
        yield replace(message, parts=tuple(run))


def _read_tool(tool: Tool, dialect: str) -> tuple[Tool, ...]:
    if isinstance(tool, VendorTool) and tool.vendor != dialect and tool.instead:
        return tool.instead
    return (tool,)


class PreparedRequest(NamedTuple):
    """The request; `renamed` has the caller's names of tools by their replacements, `custom` the (caller's) names of
    free-text tools that became functions."""

    request: ChatRequest
    renamed: dict[str, str]
    custom: frozenset[str]


NEWER_CHOICE = "tool_choice: the type {} is unknown to this provider and was left out."
REPEATED = "tools: of several tools with one name, the first is used."
NEWER_MEMBERS = "tools: members that are unknown to this provider were left out: {}."
NOTHING: frozenset[str] = frozenset()
NO_NAMES: dict[str, str] = {}


def prepare(
    request: ChatRequest,
    dialect: str,
    names: NameWriter,
    warnings: list[str],
    *,
    free_text: bool = False,
    kinds: frozenset[str] | None = None,
) -> PreparedRequest:
    """Return the request for a target of `dialect`: without parts and tools of other vendors, with tool names that the
    format takes and complete parameters, and, unless it has free-text tools itself, with functions in their place. The
    target reads only the `kinds` of its dialect's own parts (None: all)."""
    if request.plain:
        return PreparedRequest(request, NO_NAMES, NOTHING)
    conversation = request.conversation()
    own_parts = request.requirements.own_parts or request.requirements.own_members
    if not conversation.tools and not own_parts and "tool" not in [message.role for message in conversation.messages]:
        return PreparedRequest(request, NO_NAMES, NOTHING)
    changed = conversation
    if own_parts and (own_parts != dialect or kinds is not None):
        changed = readable(changed, ReadableParts(dialect, kinds), warnings)
    changed = _without_repeated(_without_newer(changed, dialect, warnings, free_text=free_text), warnings)
    custom = NOTHING
    if not free_text:
        changed, custom = custom_tools.with_functions(changed)
    changed, renamed = with_plain_names(with_complete_schemas(changed), names)
    if changed is not conversation:
        request = request.with_conversation(lambda: changed)
    return PreparedRequest(request, renamed, custom)


def _without_repeated(conversation: Conversation, warnings: list[str]) -> Conversation:
    """Return the conversation with the first tool of each name, since most vendors refuse a second one."""
    names = [tool.name for tool in conversation.tools if isinstance(tool, FunctionTool | CustomTool)]
    if len(set(names)) == len(names):
        return conversation
    seen: set[str] = set()
    kept: list[Tool] = []
    for tool in conversation.tools:
        if isinstance(tool, FunctionTool | CustomTool):
            if tool.name in seen:
                continue
            seen.add(tool.name)
        kept.append(tool)
    warnings.append(REPEATED)
    return replace(conversation, tools=tuple(kept))


def _without_newer(conversation: Conversation, dialect: str, warnings: list[str], *, free_text: bool) -> Conversation:
    """Return the conversation without a choice of a type that only another vendor may know. Adds a warning for it, and
    for such members of tools."""
    kinds = (FunctionTool, CustomTool)
    newer = [tool for tool in conversation.tools if isinstance(tool, kinds) and tool.newer]
    names = {
        name: None
        for tool in newer
        if tool.vendor != dialect or not (free_text or isinstance(tool, FunctionTool))
        for name in tool.newer
    }
    if names:
        warnings.append(NEWER_MEMBERS.format(_listed(names)))
    choice = conversation.tool_choice
    if choice is None or choice.vendor in ("", dialect):
        return conversation
    warnings.append(NEWER_CHOICE.format(choice.name))
    return replace(conversation, tool_choice=None)
