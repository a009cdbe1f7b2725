"""Writes a neutral conversation as a generateContent body."""

from typing import Any

from gateway.dialects.google import BUDGETS, LEVELS, NAME
from gateway.errors import NotSupported
from gateway.neutral import parameters
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
from gateway.providers.function_parameters import complete
from gateway.providers.google.contents import Contents
from gateway.providers.google.traits import Traits, makes_images
from gateway.providers.grammars import GOOGLE, GOOGLE_JSON, OUTPUTS
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.media_codecs import SHOWN
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import spell_out, warn_of_mode, warn_of_names, with_late_instructions

# Writes the tools and the tool choice of a generateContent body.

TOOL_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}


def write_tools(tools: tuple[Tool, ...], target: Target, traits: Traits, warnings: list[str]) -> list[dict[str, Any]]:
    """Return the `tools` list: all functions in one entry, then web search and the vendor's tools in their order."""
    functions: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for tool in tools:
        match tool:
            case FunctionTool():
                functions.append(_write_function(tool, traits, warnings))
            case WebSearch() if target.mapping.web_search:
                others.append({"googleSearch": _write_search(tool, traits, warnings)})
            case WebSearch():
                raise NotSupported("This provider does not support web search for this model.", param="tools")
            case CustomTool():
                raise NotSupported("This provider has no tools with free-text input.", param="tools")
            case VendorTool(vendor=vendor, body=body) if vendor == NAME:
                others.append(body)
            case VendorTool(kind="tool_search"):
                pass  # needless, since deferred tools are sent like all others
            case _:
                raise NotSupported(f"This provider has no tool of type {tool.kind}.", param="tools")
    return ([{"functionDeclarations": functions}] if functions else []) + others


def _write_function(tool: FunctionTool, traits: Traits, warnings: list[str]) -> dict[str, Any]:
    """Return a FunctionDeclaration. A function without parameters has no schema."""
    declared: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    if not tool.schema:
        return declared
    whole = complete(tool.schema)
    schema, dropped = write_schema(whole, traits, tool=True)
    if schema.get("properties") or whole.get("additionalProperties"):
        declared["parametersJsonSchema" if traits.json_schema else "parameters"] = schema
    if dropped:
        keywords = ", ".join(dropped)
        warnings.append(f"This provider does not support these keywords in the schema of tool {tool.name}: {keywords}.")
    return declared


