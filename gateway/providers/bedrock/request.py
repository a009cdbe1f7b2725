"""Writes a neutral request as a Converse body.

Wire facts: Amazon Bedrock API reference, Converse; user guide, "Structured outputs", "Service tiers".
"""

from collections.abc import Iterable
from typing import Any

from msgspec import json

from gateway.dialects.anthropic_betas import BETAS, converse_betas, requested_betas
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
from gateway.neutral.parameters import RISING, nearest
from gateway.neutral.parts import Message, Text, ToolCall, ToolResult
from gateway.providers.bedrock.content import Block, Family, PartWriter, cache_point, family_of
from gateway.providers.grammars import ANTHROPIC_OUTPUT, BEDROCK, Grammar
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.quirks import NO_SAMPLING, REPLAY_REASONING
from gateway.providers.unsupported_parts import (
    ASKED_TO_CONTINUE,
    CONTINUE,
    NOTHING_SAID,
    warn_of_mode,
    warn_of_names,
    with_late_instructions,
    without_reasoning,
)

# Writes messages as alternating turns and separate system instructions.
#
# Wire facts: Amazon Bedrock API reference, Message (documents need a text beside them, and belong in user turns);
# user guide, "Prompt caching" (four cache points) and "Call a tool with Converse".

CACHE_POINT = "cachePoint"
POINT_LIMIT = 4
OPENING_TURN = "(The conversation so far begins with an answer.)"
DOCUMENT_TEXT = "See the attached document."
FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."

Turn = dict[str, Any]


def write_turns(
    messages: Iterable[Message], family: Family, writer: PartWriter, warnings: list[str]
) -> tuple[list[Block], list[Turn]]:
    """Return the system blocks, and turns that alternate between roles and begin with a user turn.

    Instructions are at the front (see `with_late_instructions`). Media in instructions or in an assistant message go
    into the next user turn.
    """
    system: list[Block] = []
    turns: list[Turn] = []
    for message in messages:
        if message.role in ("system", "developer"):
            _add_instructions(message, system, turns, family, writer)
            continue
        blocks = _write_message(message, writer, warnings)
        role = "assistant" if message.role == "assistant" else "user"
        moved = [block for block in blocks if role == "assistant" and not _fits_assistant(block)]
        _add(turns, role, [block for block in blocks if block not in moved])
        _add(turns, "user", moved)
    if not turns:
        turns = [{"role": "user", "content": system or [{"text": NOTHING_SAID}]}]
        system = []
    if turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"text": OPENING_TURN}]})
    for turn in turns:
        _order_blocks(turn)
    _close(turns, family, warnings)
    return system, turns


def _add_instructions(
    message: Message, system: list[Block], turns: list[Turn], family: Family, writer: PartWriter
) -> None:
    for part in message.parts:
        if not isinstance(part, Text):
            _add(turns, "user", writer.write(part))
        elif part.text.strip():
            system.append({"text": part.text})
            if part.cache is not None and "system" in family.cache:
                system.append(cache_point(part.cache, family))


def _write_message(message: Message, writer: PartWriter, warnings: list[str]) -> list[Block]:
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, ToolCall | ToolResult) and part.executed:
            if FOREIGN_SEARCH not in warnings:
                warnings.append(FOREIGN_SEARCH)
        else:
            blocks += writer.write(part)
    return blocks


def _fits_assistant(block: Block) -> bool:
    """Return whether an assistant turn may contain this block; it may not contain media."""
    return not block.keys() & {"image", "document", "audio", "video"}


def _add(turns: list[Turn], role: str, blocks: list[Block]) -> None:
    """Append to the current turn of this role, or begin the next turn; a cache point alone begins no turn."""
    if not blocks or all(CACHE_POINT in block for block in blocks):
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": list(blocks)})


def _order_blocks(turn: Turn) -> None:
    """Move tool results with their cache points to the front, and add a text to a turn of documents alone."""
    content: list[Block] = turn["content"]
    if any("toolResult" in block for block in content):
        results: list[Block] = []
        rest: list[Block] = []
        destination = rest
        for block in content:
            if "toolResult" in block:
                destination = results
            elif CACHE_POINT not in block:
                destination = rest
            destination.append(block)
        content = turn["content"] = results + rest
    if any("document" in block for block in content) and not any("text" in block for block in content):
        content.append({"text": DOCUMENT_TEXT})


