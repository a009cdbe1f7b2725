"""Writes a neutral request as a Converse body.

Wire facts: Amazon Bedrock API reference, Converse; user guide, "Structured outputs", "Service tiers".
"""

from typing import Any

from msgspec import json

from gateway.dialects.anthropic_betas import BETAS, converse_betas, requested_betas
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    CustomTool,
    FunctionTool,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.efforts import RISING, nearest
from gateway.providers.bedrock.content import Block, PartWriter, cache_point
from gateway.providers.bedrock.conversation import Turn, limit_points, write_turns
from gateway.providers.bedrock.families import Family, family_of
from gateway.providers.bedrock.thinking import EXTRA, INFERENCE, write_reasoning
from gateway.providers.grammars import ANTHROPIC_OUTPUT, BEDROCK, Grammar
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.quirks import NO_SAMPLING, REPLAY_REASONING
from gateway.providers.unsupported_parts import warn_of_mode, warn_of_names, with_late_instructions

TIERS = ("priority", "flex", "default", "reserved")
CHOICES = {"auto": "auto", "required": "any"}
JSON_ONLY = "Answer with one JSON object and nothing else: no prose, no code fence."
SAMPLING = ("temperature", "top_p", "top_k")
PARAMETER_WRITER = ParameterWriter(
    "bedrock", apart=("max_tokens", *SAMPLING, "stop", "parallel_tool_calls", "output_effort")
)
STOP_LIMIT = 2500
TOOL_KINDS = {CustomTool: "custom", WebSearch: "web_search"}  # callers' names of tools that the format lacks
PAST_TOOL = "A tool of an earlier turn; it is not available any more."


def write_body(request: ChatRequest, target: Target, warnings: list[str]) -> dict[str, Any]:
    """Return the body, and append a warning for each dropped parameter. NotSupported for unsupported content."""
    conversation = request.conversation()
    family = family_of(target)
    writer = PartWriter(family, REPLAY_REASONING in target.quirks, warnings)
    warn_of_names(conversation.messages, warnings)
    warn_of_mode(conversation.reasoning, warnings)
    system, turns = write_turns(with_late_instructions(conversation.messages), family, writer, warnings)
    tools = [block for tool in conversation.tools for block in _write_tool(tool, family, target, warnings)]
    body: dict[str, Any] = {"messages": turns}
    if conversation.response_format is not None:
        _write_format(conversation.response_format, target, body, system, warnings)
    limit_points(tools, system, turns, warnings)
    if system:
        body["system"] = system
    _write_inference(conversation, target, family, body, warnings)
    _write_tools(conversation, tools, family, body, warnings)
    write_reasoning(body, conversation.reasoning, target, family, warnings)
    _write_effort(conversation.sampling.output_effort, target, family, body, warnings)
    _write_betas(request, target, body)
    tier = request.options.service_tier
    if tier in TIERS and (
        tier == "default" or tier in {**target.provider.service_tiers, **target.mapping.service_tiers}
    ):
        body["serviceTier"] = {"type": tier}
    return {name: value for name, value in body.items() if value != {}}


def _write_betas(request: ChatRequest, target: Target, body: dict[str, Any]) -> None:
    """Write the requested beta features that the service takes with the model."""
    options = request.options
    betas = requested_betas(options.extra.get(BETAS) or (), (request.requested_model, *options.models))
    listed = target.mapping.extra.get("betas")
    if listed is not None:
        betas = [name for name in betas if name in listed]
    else:
        betas = converse_betas(betas, f"{target.mapping.external_id} {target.mapping.model}")
    if betas:
        body.setdefault(EXTRA, {})["anthropic_beta"] = betas


def _write_tool(tool: Tool, family: Family, target: Target, warnings: list[str]) -> list[Block]:
    """Return a tool and its cache point."""
    if not isinstance(tool, FunctionTool):
        if isinstance(tool, VendorTool) and tool.kind == "tool_search":
            return []  # needless, since deferred tools are sent like all others
        if isinstance(tool, VendorTool):
            kind = tool.kind
        else:
            kind = TOOL_KINDS[type(tool)]
        raise NotSupported(f"This provider has no tool of type {kind}.", param="tools")
    strict = bool(tool.strict) and target.mapping.json_output_schema
    schema = write_schema(tool.schema, ANTHROPIC_OUTPUT if strict else BEDROCK, f"tool {tool.name}", warnings)
    spec: Block = {"name": tool.name, "inputSchema": {"json": schema}}
    if tool.description:
        spec["description"] = tool.description
    if strict:
        spec["strict"] = True
    blocks: list[Block] = [{"toolSpec": spec}]
    if tool.cache is not None and "tools" in family.cache:
        blocks.append(cache_point(tool.cache, family))
    return blocks


def write_schema(schema: dict[str, Any] | None, grammar: Grammar, where: str, warnings: list[str]) -> dict[str, Any]:
    """Return a JSON Schema in the keywords of the grammar; a warning lists the dropped keywords."""
    rewritten = rewrite(schema or {"type": "object", "properties": {}}, grammar)
    if rewritten.dropped:
        keywords = ", ".join(sorted(rewritten.dropped))
        warnings.append(f"This provider does not support these keywords in the schema of {where}: {keywords}.")
    if grammar is BEDROCK:
        return {"type": "object", **rewritten.schema}
    return rewritten.schema


