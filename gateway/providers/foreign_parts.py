"""Parts and tools that only another vendor understands: what a conversation has in their place."""

from collections.abc import Iterator

from msgspec.structs import replace

from gateway.errors import NotSupported
from gateway.neutral.chat import Conversation, Tool, VendorTool
from gateway.neutral.message_order import in_order
from gateway.neutral.parts import Message, Part, ToolResult, VendorPart
from gateway.providers.unsupported_parts import INSTRUCTIONS

NOTHING_LEFT = "This provider can read no message of the conversation, only other providers can: {}."
LEFT_OUT = "Parts of earlier turns that only another provider reads were left out: {}."


def readable(conversation: Conversation, dialect: str, warnings: list[str]) -> Conversation:
    """Return the conversation for a target of `dialect`: parts and tools of other vendors are replaced by their
    counterparts, and parts without one are left out with a warning. NotSupported if nothing is left."""
    lost: dict[str, None] = {}
    messages = tuple(
        split for message in conversation.messages for split in _split(_read_message(message, dialect, lost))
    )
    if lost:
        if all(message.role in INSTRUCTIONS for message in messages):
            raise NotSupported(NOTHING_LEFT.format(", ".join(lost)), param="messages")
        warnings.append(LEFT_OUT.format(", ".join(lost)))
    messages = in_order(messages)
    tools = tuple(read for tool in conversation.tools for read in _read_tool(tool, dialect))
    return replace(conversation, messages=messages, tools=tools)


def _read_message(message: Message, dialect: str, lost: dict[str, None]) -> Message:
    if not any(isinstance(part, VendorPart | ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(read for part in message.parts for read in _read_part(part, dialect, lost)))


def _read_part(part: Part, dialect: str, lost: dict[str, None]) -> tuple[Part, ...]:
    if isinstance(part, VendorPart) and part.vendor != dialect:
        if not part.instead and not part.silent:
            lost[part.kind] = None
        return part.instead
    if isinstance(part, ToolResult) and not part.executed:
        inner = tuple(read for each in part.parts for read in _read_part(each, dialect, lost))
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