def _close(turns: list[Turn], family: Family, warnings: list[str]) -> None:
    """Strip white space from the end of an answer to be continued, where the API refuses it; ask a model to continue
    that refuses such an answer."""
    last = turns[-1]["content"][-1]
    if turns[-1]["role"] != "assistant":
        return
    if not family.continues and "toolUse" not in last:
        warnings.append(ASKED_TO_CONTINUE)
        turns.append({"role": "user", "content": [{"text": CONTINUE}]})
    elif "text" in last:
        turns[-1]["content"][-1] = {"text": last["text"].rstrip()}


def limit_points(tools: list[Block], system: list[Block], turns: list[Turn], warnings: list[str]) -> None:
    """Keep the last four cache points, which cover the longest prefixes, and shorten points that break the order.

    The API refuses a cache point of one hour after one of five minutes.
    """
    lists = [tools, system, *(turn["content"] for turn in turns)]
    points = [(blocks, index) for blocks in lists for index, block in enumerate(blocks) if CACHE_POINT in block]
    if len(points) > POINT_LIMIT:
        warnings.append(f"Only the last {POINT_LIMIT} cache marks are used.")
    short = False
    for blocks, index in points[-POINT_LIMIT:]:
        if short and "ttl" in blocks[index][CACHE_POINT]:
            blocks[index] = {CACHE_POINT: {"type": "default"}}
            warnings.append("A one-hour cache mark after a five-minute one was shortened to five minutes.")
        short = short or "ttl" not in blocks[index][CACHE_POINT]
    for blocks, index in reversed(points[:-POINT_LIMIT]):
        del blocks[index]


# Reasoning: the form that each family supports, its budget, and the parameters that are incompatible with it.
#
# Wire facts: Amazon Bedrock user guide, Claude's "Extended thinking" and "Adaptive thinking" (a budget is at least
# 1024 tokens and below maxTokens, temperature is 1, topK absent, no tool forced, and a turn with tool calls begins
# with its reasoning); Amazon Nova 2 user guide, "Extended thinking" (three levels; the highest excludes an output
# limit and sampling); API reference, OutputConfig.effort.

MIN_THINKING_BUDGET = 1024
MAX_BUDGET = 64_000
THINKING_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 64_000}
DEFAULT_EFFORT = "medium"
EFFORT_LEVELS = ("low", "medium", "high")
DEFAULT_OUTPUT = 8192  # maxTokens with a thinking budget when neither the caller nor the catalogue entry sets a limit
EXTRA = "additionalModelRequestFields"
INFERENCE = "inferenceConfig"


