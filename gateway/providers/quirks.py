"""Small named adjustments of an OpenAI-format body that a provider's or a mapping's entry can list.

A quirk receives the body before it is sent and the request, and changes the body's top level in place. Nested values
are shared, so they are replaced and never changed. The rows of neutral/parameters.py name the quirks that remove
parameters. Quirks run last, in the order of the entry. Quirks for reasoning are
in thinking_quirks.py, quirks for messages in message_shapes.py.
"""

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import ContentNeeded, NotSupported
from gateway.neutral.chat import NO_OPTIONS, ChatRequest
from gateway.neutral.parameters import fields_of, removed_by_quirks
from gateway.neutral.tool_arguments import is_object
from gateway.providers.media_fetching import addressed
from gateway.providers.message_shapes import MESSAGE_SHAPES, plain_answers

# Quirks (see quirks.py) for the options of OpenAI-format providers that switch, limit and report reasoning.

Body = dict[str, Any]
BASIC_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
THREE_EFFORTS = {"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}


def no_reasoning_effort(body: Body, request: ChatRequest) -> None:
    body.pop("reasoning_effort", None)


def basic_reasoning_effort(body: Body, request: ChatRequest) -> None:
    """Send the nearest of low, medium and high to servers that accept only these; "none" is left out."""
    effort = body.get("reasoning_effort")
    if effort == "none":
        del body["reasoning_effort"]
    elif effort in BASIC_EFFORTS:
        body["reasoning_effort"] = BASIC_EFFORTS[effort]


def thinking_switch(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `thinking: {type}` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}


def enable_thinking(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `enable_thinking` and limit it by `thinking_budget` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is None and not request.requirements.reasoning:
        return
    body["enable_thinking"] = effort != "none"
    budget = request.conversation().reasoning.budget
    if budget and effort != "none":
        body["thinking_budget"] = budget


def thinking_and_effort(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `thinking: {type}`, with an effort of low, high or max."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def effort_alone(body: Body, request: ChatRequest) -> None:
    """Send only the effort (low, high or max) to a model that always reasons and lacks its provider's switch."""
    body.pop("thinking", None)
    effort = request.requirements.effort
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def adaptive_thinking(body: Body, request: ChatRequest) -> None:
    """Let the model decide on reasoning by `thinking: {type: adaptive}`, or switch it off."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "adaptive"}


def template_thinking(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by an argument of the model's chat template, for engines that pass it on."""
    effort = body.get("reasoning_effort")
    if effort is not None:
        body["chat_template_kwargs"] = {"enable_thinking": effort != "none"}


def thinking_needs_stream(body: Body, request: ChatRequest) -> None:
    """Switch reasoning off in non-streamed requests, for models that otherwise refuse these."""
    if not body.get("stream"):
        body["enable_thinking"] = False
        body.pop("thinking_budget", None)


def none_or_high_effort(body: Body, request: ChatRequest) -> None:
    """Replace efforts by "high" for servers that accept only none and high."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "high"


def none_or_default_effort(body: Body, request: ChatRequest) -> None:
    """Replace efforts by "default" for models that accept only none and default."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "default"


def parsed_reasoning(body: Body, request: ChatRequest) -> None:
    """Request reasoning in a separate field from servers that otherwise mix it into the text."""
    body["reasoning_format"] = "parsed"


def split_reasoning(body: Body, request: ChatRequest) -> None:
    """Request `reasoning_details` from servers that otherwise write reasoning as tagged text."""
    body["reasoning_split"] = True


THINKING_QUIRKS: dict[str, Callable[[Body, ChatRequest], None]] = {
    function.__name__: function
    for function in (
        no_reasoning_effort,
        basic_reasoning_effort,
        thinking_switch,
        enable_thinking,
        thinking_and_effort,
        effort_alone,
        adaptive_thinking,
        template_thinking,
        thinking_needs_stream,
        none_or_high_effort,
        none_or_default_effort,
        parsed_reasoning,
        split_reasoning,
    )
}


Quirk = Callable[[Body, ChatRequest], None]

# A flag of the entry, without a function: past reasoning is sent back as `reasoning_content`.
REPLAY_REASONING = "replay_reasoning"
# Only for models that reason: see the function of this name.
REASONED_CALLS = "reasoning_content_required"
# Changes of the URL: `?api-version=` from the provider's settings; with a dated version, the model is in the path.
API_VERSION_QUERY = "api_version_query"
DEPLOYMENT_PATH = "deployment_path"
# Answers contain reasoning between tags, which is split off (think_tags.py).
THINK_TAGS = "think_tags"
# The engine's own API for the details of its models (local/engines.py).
DETAILS_BY_SHOW = "details_by_show"
DETAILS_BY_LIST = "details_by_list"
# Sampling of reasoning models is fixed: warnings name the parameters that the quirk of this name removes.
NO_SAMPLING = "no_sampling"
# The path of native text completions (openai/fim.py).
FIM_COMPLETIONS = "fim_completions"
BETA_COMPLETIONS = "beta_completions"
COMPLETES = frozenset((FIM_COMPLETIONS, BETA_COMPLETIONS))


def drop_field(body: Body, path: str) -> None:
    """Remove the field at a dotted path, and the object that it was in if that is then empty. Nested values are shared,
    so the object is copied."""
    outer, dot, name = path.partition(".")
    if not dot:
        body.pop(path, None)
        return
    holder = body.get(outer)
    if not holder or name not in holder:
        return
    members = {key: value for key, value in holder.items() if key != name}
    if members:
        body[outer] = members
    else:
        del body[outer]


def _removal(name: str, paths: list[str]) -> Quirk:
    plain = [path for path in paths if "." not in path]
    nested = [path for path in paths if "." in path]

    def quirk(body: Body, request: ChatRequest) -> None:
        for path in plain:
            body.pop(path, None)
        for path in nested:
            drop_field(body, path)

    quirk.__name__ = name
    return quirk


def removals_in(dialect: str) -> dict[str, Quirk]:
    """Return the quirks that remove parameters from requests of a dialect, by name."""
    return {name: _removal(name, paths) for name, paths in removed_by_quirks(dialect).items()}


def no_user(body: Body, request: ChatRequest) -> None:
    body.pop("user", None)


def max_tokens_old_name(body: Body, request: ChatRequest) -> None:
    """Rename max_completion_tokens to its predecessor max_tokens."""
    if "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")


def no_stream_options(body: Body, request: ChatRequest) -> None:
    """Remove stream_options for servers that refuse it (most of them always send usage)."""
    body.pop("stream_options", None)


# Parameters that NO_SAMPLING removes, and no capability reports.
SAMPLING_PARAMETERS = tuple(
    path for path, row in fields_of(dialect.NAME).items() if NO_SAMPLING in row.quirks and row.capability is None
)


def report_fixed(body: Body, key: str) -> list[str]:
    """Return a warning for each sampling field that `no_sampling` removes, unless it has the default value."""
    named = [name for name in SAMPLING_PARAMETERS if body.get(name) not in (None, 1)]
    return [f"{name} is fixed for {key} and was left out." for name in named]


def one_stop(body: Body, request: ChatRequest) -> None:
    """Send only the first stop sequence, for servers that accept a single one."""
    if isinstance(body.get("stop"), list):
        body["stop"] = body["stop"][:1]


def streamed_tool_arguments(body: Body, request: ChatRequest) -> None:
    """Request streamed tool arguments from servers that otherwise buffer them until they are complete."""
    if body.get("stream") and body.get("tools"):
        body["tool_stream"] = True


def parameters_required(body: Body, request: ChatRequest) -> None:
    """Add empty `parameters` to functions without them, for servers that require the field."""
    if body.get("tools"):
        body["tools"] = [_with_parameters(tool) for tool in _plain(body["tools"])]


def required_as_any(body: Body, request: ChatRequest) -> None:
    """Replace the tool choice "required" by "any" for servers that use this name."""
    if body.get("tool_choice") == "required":
        body["tool_choice"] = "any"


def tool_choice_auto(body: Body, request: ChatRequest) -> None:
    """Replace other tool choices by "auto" for servers that only accept auto and none."""
    if body.get("tool_choice") not in (None, "auto", "none"):
        body["tool_choice"] = "auto"


def inline_media(body: Body, request: ChatRequest) -> None:
    """Raise ContentNeeded when the request contains a URL, for servers that load no URLs."""
    if request.requirements.media and addressed(request):
        raise ContentNeeded("This provider does not load URLs; send the content as base64.", param="messages")


def no_strict(body: Body, request: ChatRequest) -> None:
    """Remove `strict` from functions for servers that refuse it."""
    if body.get("tools"):
        body["tools"] = [_without_strict(tool) for tool in _plain(body["tools"])]


def no_cache_breakpoints(body: Body, request: ChatRequest) -> None:
    """Remove explicit cache breakpoints from the messages. The messages are only searched when the request has one."""
    if "prompt_cache_breakpoint" in request.options.extra:
        body["messages"] = [_without_breakpoint(message) for message in _plain(body["messages"])]


def content_null_required(body: Body, request: ChatRequest) -> None:
    """Add `content: null` to assistant messages with calls and no content, for servers that require it."""
    body["messages"] = [
        {**message, "content": None} if message.get("tool_calls") and not message.get("content") else message
        for message in _plain(body["messages"])
    ]


def content_text_required(body: Body, request: ChatRequest) -> None:
    """Replace null or absent content by an empty string, for servers that refuse it."""
    body["messages"] = [
        {**message, "content": ""} if message.get("content") is None else message
        for message in _plain(body["messages"])
    ]


def reasoning_content_required(body: Body, request: ChatRequest) -> None:
    """Add an empty `reasoning_content` to assistant messages with calls and without reasoning, which are those of other
    models: while they reason, some servers refuse such a turn for the rest of the conversation."""
    if (body.get("thinking") or {}).get("type") == "disabled" or not any(map(_has_calls, body["messages"])):
        return
    body["messages"] = [
        {**message, "reasoning_content": ""}
        if _has_calls(message) and not message.get("reasoning_content")
        else message
        for message in _plain(body["messages"])
    ]


def text_as_string(body: Body, request: ChatRequest) -> None:
    """Join text parts into one string, for servers that only accept a string as content."""
    body["messages"] = [_join_text(message) for message in _plain(body["messages"])]


def developer_as_system(body: Body, request: ChatRequest) -> None:
    body["messages"] = _rename_role(body["messages"], "developer", "system")


def system_as_user(body: Body, request: ChatRequest) -> None:
    """Convert system messages to user messages, for models without a system role."""
    body["messages"] = _rename_role(_rename_role(body["messages"], "developer", "user"), "system", "user")


def no_names(body: Body, request: ChatRequest) -> None:
    """Remove `name` from messages for servers that refuse it."""
    body["messages"] = [
        {key: value for key, value in message.items() if key != "name"} for message in _plain(body["messages"])
    ]


def no_format_with_tools(body: Body, request: ChatRequest) -> None:
    """Raise NotSupported for JSON output beside tools, which some servers refuse: another provider may serve both."""
    shape = body.get("response_format")
    if shape and body.get("tools") and _plain([shape])[0]["type"] != "text":
        raise NotSupported("This provider cannot combine JSON output with tools.", param="response_format")


def sends_prompt_cache(body: Body, request: ChatRequest) -> None:
    """Send the prompt cache key, retention and options to providers that accept them. The key is already an opaque hash
    here."""
    options = request.options
    if options is NO_OPTIONS:
        return
    sends_cache_key(body, request)
    if options.prompt_cache_retention:
        body["prompt_cache_retention"] = options.prompt_cache_retention
    if options.extra.get("prompt_cache_options"):
        body["prompt_cache_options"] = options.extra["prompt_cache_options"]


def sends_cache_key(body: Body, request: ChatRequest) -> None:
    """Send the prompt cache key to providers that accept nothing else of the prompt cache."""
    key = cache_key_of(request)
    if key:
        body["prompt_cache_key"] = key


def cache_key_of(request: ChatRequest) -> str:
    """Return the digest of the caller's prompt cache key, else that of the session; "" without any."""
    return request.options.prompt_cache_key or request.options.session_cache_key


def sends_sensitive_word_check(body: Body, request: ChatRequest) -> None:
    if "sensitive_word_check" in request.options.extra:
        body["sensitive_word_check"] = request.options.extra["sensitive_word_check"]


def compatible(body: Body, request: ChatRequest) -> None:
    """Apply the quirks that nearly every OpenAI-compatible server except OpenAI itself needs."""
    max_tokens_old_name(body, request)
    developer_as_system(body, request)
    no_user(body, request)
    no_cache_breakpoints(body, request)
    if not request.plain and any(map(_is_odd_answer, body["messages"])):
        body["messages"] = plain_answers(_plain(body["messages"]))


def _is_odd_answer(message: Any) -> bool:
    """Return whether a past answer has a refusal, or a call with arguments that are not a JSON object."""
    if _role(message) != "assistant":
        return False
    if _member(message, "refusal"):
        return True
    content = _member(message, "content")
    if type(content) is list and any([_kind(part) == "refusal" for part in content]):
        return True
    functions = [_member(call, "function") for call in _member(message, "tool_calls") or ()]
    return not all([is_object(_member(function, "arguments")) for function in functions if function is not None])


def _member(value: Any, name: str) -> Any:
    return value.get(name) if type(value) is dict else getattr(value, name, None)


def _kind(part: Any) -> Any:
    return part.get("type") if type(part) is dict else part.__struct_config__.tag


def _plain(values: list[Any]) -> list[Any]:
    """Return messages, tools or formats as dicts. A relayed body may contain structs instead."""
    if all(type(value) is dict for value in values):
        return values
    decoded: list[Any] = orjson.loads(json.encode(values))
    return decoded


def _rename_role(messages: list[Any], old: str, new: str) -> list[Any]:
    """Return the messages with a role renamed; unchanged when no message has the role."""
    if not any(_role(message) == old for message in messages):
        return messages
    return [{**message, "role": new} if message["role"] == old else message for message in _plain(messages)]


def _role(message: Any) -> str:
    role: str = message["role"] if type(message) is dict else message.__struct_config__.tag
    return role


def _has_calls(message: Any) -> bool:
    return bool(message.get("tool_calls") if type(message) is dict else getattr(message, "tool_calls", None))


def _without_strict(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" not in tool:
        return tool
    return {**tool, "function": {key: value for key, value in tool["function"].items() if key != "strict"}}


def _without_breakpoint(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message.get("content"), list):
        return message
    parts = [
        {key: value for key, value in part.items() if key != "prompt_cache_breakpoint"} for part in message["content"]
    ]
    return {**message, "content": parts}


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    if "function" not in tool or tool["function"].get("parameters") is not None:
        return tool
    return {**tool, "function": {**tool["function"], "parameters": {"type": "object", "properties": {}}}}


def _of_messages(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Quirk:
    """Return a function on messages (message_shapes.py) as a quirk."""

    def quirk(body: Body, request: ChatRequest) -> None:
        body["messages"] = change(_plain(body["messages"]))

    quirk.__name__ = change.__name__
    quirk.__doc__ = change.__doc__
    return quirk


def _join_text(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list) or not all(part.get("type") == "text" for part in content):
        return message
    return {**message, "content": "\n".join(part["text"] for part in content)}


QUIRKS: dict[str, Quirk] = {
    **{
        function.__name__: function
        for function in (
            max_tokens_old_name,
            no_stream_options,
            no_user,
            required_as_any,
            tool_choice_auto,
            inline_media,
            no_strict,
            no_cache_breakpoints,
            content_null_required,
            content_text_required,
            reasoning_content_required,
            text_as_string,
            developer_as_system,
            system_as_user,
            no_names,
            no_format_with_tools,
            sends_cache_key,
            sends_prompt_cache,
            sends_sensitive_word_check,
            compatible,
            one_stop,
            streamed_tool_arguments,
            parameters_required,
        )
    },
    **removals_in(dialect.NAME),
    **THINKING_QUIRKS,
    **{name: _of_messages(change) for name, change in MESSAGE_SHAPES.items()},
    "no_usage_in_stream": no_stream_options,
}


def find_quirks(names: Iterable[str]) -> tuple[Quirk, ...]:
    """Return the quirks of an entry in their order. Names of other protocols' quirks are skipped."""
    return tuple([QUIRKS[name] for name in names if name in QUIRKS])


def adjust(body: Body, request: ChatRequest, names: Iterable[str]) -> None:
    """Apply the quirks of an entry."""
    for quirk in find_quirks(names):
        quirk(body, request)
