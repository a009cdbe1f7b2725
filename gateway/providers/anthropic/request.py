"""Writes a neutral chat request as the body of a messages request.

Wire facts: Anthropic API reference, "Messages"; documentation, "Tool use", "Structured outputs", "Web search tool".
"""

from typing import Any

from gateway.dialects.anthropic import NAME
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    ResponseFormat,
    Tool,
    VendorTool,
    WebSearch,
)
from gateway.providers.anthropic.content import Block, write_mark
from gateway.providers.anthropic.conversation import limit_marks, write_turns
from gateway.providers.anthropic.thinking import ADAPTIVE, forms_of, nearest_effort, write_thinking
from gateway.providers.grammars import ANTHROPIC, ANTHROPIC_OUTPUT
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.quirks import NO_SAMPLING
from gateway.providers.unsupported_parts import warn_of_mode, warn_of_names, without_reasoning

DEFAULT_OUTPUT = 4096  # max_tokens when neither the caller nor the catalogue entry sets a limit
SEARCH_TOOL = "web_search_20250305"
TOOL_SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
CHOICES = {"auto": "auto", "required": "any", "none": "none"}
JSON_ONLY = "Answer with one JSON object and nothing else: no prose, no code fence."
TIERS = {"auto": "auto", "priority": "auto", "default": "standard_only"}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
SAMPLING = ("temperature", "top_p", "top_k")
PARAMETER_WRITER = ParameterWriter(
    NAME, apart=("max_tokens", *SAMPLING, "stop", "parallel_tool_calls", "output_effort")
)


def write_body(request: ChatRequest, target: Target, warnings: list[str]) -> dict[str, Any]:
    """Return the body without model and stream, and append a warning for each dropped parameter.

    NotSupported for content that the format cannot carry.
    """
    conversation = request.conversation()
    if conversation.sampling.n > 1:
        raise NotSupported("This provider returns one choice per request.", param="n")
    warn_of_names(conversation.messages, warnings)
    warn_of_mode(conversation.reasoning, warnings)
    messages = conversation.messages if target.unseals else without_reasoning(conversation.messages, warnings)
    system, turns = write_turns(messages, target, warnings)
    body: dict[str, Any] = {"max_tokens": _max_tokens(conversation, target)}
    tools = [
        written
        for tool in conversation.tools
        if (written := _write_tool(tool, conversation, target, warnings)) is not None
    ]
    if conversation.response_format is not None:
        _write_format(conversation.response_format, target, body, system, warnings)
    limit_marks(tools, system, turns, warnings)
    if system:
        body["system"] = system
    body["messages"] = turns
    if tools:
        body["tools"] = tools
        _write_choice(conversation, body)
    write_sampling(conversation, target, body, warnings)
    write_thinking(body, conversation.reasoning, target, warnings)
    if request.user:
        body["metadata"] = {"user_id": request.user}
    tier = TIERS.get(request.options.service_tier)
    if tier and "priority" in (*target.mapping.service_tiers, *target.provider.service_tiers):
        body["service_tier"] = tier
    return body


def _max_tokens(conversation: Conversation, target: Target) -> int:
    """Return the caller's output limit, or the model's, capped by the caller's budget."""
    limit = conversation.sampling.max_tokens or target.mapping.max_output or DEFAULT_OUTPUT
    return min(limit, target.output_cap or limit)


def _write_tool(tool: Tool, conversation: Conversation, target: Target, warnings: list[str]) -> Block | None:
    match tool:
        case FunctionTool():
            return _write_function(tool, conversation, target, warnings)
        case WebSearch():
            return _write_search(tool, target, warnings)
        case VendorTool(vendor=vendor) if vendor == NAME:
            return dict(tool.body)
        case VendorTool(kind="tool_search"):
            if _defers(conversation):
                return dict(TOOL_SEARCH)
            return None
        case _:
            kind = tool.kind if isinstance(tool, VendorTool) else "custom"
            raise NotSupported(f"This provider has no tool of type {kind}.", param="tools")


def _defers(conversation: Conversation) -> bool:
    """Return whether the request has both deferred tools and a tool search; the API refuses one without the other."""
    searches = any(isinstance(tool, VendorTool) and "tool_search" in tool.kind for tool in conversation.tools)
    return searches and any(isinstance(tool, FunctionTool) and tool.deferred for tool in conversation.tools)


def _write_function(tool: FunctionTool, conversation: Conversation, target: Target, warnings: list[str]) -> Block:
    written: Block = {"name": tool.name}
    if tool.description:
        written["description"] = tool.description
    strict = bool(tool.strict) and target.mapping.json_output_schema
    rewritten = rewrite(tool.schema or NO_ARGUMENTS, ANTHROPIC_OUTPUT if strict else ANTHROPIC)
    written["input_schema"] = {**rewritten.schema, "type": "object"}
    if strict:
        written["strict"] = True
    if tool.deferred and _defers(conversation):
        written["defer_loading"] = True
    if tool.cache is not None:
        written["cache_control"] = write_mark(tool.cache)
    _warn_of_dropped(rewritten.dropped, f"the schema of tool {tool.name}", warnings)
    return written