def write_schema(schema: dict[str, Any], traits: Traits, *, tool: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a schema in the keywords that the model supports, and the dropped keywords.

    `tool`: the schema is that of a function, which must describe an object.
    """
    grammar = GOOGLE_JSON if traits.json_schema else GOOGLE
    written = rewrite(schema, grammar if tool else OUTPUTS[grammar.name])
    return written.schema, written.dropped


def _write_search(tool: WebSearch, traits: Traits, warnings: list[str]) -> dict[str, Any]:
    """Return a GoogleSearch; only Vertex AI supports excludeDomains (reference, GoogleSearch.excludeDomains)."""
    lost = [name for name in ("max_uses", "allowed_domains", "context_size") if getattr(tool, name)]
    if any((tool.city, tool.region, tool.country, tool.timezone)):
        lost.append("user_location")
    search: dict[str, Any] = {}
    if tool.blocked_domains and traits.enterprise:
        search["excludeDomains"] = list(tool.blocked_domains)
    elif tool.blocked_domains:
        lost.append("blocked_domains")
    if lost:
        warnings.append(f"Options of web_search have no counterpart at this provider: {', '.join(lost)}.")
    return search


def write_tool_config(
    choice: ToolChoice | None, tools: list[dict[str, Any]], traits: Traits, warnings: list[str]
) -> dict[str, Any]:
    """Return `toolConfig`: the calling mode, and the field that allows search beside functions."""
    config: dict[str, Any] = {}
    functions = any("functionDeclarations" in tool for tool in tools)
    if functions and len(tools) > 1 and not traits.enterprise:
        config["includeServerSideToolInvocations"] = True
    if choice is None:
        return config
    if choice.mode == "web_search" or not functions:
        if choice.mode not in ("auto", "web_search"):
            warnings.append(f"tool_choice {choice.mode} has no effect on this provider's own tools.")
        return config
    if choice.body is not None:
        return {**config, "functionCallingConfig": choice.body}
    calling: dict[str, Any] = {"mode": TOOL_MODES[choice.mode]}
    if choice.mode == "tool":
        calling["allowedFunctionNames"] = [choice.name]
    return {**config, "functionCallingConfig": calling}


# Aspect ratios and sizes of Google's image models, and `imageConfig` of a chat request.
#
# Wire facts: Gemini API, "Image generation", tables of aspect ratios and sizes by model; Imagen, "aspectRatio".

ASPECT_RATIOS = ("1:1", "3:2", "2:3", "4:3", "3:4", "5:4", "4:5", "16:9", "9:16", "21:9")
LONG_RATIOS = ("4:1", "1:4", "8:1", "1:8")  # supported by the small models from generation 3.1 on
LONG_RATIOS_FROM = 3.1
PREDICTED_RATIOS = ("1:1", "4:3", "3:4", "16:9", "9:16")
IMAGE_SIZES = ("1K", "2K", "4K")
DEFAULT_SIZE = "1K"  # the default without imageSize
SIZES_FROM = 3  # older generations make images of one size only


def ratios_of(traits: Traits) -> tuple[str, ...]:
    """Return the aspect ratios of a model that makes images by generateContent."""
    if traits.generation >= LONG_RATIOS_FROM and not traits.pro:
        return ASPECT_RATIOS + LONG_RATIOS
    return ASPECT_RATIOS


def sizes_of(traits: Traits) -> tuple[str, ...]:
    """Return the sizes of a model that makes images by generateContent."""
    if traits.generation >= SIZES_FROM:
        return IMAGE_SIZES
    return (DEFAULT_SIZE,)


def write_image_output(
    options: dict[str, Any], target: Target, traits: Traits, config: dict[str, Any], warnings: list[str]
) -> None:
    """Write the fields that request image output. `options` is the caller's `image_config`."""
    config["responseModalities"] = ["TEXT", "IMAGE"]
    image: dict[str, str] = {}
    fields = {"aspect_ratio": ("aspectRatio", ratios_of(traits)), "image_size": ("imageSize", sizes_of(traits))}
    for name, (wire, offered) in fields.items():
        value = options.get(name)
        if not value or value == DEFAULT_SIZE:
            continue
        if value in offered:
            image[wire] = value
        else:
            reason = f"{target.mapping.key} takes {', '.join(offered)}"
            warnings.append(f"image_config: {name} {value[:SHOWN]} was left out: {reason}.")
    if image:
        config["imageConfig"] = image
    if options.get("seed") is not None:
        config["seed"] = int(options["seed"])
    lost = [name for name in ("image_quality", "n") if options.get(name) not in (None, 1, "auto")]
    if lost:
        warnings.append(f"image_config: {', '.join(lost)} has no counterpart at this provider and was left out.")


Body = dict[str, Any]

STOP_LIMIT = 5  # API reference, GenerationConfig.stopSequences
CHOICE_LIMIT = 8  # API reference, GenerationConfig.candidateCount
TEMPERATURE_LIMIT = 2.0
DYNAMIC = -1  # the model chooses its budget (guide, thinking)
# Lowest and highest thinking budgets of generation 2.5 (guide, thinking); the pro model cannot stop thinking.
PRO_BUDGET = (128, 32768)
LITE_BUDGET = (512, 24576)
FLASH_BUDGET = (1, 24576)
PARAMETER_WRITER = ParameterWriter(NAME, apart=("max_tokens", "stop", "parallel_tool_calls"))


def write_body(request: ChatRequest, target: Target, traits: Traits, warnings: list[str]) -> Body:
    """Return the whole body, and append a warning for each dropped parameter. NotSupported for required parameters."""
    conversation = request.conversation()
    _refuse_combinations(request, conversation, traits)
    messages = with_late_instructions(spell_out(conversation.messages, warnings))
    body = Contents(traits, target.address).write(messages, warnings)
    warn_of_names(conversation.messages, warnings)
    warn_of_mode(conversation.reasoning, warnings)
    tools = write_tools(conversation.tools, target, traits, warnings)
    if tools:
        body["tools"] = tools
        config = write_tool_config(conversation.tool_choice, tools, traits, warnings)
        if config:
            body["toolConfig"] = config
    generation = write_generation(request, conversation, target, traits, warnings)
    if generation:
        body["generationConfig"] = generation
    return body


def _refuse_combinations(request: ChatRequest, conversation: Conversation, traits: Traits) -> None:
    """Raise NotSupported for combinations that the API refuses, which makes the router try another target."""
    if conversation.sampling.n > CHOICE_LIMIT:
        raise NotSupported(f"This provider returns at most {CHOICE_LIMIT} choices.", param="n")
    if conversation.sampling.n > 1 and request.requirements.stream:
        raise NotSupported("This provider streams one choice only.", param="n")
    if not conversation.tools:
        return
    functions = any(isinstance(tool, FunctionTool) for tool in conversation.tools)
    searching = any(isinstance(tool, WebSearch) for tool in conversation.tools)
    structured = conversation.response_format is not None and conversation.response_format.kind != "text"
    if functions and searching and (traits.enterprise or not traits.mixed_tools):
        raise NotSupported("This model cannot combine web search with other tools.", param="tools")
    if structured and (functions or searching) and not traits.mixed_tools:
        raise NotSupported("This model cannot combine JSON output with tools.", param="response_format")


def write_generation(
    request: ChatRequest, conversation: Conversation, target: Target, traits: Traits, warnings: list[str]
) -> Body:
    """Return `generationConfig`, and append a warning for each dropped parameter."""
    config: Body = {}
    _write_limits(conversation, target, config, warnings)
    _write_sampling(conversation, target, config, warnings)
    if conversation.response_format is not None:
        _write_format(conversation.response_format, traits, config, warnings)
    shown = not request.options.hides_reasoning
    thinking = _write_thinking(conversation.reasoning, target, traits, warnings, shown=shown)
    if thinking:
        config["thinkingConfig"] = thinking
    if request.requirements.image_output or makes_images(target.mapping):
        write_image_output(request.options.image_config or {}, target, traits, config, warnings)
    return config


def _write_limits(conversation: Conversation, target: Target, config: Body, warnings: list[str]) -> None:
    sampling = conversation.sampling
    cap = target.output_cap
    limit = sampling.max_tokens
    if cap is not None and (limit is None or limit > cap):
        limit = cap
    if limit:
        config["maxOutputTokens"] = limit
    if sampling.stop:
        config["stopSequences"] = list(sampling.stop[:STOP_LIMIT])
        if len(sampling.stop) > STOP_LIMIT:
            warnings.append(f"Only the first {STOP_LIMIT} stop sequences are used.")


def _write_sampling(conversation: Conversation, target: Target, config: Body, warnings: list[str]) -> None:
    sampling = conversation.sampling
    PARAMETER_WRITER.write(sampling, config, warnings, target.mapping)
    if "temperature" in config:
        highest = min(target.mapping.max_temperature or TEMPERATURE_LIMIT, TEMPERATURE_LIMIT)
        config["temperature"] = min(max(config["temperature"], 0), highest)
    if sampling.parallel_tool_calls is False and conversation.tools:
        warnings.append("parallel_tool_calls cannot be switched off at this provider and was left out.")


def _write_format(response_format: ResponseFormat, traits: Traits, config: Body, warnings: list[str]) -> None:
    if response_format.kind == "text":
        return
    config["responseMimeType"] = "application/json"
    if response_format.kind == "json_schema" and response_format.schema:
        schema, dropped = write_schema(response_format.schema, traits, tool=False)
        config["responseJsonSchema" if traits.json_schema else "responseSchema"] = schema
        if dropped:
            keywords = ", ".join(dropped)
            warnings.append(f"This provider does not support these keywords in the response schema: {keywords}.")


def _write_thinking(
    reasoning: ReasoningOptions, target: Target, traits: Traits, warnings: list[str], *, shown: bool
) -> Body:
    """Return `thinkingConfig`: a level for newer models, a budget for older ones or when the caller sets one."""
    if not target.mapping.reasoning or (makes_images(target.mapping) and not traits.levels):
        return {}
    shown = shown and reasoning.show != "omitted"
    if (reasoning.effort == "none" and not reasoning.budget) or reasoning.enabled is False:
        return _write_no_thinking(target, traits, warnings)
    config: Body = {"includeThoughts": True} if shown else {}
    if reasoning.budget and (not traits.levels or target.mapping.reasoning_max_tokens):
        config["thinkingBudget"] = _clamp(reasoning.budget, traits)
    elif traits.levels:
        effort = reasoning.effort or _effort_of(reasoning.budget)
        if effort:
            config["thinkingLevel"] = _level(effort, target, traits).upper()
    elif reasoning.effort:
        config["thinkingBudget"] = _clamp(BUDGETS[reasoning.effort], traits)
    elif reasoning.enabled or reasoning.adaptive:
        config["thinkingBudget"] = DYNAMIC
    return config


def _write_no_thinking(target: Target, traits: Traits, warnings: list[str]) -> Body:
    """Return a `thinkingConfig` that disables thinking, or sets it to the model's minimum."""
    efforts = target.mapping.reasoning_efforts
    if traits.levels and "none" not in efforts:
        warnings.append(f"{target.mapping.key} cannot stop reasoning; it reasons as little as it can.")
        return {"thinkingLevel": _level("minimal", target, traits).upper()}
    if traits.pro and not traits.levels:
        warnings.append(f"{target.mapping.key} cannot stop reasoning; it reasons as little as it can.")
        return {"thinkingBudget": PRO_BUDGET[0]}
    return {"thinkingBudget": 0}


def _level(effort: str, target: Target, traits: Traits) -> str:
    """Return the highest supported level that is not above the effort, or the lowest level."""
    levels = [level for level in LEVELS if level in target.mapping.reasoning_efforts] or list(traits.default_levels)
    rank = parameters.ALL_EFFORTS.index(effort)
    not_above = [level for level in levels if parameters.ALL_EFFORTS.index(level) <= rank]
    if not_above:
        return not_above[-1]
    return levels[0]


def _effort_of(budget: int | None) -> str:
    if not budget:
        return ""
    return next((effort for effort in ("low", "medium") if budget <= BUDGETS[effort]), "high")


def _clamp(budget: int, traits: Traits) -> int:
    if traits.pro or traits.levels:
        low, high = PRO_BUDGET
    else:
        low, high = LITE_BUDGET if traits.lite else FLASH_BUDGET
    return min(max(budget, low), high)
