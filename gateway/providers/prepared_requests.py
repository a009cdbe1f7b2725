"""A chat request as one target's format can express it, and what its answer needs to be the caller's again."""

from typing import NamedTuple

from msgspec.structs import replace

from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool
from gateway.providers import custom_tools
from gateway.providers.foreign_parts import readable
from gateway.providers.function_parameters import with_complete_schemas
from gateway.providers.tool_names import NameWriter, with_plain_names


class PreparedRequest(NamedTuple):
    """The request; `renamed` has the caller's names of tools by their replacements, `custom` the (caller's) names of
    free-text tools that became functions."""

    request: ChatRequest
    renamed: dict[str, str]
    custom: frozenset[str]


NEWER_CHOICE = "tool_choice: the type {} is unknown to this provider and was left out."
NEWER_MEMBERS = "tools: members that are unknown to this provider were left out: {}."
NOTHING: frozenset[str] = frozenset()
NO_NAMES: dict[str, str] = {}


def prepare(
    request: ChatRequest, dialect: str, names: NameWriter, warnings: list[str], *, free_text: bool = False
) -> PreparedRequest:
    """Return the request for a target of `dialect`: without parts and tools of other vendors, with tool names that the
    format takes and complete parameters, and, unless it has free-text tools itself, with functions in their place."""
    if request.plain:
        return PreparedRequest(request, NO_NAMES, NOTHING)
    conversation = request.conversation()
    own_parts = request.requirements.own_parts
    if not conversation.tools and not own_parts and "tool" not in [message.role for message in conversation.messages]:
        return PreparedRequest(request, NO_NAMES, NOTHING)
    changed = conversation
    if own_parts and own_parts != dialect:
        changed = readable(changed, dialect, warnings)
    changed = _without_newer(changed, dialect, warnings)
    custom = NOTHING
    if not free_text:
        changed, custom = custom_tools.with_functions(changed)
    changed, renamed = with_plain_names(with_complete_schemas(changed), names)
    if changed is not conversation:
        request = request.with_conversation(lambda: changed)
    return PreparedRequest(request, renamed, custom)


def _without_newer(conversation: Conversation, dialect: str, warnings: list[str]) -> Conversation:
    """Return the conversation without a choice of a type that only another vendor may know. Adds a warning for it, and
    for such members of tools."""
    names = {name: None for tool in conversation.tools if isinstance(tool, FunctionTool) for name in tool.newer}
    if names:
        warnings.append(NEWER_MEMBERS.format(", ".join(names)))
    choice = conversation.tool_choice
    if choice is None or choice.vendor in ("", dialect):
        return conversation
    warnings.append(NEWER_CHOICE.format(choice.name))
    return replace(conversation, tool_choice=None)