def _warn_of_dropped(keywords: tuple[str, ...], place: str, warnings: list[str]) -> None:
    if keywords:
        warnings.append(f"This provider does not support these keywords in {place}: {', '.join(keywords)}.")


def _write_search(tool: WebSearch, target: Target, warnings: list[str]) -> Block:
    if not target.mapping.web_search:
        raise NotSupported("This provider does not support web search for this model.", param="tools")
    written: Block = {"type": SEARCH_TOOL, "name": "web_search"}
    if tool.max_uses:
        written["max_uses"] = tool.max_uses
    if tool.allowed_domains:
        written["allowed_domains"] = list(tool.allowed_domains)
    elif tool.blocked_domains:
        written["blocked_domains"] = list(tool.blocked_domains)
    if tool.allowed_domains and tool.blocked_domains:
        warnings.append("This provider accepts allowed or blocked domains, not both; the blocked ones were left out.")
    location = {name: getattr(tool, name) for name in ("city", "region", "country", "timezone") if getattr(tool, name)}
    if location:
        written["user_location"] = {"type": "approximate", **location}
    if tool.context_size:
        warnings.append("search_context_size has no counterpart at this provider and was left out.")
    return written


def _write_choice(conversation: Conversation, body: dict[str, Any]) -> None:
    choice = conversation.tool_choice
    parallel = conversation.sampling.parallel_tool_calls
    written: dict[str, Any] | None = None
    if choice is not None and choice.body is not None:
        written = dict(choice.body)
    elif choice is not None and choice.mode in CHOICES:
        written = {"type": CHOICES[choice.mode]}
    elif choice is not None:
        written = {"type": "tool", "name": choice.name or "web_search"}
    if parallel is False:
        written = written or {"type": "auto"}
        if written["type"] != "none":
            written["disable_parallel_tool_use"] = True
    if written:
        body["tool_choice"] = written


def _write_format(
    response_format: ResponseFormat, target: Target, body: dict[str, Any], system: list[Block], warnings: list[str]
) -> None:
    """Write a schema as constrained output, and `json_object` as an instruction (the format lacks it)."""
    if response_format.kind == "json_object":
        system.append({"type": "text", "text": JSON_ONLY})
    elif response_format.kind == "json_schema":
        if not target.mapping.json_output_schema:
            raise NotSupported(
                "This provider does not support JSON Schema output for this model.", param="response_format"
            )
        rewritten = rewrite(response_format.schema or NO_ARGUMENTS, ANTHROPIC_OUTPUT)
        body["output_config"] = {"format": {"type": "json_schema", "schema": rewritten.schema}}
        _warn_of_dropped(rewritten.dropped, "the schema of response_format", warnings)


def write_sampling(conversation: Conversation, target: Target, body: dict[str, Any], warnings: list[str]) -> None:
    """Add the sampling parameters that the model takes."""
    sampling = conversation.sampling
    parameters = {name: value for name in SAMPLING if (value := getattr(sampling, name)) is not None}
    if has_fixed_sampling(target):
        dropped = [name for name in parameters if (name, parameters[name]) != ("temperature", 1)]
        warnings += [f"{name} is fixed for {target.mapping.key} and was left out." for name in dropped]
        parameters = {}
    if "temperature" in parameters and parameters.pop("top_p", None) is not None:
        warnings.append("This provider accepts temperature or top_p, not both; top_p was left out.")
    body.update(parameters)
    if "temperature" in body:
        body["temperature"] = _clamp_temperature(body["temperature"], target)
    stop = [text for text in sampling.stop if text.strip()]
    if stop:
        body["stop_sequences"] = stop
    PARAMETER_WRITER.write(sampling, body, warnings)
    if sampling.output_effort:
        _write_output_effort(sampling.output_effort, target, body, warnings)


def has_fixed_sampling(target: Target) -> bool:
    """Return whether the model refuses sampling parameters, as models do that support adaptive thinking only."""
    return NO_SAMPLING in target.quirks or (target.mapping.reasoning and forms_of(target) == ADAPTIVE)


def _clamp_temperature(value: float, target: Target) -> float:
    """Limit a temperature to the format's range (0 to 1) and to the model's maximum."""
    return max(0.0, min(value, target.mapping.max_temperature or 1.0, 1.0))


def _write_output_effort(effort: str, target: Target, body: dict[str, Any], warnings: list[str]) -> None:
    if not target.mapping.reasoning_efforts:
        warnings.append(f"effort is not supported by {target.mapping.key} and was left out.")
        return
    level = nearest_effort(effort, target.mapping.reasoning_efforts)
    body["output_config"] = {**body.get("output_config", {}), "effort": level}
