"""What a conversation says that a format has no word for: said as text where text can say it, else told the caller."""

from msgspec.structs import replace

from gateway.neutral.chat import ReasoningOptions
from gateway.neutral.parts import File, Message, Part, Text, ToolResult

Messages = tuple[Message, ...]

NO_CITATIONS = "Citations of documents have no counterpart at this provider and were left out."
NO_NAMES = "Names of participants have no counterpart at this provider and were left out."
USUAL_MODES = ("", "standard")


def spell_out(messages: Messages, warnings: list[str]) -> Messages:
    """The messages with each file's context as text ahead of it, for formats whose files have none; `warnings` tells
    that nothing will be cited."""
    files = [part for message in messages for part in _flat(message.parts) if isinstance(part, File)]
    if any(file.citations for file in files):
        warnings.append(NO_CITATIONS)
    if not any(file.context for file in files):
        return messages
    return tuple(replace(message, parts=_spelled(message.parts)) for message in messages)


def warn_of_names(messages: Messages, warnings: list[str]) -> None:
    """For formats whose messages have no name."""
    if any(message.name for message in messages):
        warnings.append(NO_NAMES)


def warn_of_mode(ask: ReasoningOptions, warnings: list[str]) -> None:
    """For formats whose reasoning has no mode."""
    if ask.mode not in USUAL_MODES:
        warnings.append(f"The reasoning mode {ask.mode} has no counterpart at this provider and was left out.")


def _flat(parts: tuple[Part, ...]) -> list[Part]:
    """The parts, those of results among them."""
    return [inner for part in parts for inner in (part.parts if isinstance(part, ToolResult) else (part,))]


def _spelled(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    written: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResult):
            written.append(replace(part, parts=_spelled(part.parts)))
            continue
        if isinstance(part, File) and part.context:
            written.append(Text("\n".join(filter(None, (part.title, part.context)))))
        written.append(part)
    return tuple(written)
