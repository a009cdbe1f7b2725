"""Renames functions with names that a format refuses, and restores the caller's names in the answer.

The replacement depends only on the caller's name, so it is the same for past calls, for tools and for retries.
"""

import binascii
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from gateway.neutral.chat import ChatResult, Choice, FunctionTool, Tool
from gateway.neutral.events import Batch, ToolCallDelta
from gateway.neutral.parts import ToolCall

LENGTH = 64
SUM_LENGTH = 9  # "_" and eight hex digits keep names distinct that differ only in a replaced or truncated letter
ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")


def plain_name(name: str) -> str:
    """Return `name` if it consists of letters, digits, `_`, `.` and `-`, begins with a letter or `_` and has at most 64
    characters; otherwise a similar valid name."""
    if ALLOWED.fullmatch(name):
        return name
    clean = INVALID_CHARACTER.sub("_", name)
    if not clean[:1].isalpha():
        clean = f"_{clean}"
    return f"{clean[: LENGTH - SUM_LENGTH]}_{binascii.crc32(name.encode(errors='replace')):08x}"


def renamed(tools: Iterable[Tool]) -> dict[str, str]:
    """Return the caller's function names by their replacements; {} when all are valid."""
    names = (tool.name for tool in tools if isinstance(tool, FunctionTool))
    return {plain: name for name in names if (plain := plain_name(name)) != name}


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
