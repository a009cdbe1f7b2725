"""Converts the options of a chat request (chat_options.py) into the parts of a neutral request.

Chat completions, the AI SDK's calls and MCP's chat tool use all of it; the Responses surface uses the options of the
gateway itself (`gateway_options`).
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import UNSET, Raw, UnsetType, to_builtins
from msgspec.json import encode

from gateway.dialects import openai as dialect
from gateway.dialects.hosted_tools import SEARCH, tool_uses
from gateway.neutral.chat import (
    NO_OPTIONS,
    ChatRequest,
    Conversation,
    CustomTool,
    Effort,
    FunctionTool,
    Options,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.hosted_uses import NO_USES, collect
from gateway.neutral.json_weight import without_halves
from gateway.neutral.parameters import capabilities_of
from gateway.neutral.parts import NAME_LENGTH, CacheMark, Message
from gateway.surfaces.bodies import chat_options as schema
from gateway.surfaces.bodies.preference_checks import TYPES, ImageConfig, read_preferences
from gateway.surfaces.bodies.request_parameters import ParameterReader
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.web.model_options import read_choice

HEALING = "response-healing"
PREFERENCES = TYPES | {"image_config": ImageConfig}
NO_FIELDS: frozenset[type] = frozenset()
# max_tokens has an older and a newer name.
PARAMETER_READER = ParameterReader(dialect.NAME, apart=("max_tokens",))
READ_OPTIONS = attrgetter(*schema.GatewayOptions.__struct_fields__)


class PromptSize(NamedTuple):
    """Facts about the messages: bytes of text, the number of media by kind, and of messages. `earlier_images` are those
    of the assistant, `images` all others."""

    text: int
    images: int = 0
    audio: int = 0
    files: int = 0
    messages: int = 1
    earlier_images: int = 0


def normalize(options: schema.ChatOptions) -> None:
    """Remove an empty list of tools, which counts as absent, and what has no effect without tools."""
    if not options.tools and not options.web_search:
        options.tools = options.tool_choice = options.parallel_tool_calls = None


def effort_of(options: schema.ChatOptions) -> Effort | Literal[""]:
    """Return the reasoning effort, which has two fields."""
    return options.reasoning_effort or (options.reasoning.effort if options.reasoning else None) or ""


def decode_options(
    options: schema.ChatOptions, effort: Effort | Literal[""], messages: tuple[Message, ...]
) -> Conversation:
    """Return the conversation of messages with these options. Raises InvalidRequest with the dotted path of an invalid
    value."""
    tools = tuple(_tool(tool, place) for place, tool in enumerate(options.tools or ()))
    if not any(isinstance(tool, WebSearch) for tool in tools):
        tools += _requested_search(options)
    if isinstance(options.tool_choice, schema.AllowedChoice):
        tools = _allowed(tools, options.tool_choice.allowed_tools)
    return Conversation(
        messages=messages,
        tools=tools,
        tool_choice=_choice(options.tool_choice),
        response_format=_format(options.response_format),
        reasoning=_reasoning(options, effort),
        sampling=read_sampling(options),
    )


def requirements_of(options: schema.ChatOptions, prompt: PromptSize, *, marks: bool, draws: bool) -> Requirements:
    """Return the requirements of a request; `marks`: the prompt has cache marks, `draws`: image options have an
    effect."""
    tools = options.tools
    effort = effort_of(options)
    budget = options.reasoning.max_tokens if options.reasoning else None
    kinds = {type(tool) for tool in tools} if tools else NO_FIELDS
    searches = bool(options.web_search) or schema.WebSearchTool in kinds
    asks = options.web_search_options is not None
    shape = _shape_size(options.response_format)
    forced = _forced(options.tool_choice)
    newer = [tool for tool in tools or () if type(tool) is schema.UnknownTool]
    uses = [SEARCH] if searches or asks else []
    for tool in newer:
        uses += tool_uses(dialect.NAME, tool.kind, tool.body)
    # Beside the caller's functions they can be left out; if a call is forced and they are alone, they cannot.
    needed = forced == "required" and len(newer) == len(tools or ()) > 0
    return Requirements(
        stream=bool(options.stream),
        tools=schema.FunctionTool in kinds or schema.CustomTool in kinds,
        vision=prompt.images > 0,
        earlier_images=prompt.earlier_images > 0,
        audio=prompt.audio > 0,
        documents=prompt.files > 0,
        json_object=type(options.response_format) is schema.JsonObjectFormat,
        json_schema=type(options.response_format) is schema.JsonSchemaFormat,
        reasoning=bool(budget) or effort not in ("", "none"),
        effort=effort,
        web_search=searches or asks,
        search_offered=asks and not searches and type(options.tool_choice) is not schema.WebSearchChoice,
        image_output=draws,
        n=options.n or 1,
        max_tokens=options.max_completion_tokens or options.max_tokens,
        prompt_bytes=prompt.text + sum([_size(tool) for tool in tools or ()]) + shape,
        messages=prompt.messages,
        media=prompt.images + prompt.earlier_images + prompt.audio + prompt.files,
        forced_tool=forced,
        vendor_only=dialect.NAME if needed else "",
        hosted=dialect.NAME if newer and not needed else "",
        parameters=capabilities_of(read_sampling(options)),
        cache_marks=marks,
        hosted_uses=collect(uses) if uses else NO_USES,
    )


def request_of(
    model: str, options: schema.ChatOptions, prompt: PromptSize, messages: tuple[Message, ...], *, marks: bool = False
) -> ChatRequest:
    """Return the request for messages with these options, which may change; `marks`: the messages have cache marks."""
    normalize(options)
    own = options_of(options)
    marks = marks or any(getattr(tool, "cache_control", None) for tool in options.tools or ())
    return ChatRequest(
        model,
        requirements_of(options, prompt, marks=marks, draws=own.image_config is not None),
        lambda: decode_options(options, effort_of(options), messages),
        own,
        user=options.user or "",
    )


def options_of(options: schema.ChatOptions, extra: dict[str, Any] | None = None) -> Options:
    """Return the options that the gateway itself handles, with `extra` fields that only one provider supports."""
    if not extra and not any(READ_OPTIONS(options)):
        return NO_OPTIONS
    extra = extra or {}
    if options.sensitive_word_check is not None:
        extra["sensitive_word_check"] = {"status": options.sensitive_word_check.status}
    return gateway_options(
        options,
        _preferences(options),
        extra,
        session=options.user or "",
        heal=any(plugin.id == HEALING for plugin in options.plugins or ()),
    )


def gateway_options(
    body: Any, preferences: dict[str, Any], extra: dict[str, Any], *, session: str, **more: Any
) -> Options:
    """Return the options of a body with the gateway's fields. Without a prompt cache key, `session` is the session."""
    if body.prompt_cache_options is not None:
        extra["prompt_cache_options"] = to_builtins(body.prompt_cache_options)
    return Options(
        **read_choice(body, preferences),
        free_models_only=bool(body.free_models_only),
        service_tier=dialect.tier_of(body.service_tier),
        session=body.prompt_cache_key or session,
        prompt_cache_key=body.prompt_cache_key or "",
        prompt_cache_retention=dialect.retention_of(body.prompt_cache_retention),
        extra=extra,
        **more,
    )


