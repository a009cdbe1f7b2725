"""The Responses protocol: builds the call that a target and its entry require.

Every request is stateless (`store: false`) and requests encrypted reasoning. The gateway stores conversations itself,
so any account and any region can serve any turn.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import json

from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.openai import is_name
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    ChatResult,
    Conversation,
    CustomTool,
    FunctionTool,
    Native,
    ReasoningOptions,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.events import Batch
from gateway.neutral.parameters import fields_of, lost_by
from gateway.neutral.parts import NAME_LENGTH
from gateway.providers import quirks
from gateway.providers.failures import upstream_failure
from gateway.providers.function_parameters import complete_relayed
from gateway.providers.openai.address import Tokens, endpoint_of
from gateway.providers.openai.request import effort_of, shorten_user, write_tier
from gateway.providers.openai.responses_input import InputWriter, retarget
from gateway.providers.openai.responses_reply import read_result
from gateway.providers.openai.responses_stream import ResponsesStreamReader
from gateway.providers.parameter_writer import ParameterWriter, is_unlisted
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import OPENAI
from gateway.providers.unsupported_parts import spell_out, warn_of_names

# Writes a neutral conversation as an OpenAI Responses body.

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
    inner = grammar.get("grammar") if grammar else None
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
    kind = "custom" if any(isinstance(t, CustomTool) and t.name == choice.name for t in tools) else "function"
    return {"type": kind, "name": choice.name}


def _is_in_items(tool: Tool) -> bool:
    """Return whether the conversation has these tools in an item."""
    return isinstance(tool, VendorTool) and tool.kind == dialect.LATER_TOOLS


def _stands_for(tool: VendorTool, name: str) -> bool:
    """Return whether other vendors have a function of this name in place of the tool."""
    named = any(isinstance(each, FunctionTool) and each.name == name for each in tool.instead)
    return named and not _is_in_items(tool)


# Bodies of callers who speak the Responses format themselves, with the changes that their neutral form had for a
# model: an effort, parameters and tools that it lacks. All other members stay.
#
# The values of a native body are shared with the parsed request, so every changed object is a copy.

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


PATH = "/responses"
PARALLEL = "parallel_tool_calls"
MIN_OUTPUT_TOKENS = 16  # OpenAI API reference, max_output_tokens: lower values are refused
# Parameters that are left out with a warning when the mapping's entry lists parameters without them.
OPTIONAL = tuple((path, row) for path, row in fields_of(dialect.NAME).items() if row.listed)
# Parameters that are removed where the mapping lacks the flag of their capability. parallel_tool_calls is reported.
FLAGGED = tuple(
    (path, row.capability.flag)
    for path, row in fields_of(dialect.NAME).items()
    if row.capability and row.capability.flag and path != PARALLEL
)


class OpenAIResponses:
    """POST {address}/responses. `tokens` as for OpenAIChat."""

    dialect = dialect.NAME
    lost = lost_by(dialect) | {"cache_marks"}
    waits = False
    mends = True

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Return the call for a neutral request; NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        known = target.provider.responses_tools
        free_text, kinds = not known or "custom" in known, _items_for(known)
        prepared = prepare(request, self.dialect, OPENAI, warnings, free_text=free_text, kinds=kinds)
        body = write_body(prepared.request, _origin(target), warnings, unseals=target.unseals)
        _check_tools(body, target)
        if not target.mapping.web_search and any(tool["type"] == "web_search" for tool in body.get("tools", ())):
            raise NotSupported("This provider has no web search for this model.", param="tools")
        call = _finish(body, request, target, warnings, self._tokens)
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Return the call with the caller's body, retargeted. NotSupported for a body that must be rebuilt or that
        belongs to another account."""
        _check_tools(native.body, target)
        _check_items(native.body.get("input"), target)
        warnings: list[str] = []
        items = retarget(native.body.get("input"), _origin(target), target.unseals, warnings)
        body = {**native.body, "input": items}
        if native.adapted:
            apply_changes(body, request.conversation())
        if "tools" in body:
            body["tools"] = complete_relayed(body["tools"])
        if not target.mapping.web_search:
            _drop_search(body, target, warnings)
        return _finish(body, request, target, warnings, self._tokens)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete answer. UpstreamFailed for an unexpected shape, an empty answer or a failed response."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield a streamed answer as batches, one for each receive."""
        return ResponsesStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        return upstream_failure(reply, target)


NAMED_TOOLS = ("function", "custom")


def _check_tools(body: Body, target: Target) -> None:
    """Raise NotSupported for a tool type that the provider's API lacks, and for a name of a function that it refuses:
    the rebuilt body has another one."""
    for tool in body.get("tools", ()):
        if tool["type"] in NAMED_TOOLS and not is_name(tool.get("name")):
            raise NotSupported(
                "This name of a function is too long, or has letters that this API refuses.", param="tools"
            )
    known = target.provider.responses_tools
    for tool in body.get("tools", ()) if known else ():
        if tool["type"] not in known:
            raise NotSupported(f"This provider has no tool of type {tool['type']}.", param="tools")


# Items that every server of this format reads.
COMMON_ITEMS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def _items_for(tools: tuple[str, ...]) -> frozenset[str] | None:
    """Return the types of items that a server with these tools reads; None for one with all of them."""
    if not tools:
        return None
    found = [f"{tool}_call" for tool in tools]
    if "mcp" in tools:
        found += ["mcp_list_tools", "mcp_approval_request", "mcp_approval_response"]
    if "custom" in tools:
        found += ["custom_tool_call", "custom_tool_call_output"]
    return frozenset((*COMMON_ITEMS, *found))


