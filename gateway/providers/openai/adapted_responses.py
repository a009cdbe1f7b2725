"""Bodies of callers who speak the Responses format themselves, with the changes that their neutral form had for a
model: an effort, parameters and tools that it lacks. All other members stay.

The values of a native body are shared with the parsed request, so every changed object is a copy.
"""

from typing import Any

from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.chat import Conversation, ReasoningOptions, WebSearch
from gateway.neutral.parameters import fields_of
from gateway.providers import quirks
from gateway.providers.openai.request import effort_of

Body = dict[str, Any]
SEARCH = "web_search"  # the beginning of the types of its versions
OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")


def apply_changes(body: Body, conversation: Conversation) -> None:
    """Change the body in place, which is a copy of the caller's own."""
    _change_reasoning(body, conversation.reasoning)
    for path, row in fields_of(dialect.NAME).items():
        if not row.is_given(getattr(conversation.sampling, row.name)):
            quirks.drop_field(body, path)
    if body.get("tools") and not any(isinstance(tool, WebSearch) for tool in conversation.tools):
        body["tools"] = [tool for tool in body["tools"] if not str(tool.get("type") or "").startswith(SEARCH)]
        if not body["tools"]:
            for name in OF_TOOLS:
                body.pop(name, None)


def _change_reasoning(body: Body, reasoning: ReasoningOptions) -> None:
    effort = effort_of(reasoning)
    if effort:
        body["reasoning"] = {**(body.get("reasoning") or {}), "effort": effort}
    elif reasoning == ReasoningOptions():
        body.pop("reasoning", None)
