"""Writes a neutral conversation as an OpenAI Responses body."""

from typing import Any

from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    CustomTool,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.providers.openai.request import effort_of, shorten_user
from gateway.providers.openai.responses_input import InputWriter
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.unsupported_parts import spell_out, warn_of_names

NO_PARAMETERS = {"type": "object", "properties": {}}
PARAMETER_WRITER = ParameterWriter(dialect.NAME, apart=("parallel_tool_calls", "output_effort"))


def write_body(request: ChatRequest, origin: str, warnings: list[str], *, unseals: bool = True) -> dict[str, Any]:
    """Return the body without model, stream and fields that depend on the mapping. Adds a warning for each dropped
    field.

    `origin` identifies the target's account: reasoning that another account encrypted is left out, or all unless it
    `unseals`. NotSupported for content that this format cannot carry.
    """
    conversation = request.conversation()
    if conversation.sampling.n > 1:
        raise NotSupported("This provider returns one choice per request.", param="n")
    body: dict[str, Any] = {
        "input": InputWriter(origin, unseals, warnings).write(spell_out(conversation.messages, warnings))
    }
    warn_of_names(conversation.messages, warnings)
    tools = write_tools(conversation.tools, warnings)
    uses = next((tool.max_uses for tool in conversation.tools if isinstance(tool, WebSearch)), None)
    if uses:
        body["max_tool_calls"] = uses
    if tools:
        body["tools"] = tools
        if conversation.tool_choice is not None:
            body["tool_choice"] = _write_choice(conversation.tool_choice, conversation.tools)
        if conversation.sampling.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = conversation.sampling.parallel_tool_calls
    reasoning = _write_reasoning(conversation.reasoning)
    if reasoning:
        body["reasoning"] = reasoning
    if conversation.response_format is not None:
        body["text"] = {"format": _write_format(conversation.response_format)}
    _write_sampling(conversation, body, warnings)
    if request.user:
        body["safety_identifier"] = shorten_user(request.user)
    return body


def _write_sampling(conversation: Conversation, body: dict[str, Any], warnings: list[str]) -> None:
    sampling = conversation.sampling
    PARAMETER_WRITER.write(sampling, body, warnings)
    if sampling.output_effort and not sampling.verbosity:
        warnings.append("The output effort has no counterpart at this provider and was left out.")


def _write_reasoning(reasoning: ReasoningOptions) -> dict[str, Any]:
    """Return `reasoning`. A summary is only requested when the caller requests it, because unverified accounts get an
    error for it."""
    effort = effort_of(reasoning)
    written: dict[str, Any] = {"effort": effort} if effort else {}
    if reasoning.show in ("summary", "full") and effort != "none":
        written["summary"] = "auto"
    if reasoning.mode:
        written["mode"] = reasoning.mode
    return written


def _write_format(response_format: ResponseFormat) -> dict[str, Any]:
    if response_format.kind != "json_schema":
        return {"type": response_format.kind}
    written: dict[str, Any] = {
        "type": "json_schema",
        "name": response_format.name or "response",
        "schema": response_format.schema or {},
        "strict": bool(response_format.strict),
    }
    if response_format.description:
        written["description"] = response_format.description
    return written


def write_tools(tools: tuple[Tool, ...], warnings: list[str]) -> list[dict[str, Any]]:
    """Return the `tools` list. NotSupported for a tool of another vendor."""
    searching = any(isinstance(tool, VendorTool) and tool.kind == "tool_search" for tool in tools)
    return [_write_tool(tool, searching, warnings) for tool in tools if not _is_in_items(tool)]


def _write_tool(tool: Tool, searching: bool, warnings: list[str]) -> dict[str, Any]:
    match tool:
        case FunctionTool():
            return _write_function(tool, searching)
        case CustomTool():
            custom = {"name": tool.name, "description": tool.description, "format": _write_grammar(tool.format)}
            return {"type": "custom", **{key: value for key, value in custom.items() if value}}
        case WebSearch():
            return _write_search(tool, warnings)
        case VendorTool(vendor=dialect.NAME):
            return tool.body
        case VendorTool(kind="tool_search"):
            return {"type": "tool_search"}
        case _:
            raise NotSupported(f"This provider has no tool of type {tool.kind}.", param="tools")


def _write_function(tool: FunctionTool, searching: bool) -> dict[str, Any]:
    """Return a function tool. `strict` is always written, because its default is true here and false in other
    formats."""
    written: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "parameters": NO_PARAMETERS if tool.schema is None else tool.schema,
        "strict": bool(tool.strict),
    }
    if tool.description:
        written["description"] = tool.description
    if tool.deferred and searching:
        written["defer_loading"] = True
    return written


def _write_grammar(grammar: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a custom tool's format. Members that chat completions nest under `grammar` are at the top level here."""
    if grammar:
        inner = grammar.get("grammar")
    else:
        inner = None
    if isinstance(inner, dict):
        return {"type": "grammar", **inner}
    return grammar


def _write_search(tool: WebSearch, warnings: list[str]) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "web_search"}
    if tool.context_size:
        written["search_context_size"] = tool.context_size
    names = ("city", "region", "country", "timezone")
    place = {name: getattr(tool, name) for name in names if getattr(tool, name)}
    if place:
        written["user_location"] = {"type": "approximate", **place}
    if tool.allowed_domains:
        written["filters"] = {"allowed_domains": list(tool.allowed_domains)}
    if tool.blocked_domains:
        warnings.append("blocked_domains of web_search has no counterpart at this provider.")
    return written


def _write_choice(choice: ToolChoice, tools: tuple[Tool, ...]) -> Any:
    if choice.body is not None:
        return choice.body
    if choice.mode == "web_search":
        return {"type": "web_search"}
    if choice.mode != "tool":
        return choice.mode
    for tool in tools:
        if isinstance(tool, VendorTool) and _stands_for(tool, choice.name):
            return {"type": tool.kind}
    if any(isinstance(t, CustomTool) and t.name == choice.name for t in tools):
        kind = "custom"
    else:
        kind = "function"
    return {"type": kind, "name": choice.name}


def _is_in_items(tool: Tool) -> bool:
    """Return whether the conversation has these tools in an item."""
    return isinstance(tool, VendorTool) and tool.kind == dialect.LATER_TOOLS


def _stands_for(tool: VendorTool, name: str) -> bool:
    """Return whether other vendors have a function of this name in place of the tool."""
    named = any(isinstance(each, FunctionTool) and each.name == name for each in tool.instead)
    return named and not _is_in_items(tool)