def _preferences(options: schema.ChatOptions) -> dict[str, Any]:
    members = read_preferences(
        PREFERENCES, routing=options.routing, no_reasoning=options.no_reasoning, image_config=options.image_config
    )
    config = members.get("image_config")
    if config is not None:
        members["image_config"] = {
            key: value for key in config.__struct_fields__ if (value := getattr(config, key)) is not None
        }
    return members


def _size(tool: object) -> int:
    """Return the bytes of text that a tool adds to the prompt."""
    if type(tool) is not schema.FunctionTool:
        return len(encode(tool))
    spec = tool.function
    parameters = 0 if spec.parameters is UNSET else len(memoryview(spec.parameters))
    newer = 0 if tool.newer is None else len(encode(tool.newer))
    return len(spec.name) + len(spec.description or "") + parameters + newer


def _shape_size(format: object) -> int:
    """Return the bytes of the response schema, which the model reads."""
    if type(format) is schema.JsonSchemaFormat:
        return len(encode(format.json_schema))
    return 0


def _forced(choice: object) -> str:
    if choice is None or choice in ("auto", "none"):
        return ""
    if isinstance(choice, schema.AllowedChoice):
        if choice.allowed_tools.mode == "required":
            return "required"
        return ""
    if isinstance(choice, schema.UnknownChoice):
        return ""
    if isinstance(choice, schema.WebSearchChoice):
        return "web_search"
    if choice == "required":
        return "required"
    return "tool"


def _newer(members: schema.NewerMembers | None, kind: str) -> dict[str, Any]:
    """Return the members of a tool that are newer than this gateway, as fields of the neutral tool."""
    if members is None:
        return {}
    names = tuple(name[:NAME_LENGTH] for name in (*members.tool, *members.inner))
    return {"newer": names, "vendor": dialect.NAME, "body": {**members.tool, kind: members.inner}}


def read_mark(control: schema.CacheControl | None) -> CacheMark | None:
    """Return a cache mark in the neutral form."""
    if control is None:
        return None
    return CacheMark(control.ttl or "")


