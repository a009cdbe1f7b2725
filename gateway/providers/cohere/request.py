"""Writes a neutral conversation as a chat body.

Wire facts: Cohere API reference, v2/chat, and its list of errors (ranges of values, incompatible parameters).
"""

from typing import Any

from gateway.dialects.cohere import NAME
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
)
from gateway.providers.cohere.conversation import write_messages
from gateway.providers.grammars import COHERE, OUTPUTS
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import with_late_instructions

Body = dict[str, Any]

STOP_LIMIT = 5
TEMPERATURE_LIMIT = 1.0
# Lowest and highest value of parameters, by their fields.
RANGES = {"p": (0.01, 0.99), "k": (0, 500), "frequency_penalty": (0.0, 1.0), "presence_penalty": (0.0, 1.0)}
PARAMETER_WRITER = ParameterWriter(NAME, apart=("stop", "parallel_tool_calls"))
# Thinking budgets in tokens for efforts, which the format lacks; higher efforts have no budget.
BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192}


def write_body(request: ChatRequest, target: Target, warnings: list[str]) -> Body:
    """Return the body without model and stream, and append a warning for each dropped parameter.

    NotSupported for required parameters that the format lacks.
    """
    conversation = request.conversation()
    if conversation.sampling.n > 1:
        raise NotSupported("This provider returns one choice per request.", param="n")
    thinks = target.mapping.reasoning
    body: Body = {
        "messages": write_messages(with_late_instructions(conversation.messages), thinks=thinks, warnings=warnings)
    }
    tools = _write_tools(conversation, warnings)
    if tools:
        body["tools"] = tools
        _write_choice(conversation.tool_choice, body)
    if conversation.response_format is not None and conversation.response_format.kind != "text":
        body["response_format"] = _write_format(conversation.response_format, bool(tools), warnings)
    if thinks:
        thinking = _write_thinking(conversation.reasoning)
        if thinking:
            body["thinking"] = thinking
    _write_sampling(conversation.sampling, target, body, warnings)
    return body


def _write_tools(conversation: Conversation, warnings: list[str]) -> list[Body]:
    """Return the `tools` list; a forced call of one tool is a list of that tool alone."""
    choice = conversation.tool_choice
    written = [_write_tool(tool, warnings) for tool in conversation.tools if not _is_tool_search(tool)]
    if choice is not None and choice.mode == "tool" and choice.name:
        return [tool for tool in written if tool["function"]["name"] == choice.name]
    return written


def _is_tool_search(tool: Tool) -> bool:
    """Return whether a tool only searches deferred tools, which is needless where all tools are sent."""
    return isinstance(tool, VendorTool) and tool.kind == "tool_search"


def _write_tool(tool: Tool, warnings: list[str]) -> Body:
    """Return a function; the API requires `parameters`, even for a function without any."""
    if not isinstance(tool, FunctionTool):
        if isinstance(tool, VendorTool):
            kind = tool.kind
        else:
            kind = type(tool).__name__.lower()
        raise NotSupported(f"This provider has no tool of type {kind}.", param="tools")
    parameters: Body = {"type": "object", "properties": {}}
    if tool.schema:
        rewritten = rewrite(tool.schema, COHERE)
        parameters = rewritten.schema
        _warn_of_dropped(rewritten.dropped, f"the schema of tool {tool.name}", warnings)
    function: Body = {"name": tool.name, "parameters": parameters}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _warn_of_dropped(keywords: tuple[str, ...], place: str, warnings: list[str]) -> None:
    if keywords:
        warnings.append(f"This provider does not support these keywords in {place}: {', '.join(keywords)}.")


def _write_choice(choice: ToolChoice | None, body: Body) -> None:
    if choice is None or choice.mode in ("auto", "web_search"):
        return
    if choice.mode == "none":
        body["tool_choice"] = "NONE"
    else:
        body["tool_choice"] = "REQUIRED"


def _write_format(response_format: ResponseFormat, tools: bool, warnings: list[str]) -> Body:
    """Return the format of JSON output, which the service refuses beside tools."""
    if tools:
        raise NotSupported("This provider cannot combine JSON output with tools.", param="response_format")
    written: Body = {"type": "json_object"}
    if response_format.kind == "json_schema" and response_format.schema:
        rewritten = rewrite(response_format.schema, OUTPUTS[COHERE.name])
        written["json_schema"] = rewritten.schema
        _warn_of_dropped(rewritten.dropped, "the response schema", warnings)
    return written


def _write_thinking(reasoning: ReasoningOptions) -> Body:
    """Return `thinking`: disabled, or enabled with its budget in tokens; {} for the model's default."""
    if (reasoning.effort == "none" and not reasoning.budget) or reasoning.enabled is False:
        return {"type": "disabled"}
    budget = reasoning.budget or BUDGETS.get(reasoning.effort)
    if budget:
        return {"type": "enabled", "token_budget": budget}
    if reasoning.effort or reasoning.enabled:
        return {"type": "enabled"}
    return {}


def _write_sampling(sampling: Sampling, target: Target, body: Body, warnings: list[str]) -> None:
    if sampling.stop:
        body["stop_sequences"] = list(sampling.stop[:STOP_LIMIT])
    PARAMETER_WRITER.write(sampling, body, warnings)
    cap = target.output_cap
    if cap is not None and body.get("max_tokens", cap + 1) > cap:
        body["max_tokens"] = cap
    highest = min(target.mapping.max_temperature or TEMPERATURE_LIMIT, TEMPERATURE_LIMIT)
    for name, (low, high) in (RANGES | {"temperature": (0, highest)}).items():
        if name in body:
            body[name] = min(max(body[name], low), high)
    if body.get("frequency_penalty") and body.get("presence_penalty"):
        del body["presence_penalty"]
        warnings.append("This provider accepts one of the two penalties; presence_penalty was left out.")
    _warn_of_sampling(sampling, body, warnings)


def _warn_of_sampling(sampling: Sampling, body: Body, warnings: list[str]) -> None:
    if len(sampling.stop) > STOP_LIMIT:
        warnings.append(f"Only the first {STOP_LIMIT} stop sequences are used.")
    if sampling.parallel_tool_calls is False and "tools" in body:
        warnings.append("parallel_tool_calls cannot be switched off at this provider and was left out.")