def _check_items(items: Any, target: Target) -> None:
    """Raise NotSupported for an item of a type that the provider's API lacks: the rebuilt body has another one."""
    known = _items_for(target.provider.responses_tools)
    for item in items if known is not None and isinstance(items, list) else ():
        kind = item.get("type", COMMON_ITEMS[0]) if type(item) is dict else item.__struct_config__.tag
        if known is not None and kind not in known:
            raise NotSupported(f"This provider has no item of type {kind[:NAME_LENGTH]}.", param="input")


def _origin(target: Target) -> str:
    return dialect.origin_of(target.provider.id, target.credential.ident)


def _finish(body: Body, request: ChatRequest, target: Target, warnings: list[str], tokens: Tokens | None) -> Call:
    """Return the call for a rebuilt or relayed body, with model, stream, limits, supported parameters, quirks, URL and
    credential."""
    body = {"model": target.mapping.external_id, **body, "store": False}
    if request.requirements.stream:
        body["stream"] = True
    else:
        body.pop("stream_options", None)  # the service refuses it in a non-streamed request
    _include(body, target)
    _limit(body, target, warnings)
    _fit(body, request, target, warnings)
    for name in target.quirks:
        quirk = QUIRKS.get(name)
        if quirk is not None:
            quirk(body, request)
    stream = request.requirements.stream
    endpoint = endpoint_of(target, PATH, stream, tokens)
    return Call("POST", endpoint.url, endpoint.headers, json.encode(body), stream, tuple(warnings), endpoint=endpoint)


def _include(body: Body, target: Target) -> None:
    """Request encrypted reasoning from reasoning models; other models refuse the field."""
    included = [name for name in body.pop("include", ()) if name != dialect.ENCRYPTED]
    if target.mapping.reasoning:
        included.append(dialect.ENCRYPTED)
    if included:
        body["include"] = included


def _limit(body: Body, target: Target, warnings: list[str]) -> None:
    """Clamp values to the target's range: output cap, lowest output limit, highest temperature."""
    cap = target.output_cap
    requested = body.get("max_output_tokens")
    if cap is not None and (requested is None or requested > cap):
        body["max_output_tokens"] = cap
    if requested is not None and requested < MIN_OUTPUT_TOKENS:
        body["max_output_tokens"] = MIN_OUTPUT_TOKENS
        warnings.append(f"max_output_tokens was raised to {MIN_OUTPUT_TOKENS}, the minimum of this provider.")
    highest = target.mapping.max_temperature
    if highest and (body.get("temperature") or 0) > highest:
        body["temperature"] = highest


def _fit(body: Body, request: ChatRequest, target: Target, warnings: list[str]) -> None:
    """Remove fields that the mapping does not support and that are not essential, and add the fields of the options."""
    mapping = target.mapping
    options = request.options
    if quirks.NO_SAMPLING in target.quirks:
        warnings.extend(quirks.report_fixed(body, mapping.key))
    for name, row in OPTIONAL:
        if name in body and is_unlisted(row, mapping):
            del body[name]
            warnings.append(f"{name} is not supported by {mapping.key} and was left out.")
    if not mapping.parallel_tool_calls and body.pop("parallel_tool_calls", None) is False:
        warnings.append(f"parallel_tool_calls is not supported by {mapping.key} and was left out.")
    for path, flag in FLAGGED:
        if not getattr(mapping, flag):
            quirks.drop_field(body, path)
    _fit_reasoning(body, target)
    if options.prompt_cache_key or options.session_cache_key:
        body["prompt_cache_key"] = quirks.cache_key_of(request)
    if options.service_tier:
        write_tier(body, options.service_tier, target)


def _fit_reasoning(body: Body, target: Target) -> None:
    """Remove `reasoning` for models without reasoning, and the effort "none" for models that always reason; they refuse
    these."""
    mapping = target.mapping
    if not mapping.reasoning:
        body.pop("reasoning", None)
    elif mapping.reasoning_efforts and "none" not in mapping.reasoning_efforts:
        reasoning = body.get("reasoning")
        if reasoning and reasoning.get("effort") == "none":
            quirks.drop_field(body, "reasoning.effort")


def _drop_search(body: Body, target: Target, warnings: list[str]) -> None:
    """Remove a web search that the request only offers. Requests that require one are never routed to this target."""
    tools = body.get("tools") or ()
    remaining = [tool for tool in tools if not str(tool.get("type", "")).startswith("web_search")]
    if len(remaining) == len(tools):
        return
    warnings.append(f"web_search is not supported by {target.mapping.key} and was left out.")
    if remaining:
        body["tools"] = remaining
        return
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        body.pop(name, None)


def _no_effort(body: Body, request: ChatRequest) -> None:
    quirks.drop_field(body, "reasoning.effort")


def _sends_cache_terms(body: Body, request: ChatRequest) -> None:
    """Send retention and options of the prompt cache, besides the key, to providers that accept them."""
    options = request.options
    if options.prompt_cache_retention:
        body["prompt_cache_retention"] = options.prompt_cache_retention
    if options.extra.get("prompt_cache_options"):
        body["prompt_cache_options"] = options.extra["prompt_cache_options"]


def _no_user(body: Body, request: ChatRequest) -> None:
    body.pop("user", None)
    body.pop("safety_identifier", None)


def _no_max_tool_calls(body: Body, request: ChatRequest) -> None:
    body.pop("max_tool_calls", None)


# The quirks that apply to this format; other names in catalogue entries are skipped.
QUIRKS: dict[str, Callable[[Body, ChatRequest], None]] = {
    **quirks.removals_in(dialect.NAME),
    "tool_choice_auto": quirks.tool_choice_auto,
    "no_user": _no_user,
    "no_max_tool_calls": _no_max_tool_calls,
    "no_reasoning_effort": _no_effort,
    "sends_prompt_cache": _sends_cache_terms,
}
