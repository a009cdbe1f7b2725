"""Handles parts of a conversation that a format has no field for: they are written as text where possible, otherwise
dropped with a warning."""

from msgspec.structs import replace

from gateway.neutral.chat import ReasoningOptions
from gateway.neutral.parts import File, Message, Part, Text, ToolResult

Messages = tuple[Message, ...]

NO_CITATIONS = "Citations of documents have no counterpart at this provider and were left out."
NO_NAMES = "Names of participants have no counterpart at this provider and were left out."
STANDARD_MODES = ("", "standard")


def spell_out(messages: Messages, warnings: list[str]) -> Messages:
    """Return the messages with each file's context as text before it, for formats without a context field. Adds a
    warning when citations were requested."""
    files = _files(messages)
    if not files:
        return messages
    if any(file.citations for file in files):
        warnings.append(NO_CITATIONS)
    if not any(file.context for file in files):
        return messages
    return tuple(replace(message, parts=_spelled(message.parts)) for message in messages)


def warn_of_names(messages: Messages, warnings: list[str]) -> None:
    """Add a warning when a message has a name, for formats without names."""
    for message in messages:
        if message.name:
            warnings.append(NO_NAMES)
            return


def warn_of_mode(reasoning: ReasoningOptions, warnings: list[str]) -> None:
    """Add a warning for a reasoning mode, for formats without modes."""
    if reasoning.mode not in STANDARD_MODES:
        warnings.append(f"The reasoning mode {reasoning.mode} has no counterpart at this provider and was left out.")


def _files(messages: Messages) -> list[File]:
    """Return all files, including those in tool results."""
    files: list[File] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, File):
                files.append(part)
            elif isinstance(part, ToolResult):
                files += [inner for inner in part.parts if isinstance(inner, File)]
    return files


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
