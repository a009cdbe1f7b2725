"""Renames functions with names that a format refuses, and restores the caller's names in the answer.

The replacement depends only on the caller's name, so it is the same for past calls, for tools and for retries.
"""

import binascii
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from gateway.neutral.chat import ChatResult, Choice, Conversation, CustomTool, FunctionTool, Tool
from gateway.neutral.events import Batch, ToolCallDelta
from gateway.neutral.parts import Message, Part, ToolCall, ToolResult

SUM_LENGTH = 9  # "_" and eight hex digits keep names distinct that differ only in a replaced or truncated letter


class NameRule(Struct, frozen=True):
    """The names that a format takes: `letters` (the inside of a character class), at most `length` of them, and the
    first one in `first`."""

    letters: str
    length: int
    first: str = ""

    def pattern(self) -> re.Pattern[str]:
        first = self.first or self.letters
        return re.compile(f"[{first}][{self.letters}]{{0,{self.length - 1}}}")


class NameWriter:
    """Writes names by a rule."""

    def __init__(self, rule: NameRule) -> None:
        self._rule = rule
        self._allowed = rule.pattern()
        self._invalid = re.compile(f"[^{rule.letters}]")

    def takes(self, name: str) -> bool:
        return self._allowed.fullmatch(name) is not None

    def plain(self, name: str) -> str:
        """Return `name` if the rule allows it, otherwise a similar valid name."""
        if self._allowed.fullmatch(name):
            return name
        clean = self._invalid.sub("_", name)
        if self._rule.first and not re.match(f"[{self._rule.first}]", clean):
            clean = f"_{clean}"
        return f"{clean[: self._rule.length - SUM_LENGTH]}_{binascii.crc32(name.encode(errors='replace')):08x}"


# Error messages of the services: OpenAI "^[a-zA-Z0-9_-]+$" with at most 64 characters (API reference, function.name);
# Anthropic "^[a-zA-Z0-9_-]{1,128}$"; Bedrock "[a-zA-Z0-9_-]+" up to 64 (API reference, ToolSpecification.name); Google
# "must start with a letter or an underscore … dots and dashes, with a maximum length of 64" (older models); Cohere
# letters, digits and underscores, and no digit first.
OPENAI = NameWriter(NameRule("A-Za-z0-9_-", 64))
ANTHROPIC = NameWriter(NameRule("A-Za-z0-9_-", 128))
BEDROCK = NameWriter(NameRule("A-Za-z0-9_-", 64))
GOOGLE = NameWriter(NameRule("A-Za-z0-9_.-", 64, "A-Za-z_"))
COHERE = NameWriter(NameRule("A-Za-z0-9_", 64, "A-Za-z_"))


def with_plain_names(conversation: Conversation, writer: NameWriter) -> tuple[Conversation, dict[str, str]]:
    """Return the conversation with valid names in tools, past calls, results and choice, and the caller's names of the
    tools by their replacements; the same conversation and {} when all are valid."""
    names = {tool.name for tool in conversation.tools if isinstance(tool, FunctionTool | CustomTool)}
    names |= {part.name for message in conversation.messages for part in _calls_of(message)}
    if all(map(writer.takes, names)):
        return conversation, {}
    plain = {name: writer.plain(name) for name in names if not writer.takes(name)}
    choice = conversation.tool_choice
    if choice is not None and choice.name in plain:
        choice = structs.replace(choice, name=plain[choice.name])
    changed = structs.replace(
        conversation,
        messages=tuple(_rename_message(message, plain) for message in conversation.messages),
        tools=tuple(_rename_tool(tool, plain) for tool in conversation.tools),
        tool_choice=choice,
    )
    return changed, {short: name for name, short in plain.items()}


def _calls_of(message: Message) -> Iterable[ToolCall]:
    if message.role != "assistant":
        return ()
    return [part for part in message.parts if isinstance(part, ToolCall) and not part.executed]


def _rename_message(message: Message, plain: Mapping[str, str]) -> Message:
    if message.role not in ("assistant", "tool"):
        return message
    return structs.replace(message, parts=tuple(_rename_part(part, plain) for part in message.parts))


def _rename_part(part: Part, plain: Mapping[str, str]) -> Part:
    if isinstance(part, ToolCall | ToolResult) and not part.executed and part.name in plain:
        return structs.replace(part, name=plain[part.name])
    return part


def _rename_tool(tool: Tool, plain: Mapping[str, str]) -> Tool:
    if isinstance(tool, FunctionTool | CustomTool) and tool.name in plain:
        return structs.replace(tool, name=plain[tool.name])
    return tool


def restore_result(result: ChatResult, names: Mapping[str, str]) -> ChatResult:
    """Return the result with the caller's names in its calls."""
    return dataclasses.replace(result, choices=tuple(_restore_choice(choice, names) for choice in result.choices))


def restore_batches(batches: Iterator[Batch], names: Mapping[str, str]) -> Iterator[Batch]:
    """Yield the batches with the caller's names in their calls."""
    for batch in batches:
        for event in batch:
            if isinstance(event, ToolCallDelta) and event.name:
                event.name = names.get(event.name, event.name)
        yield batch


def _restore_choice(choice: Choice, names: Mapping[str, str]) -> Choice:
    parts = tuple(
        structs.replace(part, name=names.get(part.name, part.name)) if isinstance(part, ToolCall) else part
        for part in choice.parts
    )
    return structs.replace(choice, parts=parts)