def write_reasoning(
    body: dict[str, Any], reasoning: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    """Add the reasoning options to a body, and remove the parameters that are incompatible with them.

    The body must already have its messages, limits and tools.
    """
    requested = _is_requested(reasoning) and target.mapping.reasoning
    if requested and not family.reasoning:
        if reasoning.effort or reasoning.budget:
            warnings.append(f"The reasoning effort is not supported by {target.mapping.key} and was left out.")
    elif requested and family.reasoning == "levels":
        _write_level(body, reasoning, warnings)
    elif requested and family.reasoning == "effort":
        _extra(body)["reasoning_effort"] = nearest(
            _effort(reasoning), target.mapping.reasoning_efforts or EFFORT_LEVELS
        )
    elif requested:
        _write_thinking(body, reasoning, target, family, warnings)
    elif family.signed and (family.reasoning == "budget" or reasoning.enabled is False or reasoning.effort == "none"):
        _remove_last_reasoning(body["messages"])


def _is_requested(reasoning: ReasoningOptions) -> bool:
    if reasoning.effort == "none" or reasoning.enabled is False:
        return False
    return bool(reasoning.effort or reasoning.budget or reasoning.enabled or reasoning.adaptive)


def _effort(reasoning: ReasoningOptions) -> str:
    if reasoning.effort or not reasoning.budget:
        return reasoning.effort or DEFAULT_EFFORT
    return next((name for name in reversed(RISING) if reasoning.budget >= THINKING_BUDGETS[name]), "low")


def _extra(body: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = body.setdefault(EXTRA, {})
    return extra


def _write_level(body: dict[str, Any], reasoning: ReasoningOptions, warnings: list[str]) -> None:
    level = nearest(_effort(reasoning), EFFORT_LEVELS)
    limits = body.get(INFERENCE, {})
    if level == "high" and "maxTokens" in limits:
        level = "medium"
        warnings.append("The highest reasoning level is incompatible with an output limit: medium is used.")
    elif level == "high" and (limits.pop("temperature", None), limits.pop("topP", None)) != (None, None):
        warnings.append("temperature and top_p are incompatible with the highest reasoning level and were left out.")
        if not limits:
            del body[INFERENCE]
    _extra(body)["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": level}


def _write_thinking(
    body: dict[str, Any], reasoning: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    obstacle = _obstacle(body)
    if family.reasoning == "budget" and not obstacle:
        limits = body.setdefault(INFERENCE, {})
        limits.setdefault("maxTokens", target.mapping.max_output or DEFAULT_OUTPUT)
        obstacle = _budget_obstacle(body["messages"], limits["maxTokens"])
        if not obstacle:
            _extra(body)["thinking"] = {"type": "enabled", "budget_tokens": _budget(reasoning, limits["maxTokens"])}
    elif not obstacle:
        # Newer models omit their thinking unless the request selects summaries.
        display = "omitted" if reasoning.show == "omitted" else "summarized"
        _extra(body)["thinking"] = {"type": "adaptive", "display": display}
        if reasoning.effort or reasoning.budget:
            known = target.mapping.reasoning_efforts or RISING[1:]
            body.setdefault("outputConfig", {})["effort"] = nearest(_effort(reasoning), known)
    if obstacle:
        warnings.append(f"Extended thinking was disabled for this request: {obstacle}.")
        _remove_last_reasoning(body["messages"])
    else:
        _fix_sampling(body, warnings)


def _budget(reasoning: ReasoningOptions, max_tokens: int) -> int:
    """Return the thinking budget in tokens.

    A budget derived from an effort leaves at least a fifth of maxTokens for the answer where possible.
    """
    limit = max_tokens - 1 if reasoning.budget else max(MIN_THINKING_BUDGET, max_tokens * 4 // 5)
    budget = reasoning.budget or THINKING_BUDGETS[_effort(reasoning)]
    return max(MIN_THINKING_BUDGET, min(budget, limit, max_tokens - 1, MAX_BUDGET))


def _obstacle(body: dict[str, Any]) -> str:
    """Return why this request cannot use any form of thinking, or "" if it can."""
    if body.get("toolConfig", {}).get("toolChoice", {}).keys() & {"any", "tool"}:
        return "a tool call is forced"
    if body["messages"][-1]["role"] == "assistant":
        return "the conversation ends with an answer to be continued"
    return ""


def _budget_obstacle(turns: list[Turn], max_tokens: int) -> str:
    """Return why this request cannot use a thinking budget, or "" if it can."""
    if max_tokens <= MIN_THINKING_BUDGET:
        return f"max_tokens is not above {MIN_THINKING_BUDGET}"
    answers = "toolResult" in turns[-1]["content"][0] and len(turns) > 1
    if answers and "reasoningContent" not in turns[-2]["content"][0]:
        return "the tool calls were sent back without the thinking that precedes them"
    return ""


def _remove_last_reasoning(turns: list[Turn]) -> None:
    """Remove the reasoning from the last assistant turn; a request without thinking must not contain any there."""
    index = next((n for n in range(len(turns) - 1, -1, -1) if turns[n]["role"] == "assistant"), None)
    if index is None:
        return
    remaining = [block for block in turns[index]["content"] if "reasoningContent" not in block]
    if any("cachePoint" not in block for block in remaining):
        turns[index]["content"] = remaining
    elif index + 1 < len(turns):
        turns[index + 1]["content"] = turns[index - 1]["content"] + turns[index + 1]["content"]
        del turns[index - 1 : index + 1]
    else:
        del turns[index]


def _fix_sampling(body: dict[str, Any], warnings: list[str]) -> None:
    limits = body.get(INFERENCE, {})
    extra = _extra(body)
    if limits.pop("temperature", 1) != 1:
        warnings.append("temperature is incompatible with extended thinking and was left out.")
    if extra.pop("top_k", None) is not None:
        warnings.append("top_k is incompatible with extended thinking and was left out.")
    if limits.get("topP", 1) < 0.95:
        del limits["topP"]
        warnings.append("top_p below 0.95 is incompatible with extended thinking and was left out.")
    if INFERENCE in body and not limits:
        del body[INFERENCE]


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
    messages = conversation.messages if target.unseals else without_reasoning(conversation.messages, warnings)
    system, turns = write_turns(with_late_instructions(messages), family, writer, warnings)
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
        kind = tool.kind if isinstance(tool, VendorTool) else TOOL_KINDS[type(tool)]
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
