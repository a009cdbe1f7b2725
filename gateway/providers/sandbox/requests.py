"""Validates the main fields of requests like the chat completions API.

Source: OpenAI API reference, "Create chat completion"; the error texts are those that clients report.
"""

import re
from typing import Any, get_args

from msgspec import Meta

from gateway.dialects.openai import NAME
from gateway.neutral import parameters
from gateway.neutral.parameters import Parameter, fields_of
from gateway.providers.sandbox.checks import (
    Check,
    between,
    check_fields,
    check_messages,
    member,
    of,
    one_of,
    wrong_type,
    wrong_value,
)
from gateway.providers.sandbox.response import refuse

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_INTEGER = 10_000_000
MAX_TOOLS = 128
MAX_STOPS = 4
CHOICES = ("none", "auto", "required")


def check_chat(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "messages"))
    check_messages(body["messages"])
    _check_combinations(body)


def _check_combinations(body: dict[str, Any]) -> None:
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise refuse(text, "stream_options")
    tools = body.get("tools")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) not in (None, "none") and not tools and not body.get("functions"):
            raise refuse(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise refuse("The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.", "top_logprobs")
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise refuse(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", "max_tokens"
        )
    _check_named_tool(body)


def _check_named_tool(body: dict[str, Any]) -> None:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict) or choice["type"] not in ("function", "custom"):
        return
    tool_name = choice[choice["type"]]["name"]
    if not any(tool[tool["type"]]["name"] == tool_name for tool in body.get("tools") or ()):
        raise refuse(f"Tool choice '{tool_name[:64]}' not found in 'tools' parameter.", "tool_choice")


def _tools(value: Any, param: str) -> None:
    of(list)(value, param)
    if not value:
        raise refuse(f"Invalid '{param}': empty array. Expected an array with minimum length 1.", param, "empty_array")
    if len(value) > MAX_TOOLS:
        text = f"Invalid '{param}': array too long. Expected an array with maximum length {MAX_TOOLS}."
        raise refuse(text, param, "array_above_max_length")
    for place, tool in enumerate(value):
        _tool(tool, f"{param}[{place}]")


def _tool(tool: Any, param: str) -> None:
    of(dict)(tool, param)
    kind = member(tool, "type", param, str)
    if kind not in ("function", "custom"):
        raise wrong_value(kind, f"{param}.type", ("function", "custom"))
    inner = member(tool, kind, param, dict)
    _name(member(inner, "name", f"{param}.{kind}", str), f"{param}.{kind}.name")
    if inner.get("parameters") is not None:
        of(dict)(inner["parameters"], f"{param}.{kind}.parameters")


def _name(value: str, param: str) -> None:
    if not TOOL_NAME.fullmatch(value):
        text = f"Invalid '{param}': string does not match pattern. Expected a string that matches '^[a-zA-Z0-9_-]+$'."
        raise refuse(text, param, "invalid_value")


def _tool_choice(value: Any, param: str) -> None:
    if isinstance(value, str):
        one_of(*CHOICES)(value, param)
        return
    of(str, dict)(value, param)
    kind = member(value, "type", param, str)
    if kind not in ("function", "custom", "allowed_tools"):
        raise wrong_value(kind, f"{param}.type", ("function", "custom", "allowed_tools"))
    inner = member(value, kind, param, dict)
    if kind != "allowed_tools":
        member(inner, "name", f"{param}.{kind}", str)
        return
    one_of("auto", "required")(member(inner, "mode", f"{param}.{kind}", str), f"{param}.{kind}.mode")
    for place, tool in enumerate(member(inner, "tools", f"{param}.{kind}", list)):
        of(dict)(tool, f"{param}.{kind}.tools[{place}]")


def _response_format(value: Any, param: str) -> None:
    of(dict)(value, param)
    kind = member(value, "type", param, str)
    one_of("text", "json_object", "json_schema")(kind, f"{param}.type")
    if kind != "json_schema":
        return
    inner = member(value, "json_schema", param, dict)
    _name(member(inner, "name", f"{param}.json_schema", str), f"{param}.json_schema.name")
    if inner.get("schema") is not None:
        of(dict)(inner["schema"], f"{param}.json_schema.schema")


def _stop(value: Any, param: str) -> None:
    of(str, list)(value, param)
    if isinstance(value, list):
        if len(value) > MAX_STOPS:
            text = f"Invalid '{param}': array too long. Expected an array with maximum length {MAX_STOPS}."
            raise refuse(text, param, "array_above_max_length")
        for place, stop in enumerate(value):
            of(str)(stop, f"{param}[{place}]")


def _stream_options(value: Any, param: str) -> None:
    of(dict)(value, param)
    for name, inner in value.items():
        if name not in ("include_usage", "include_obfuscation"):
            raise refuse(f"Unknown parameter: '{param}.{name[:64]}'.", f"{param}.{name[:64]}", "unknown_parameter")
        if inner is not None:
            of(bool)(inner, f"{param}.{name}")


def _metadata(value: Any, param: str) -> None:
    of(dict)(value, param)
    for name, text in value.items():
        if not isinstance(text, str):
            raise wrong_type(text, f"{param}.{name[:64]}", "a string")


def _check_of(row: Parameter) -> Check:
    """Return the check of a parameter with the type and the limits of its row."""
    if row.words:
        return one_of(*row.words)
    kind = get_args(row.type) or (row.type,)
    limits = next((mark for mark in kind if isinstance(mark, Meta)), None)
    if limits is None:
        return of(kind[0])
    return between(limits.ge or 0, limits.le or MAX_INTEGER, whole=kind[0] is int)


FIELDS: dict[str, Check] = {
    **{path: _check_of(row) for path, row in fields_of(NAME).items() if row.callers.get(NAME) == path},
    "model": of(str),
    "messages": of(list),
    "audio": of(dict),
    "function_call": of(str, dict),
    "functions": of(list),
    "logit_bias": of(dict),
    "logprobs": of(bool),
    "max_completion_tokens": between(1, MAX_INTEGER, whole=True),
    "max_tokens": between(1, MAX_INTEGER, whole=True),
    "metadata": _metadata,
    "modalities": of(list),
    "moderation": of(dict),
    "n": between(1, 128, whole=True),
    "prediction": of(dict),
    "prompt_cache_key": of(str),
    "prompt_cache_options": of(dict),
    "prompt_cache_retention": one_of("in_memory", "in-memory", "24h"),
    "reasoning_effort": one_of(*parameters.ALL_EFFORTS),
    "response_format": _response_format,
    "safety_identifier": of(str),
    "seed": of(int),
    "service_tier": one_of("auto", "default", "flex", "scale", "priority", "fast"),
    "stop": _stop,
    "store": of(bool),
    "stream": of(bool),
    "stream_options": _stream_options,
    "tool_choice": _tool_choice,
    "tools": _tools,
    "top_logprobs": between(0, 20, whole=True),
    "user": of(str),
    "web_search_options": of(dict),
}