def _tool(tool: object, place: int) -> Tool:
    match tool:
        case schema.FunctionTool(function=spec):
            return FunctionTool(
                name=spec.name,
                description=spec.description or "",
                schema=_object(spec.parameters, f"tools.{place}.function.parameters"),
                strict=spec.strict,
                cache=read_mark(tool.cache_control),
                deferred=bool(tool.defer_loading),
                **_newer(tool.newer, "function"),
            )
        case schema.CustomTool(custom=spec):
            return CustomTool(spec.name, spec.description or "", spec.format, **_newer(tool.newer, "custom"))
        case schema.WebSearchTool():
            domains = (tool.allowed_domains, tool.blocked_domains)
            return read_search(tool.user_location, tool.search_context_size, domains, tool.max_uses)
        case schema.UnknownTool():
            return VendorTool(dialect.NAME, tool.kind, tool.body)
        case _:
            return VendorTool(vendor="responses", kind="tool_search", body={"type": "tool_search"})


def _requested_search(options: schema.ChatOptions) -> tuple[WebSearch, ...]:
    """Return the web search that a field beside the tools requests, if any."""
    search = options.web_search_options
    if search is None:
        if options.web_search:
            return (WebSearch(),)
        return ()
    where = search.user_location.approximate if search.user_location else None
    return (read_search(where, search.search_context_size),)


def read_search(
    location: schema.Location | None,
    context_size: str | None,
    domains: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
    max_uses: int | None = None,
) -> WebSearch:
    """Return a web search; `domains` are those that are allowed and those that are blocked."""
    allowed, blocked = domains
    where = location or schema.Location()
    return WebSearch(
        max_uses=max_uses,
        allowed_domains=tuple(allowed or ()),
        blocked_domains=tuple(blocked or ()),
        context_size=context_size or "",
        city=where.city or "",
        region=where.region or "",
        country=where.country or "",
        timezone=where.timezone or "",
    )


def _object(raw: Raw | UnsetType, path: str) -> dict[str, Any] | None:
    """Return the JSON object of a schema; None when it is absent or null."""
    if raw is UNSET:
        return None
    decoded: dict[str, Any] | None
    try:
        decoded = orjson.loads(memoryview(raw))
        return decoded
    except orjson.JSONDecodeError:
        pass
    try:
        decoded = orjson.loads(without_halves(bytes(raw)))
        return decoded
    except orjson.JSONDecodeError as error:
        raise invalid(path, f"not valid JSON ({error})") from None


def _choice(choice: Literal["auto", "none", "required"] | schema.ChoiceObject | None) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case str():
            return ToolChoice(choice)
        case schema.FunctionChoice():
            return ToolChoice("tool", choice.function.name)
        case schema.CustomChoice():
            return ToolChoice("tool", choice.custom.name)
        case schema.AllowedChoice():
            return ToolChoice(choice.allowed_tools.mode)
        case schema.UnknownChoice():
            return ToolChoice("auto", choice.kind, dialect.NAME, choice.body)
        case _:
            return ToolChoice("web_search")


def _allowed(tools: tuple[Tool, ...], allowed: schema.AllowedTools) -> tuple[Tool, ...]:
    """Return only the tools that the choice lists ({type, function|custom: {name}}); the others are hidden from the
    model."""
    names = set()
    for entry in allowed.tools:
        named = entry.get("function") or entry.get("custom")
        names.add(named.get("name") if isinstance(named, dict) else None)
    return tuple(tool for tool in tools if getattr(tool, "name", "") in names)


def _format(chosen: object) -> ResponseFormat | None:
    match chosen:
        case schema.JsonSchemaFormat(json_schema=wanted):
            body = _object(wanted.schema, "response_format.json_schema.schema")
            return ResponseFormat("json_schema", wanted.name, wanted.description or "", body, wanted.strict)
        case schema.JsonObjectFormat():
            return ResponseFormat("json_object")
        case schema.TextFormat():
            return ResponseFormat("text")
        case _:
            return None


def _reasoning(options: schema.ChatOptions, effort: Effort | Literal[""]) -> ReasoningOptions:
    reasoning = options.reasoning or schema.Reasoning()
    enabled = None
    if effort or reasoning.max_tokens:
        enabled = effort != "none" or bool(reasoning.max_tokens)
    return ReasoningOptions(effort=effort, budget=reasoning.max_tokens, enabled=enabled, mode=reasoning.mode or "")


def read_sampling(options: schema.ChatOptions) -> Sampling:
    """Return the parameters."""
    return PARAMETER_READER.read(options, max_tokens=options.max_completion_tokens or options.max_tokens)