def _write_tools(
    conversation: Conversation, tools: list[Block], family: Family, body: dict[str, Any], warnings: list[str]
) -> None:
    """Write the tools and the tool choice.

    The API has no choice "none", so the tools are omitted for it, except where past calls require their declaration.
    """
    used = _names_used(body["messages"])
    choice = conversation.tool_choice
    if choice is not None and choice.mode == "none":
        if not used:
            return
        if tools:
            warnings.append("tool_choice none has no effect at this provider when past turns contain tool calls.")
    if not tools and used:
        schema = {"json": {"type": "object", "properties": {}}}
        tools = [{"toolSpec": {"name": name, "description": PAST_TOOL, "inputSchema": schema}} for name in used]
        choice = None
    if not tools:
        return
    body["toolConfig"] = {"tools": tools}
    if conversation.sampling.parallel_tool_calls is False:
        warnings.append("parallel_tool_calls has no counterpart at this provider and was left out.")
    if choice is not None and choice.mode != "none":
        _write_choice(choice, family, body["toolConfig"])


def _names_used(turns: list[Turn]) -> list[str]:
    """Return the distinct names of the tools in past calls; a result without a call counts as the name "tool"."""
    blocks = [block for turn in turns for block in turn["content"]]
    names = dict.fromkeys(block["toolUse"]["name"] for block in blocks if "toolUse" in block)
    return list(names) or ["tool"] * any("toolResult" in block for block in blocks)


def _write_choice(choice: ToolChoice, family: Family, config: dict[str, Any]) -> None:
    if choice.mode == "web_search":
        raise NotSupported("This provider does not support web search.", param="tool_choice")
    if choice.mode in ("required", "tool") and choice.mode not in family.choices:
        raise NotSupported("This provider does not support this tool_choice for this model.", param="tool_choice")
    if choice.mode == "tool":
        config["toolChoice"] = {"tool": {"name": choice.name}}
    else:
        config["toolChoice"] = {CHOICES[choice.mode]: {}}


def _write_format(
    response_format: ResponseFormat, target: Target, body: dict[str, Any], system: list[Block], warnings: list[str]
) -> None:
    """Write a schema as constrained output, and `json_object` as an instruction (the format lacks it)."""
    if response_format.kind == "json_object":
        system.append({"text": JSON_ONLY})
    elif response_format.kind == "json_schema":
        if not target.mapping.json_output_schema:
            raise NotSupported(
                "This provider does not support JSON Schema output for this model.", param="response_format"
            )
        schema = write_schema(response_format.schema, ANTHROPIC_OUTPUT, "response_format", warnings)
        definition = {"schema": json.encode(schema).decode(), "name": response_format.name or "response"}
        if response_format.description:
            definition["description"] = response_format.description
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": definition}}}


def _write_inference(
    conversation: Conversation, target: Target, family: Family, body: dict[str, Any], warnings: list[str]
) -> None:
    sampling = conversation.sampling
    limits: dict[str, Any] = {}
    maximum = [limit for limit in (sampling.max_tokens, target.output_cap) if limit]
    if maximum:
        limits["maxTokens"] = min(maximum)
    stop = [text for text in sampling.stop if text.strip()]
    if stop:
        limits["stopSequences"] = stop[:STOP_LIMIT]
        if len(stop) > STOP_LIMIT:
            warnings.append(f"Only the first {STOP_LIMIT} stop sequences are used.")
        if family.stop_path:
            body["additionalModelResponseFieldPaths"] = [family.stop_path]
    body[INFERENCE] = limits
    _write_sampling(conversation, target, family, body, warnings)
    PARAMETER_WRITER.write(sampling, body, warnings)


def _write_sampling(
    conversation: Conversation, target: Target, family: Family, body: dict[str, Any], warnings: list[str]
) -> None:
    """Write temperature and top_p between 0 and 1, and top_k for families that have a field for it."""
    sampling = conversation.sampling
    limits = body[INFERENCE]
    key = target.mapping.key
    parameters = {name: value for name in SAMPLING if (value := getattr(sampling, name)) is not None}
    if NO_SAMPLING in target.quirks:
        warnings.extend(f"{name} is fixed for {key} and was left out." for name in parameters)
        return
    if family.one_sampling and "temperature" in parameters and parameters.pop("top_p", None) is not None:
        warnings.append("This provider accepts temperature or top_p, not both; top_p was left out.")
    if "temperature" in parameters:
        limits["temperature"] = max(0.0, min(parameters["temperature"], target.mapping.max_temperature or 1.0, 1.0))
    if "top_p" in parameters:
        limits["topP"] = parameters["top_p"]
    if "top_k" in parameters and not family.top_k:
        warnings.append(f"top_k is not supported by {key} and was left out.")
    elif "top_k" in parameters:
        *path, last = family.top_k
        fields = body.setdefault(EXTRA, {})
        for step in path:
            fields = fields.setdefault(step, {})
        fields[last] = parameters["top_k"]


def _write_effort(effort: str, target: Target, family: Family, body: dict[str, Any], warnings: list[str]) -> None:
    """Write a separate output effort, unless the reasoning options have set an effort already."""
    if not effort or "effort" in body.get("outputConfig", {}):
        return
    if family.reasoning != "adaptive":
        warnings.append(f"effort is not supported by {target.mapping.key} and was left out.")
        return
    known = target.mapping.reasoning_efforts or RISING[1:]
    body.setdefault("outputConfig", {})["effort"] = nearest(effort, known)
