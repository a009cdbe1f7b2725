"""Checks requests like api.openai.com: by the published request types, and by rules that types do not express."""

import itertools
import json
from typing import Any

import openai.types.chat
import openai.types.shared_params
from fakes.published_types import check, worst_of
from fakes.tool_rules import NAME_64, repeated, schema_mistakes
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as NonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Streaming
from pydantic import ValidationError

PATH = "/v1/chat/completions"
REFUSED_KEY = "sk-revoked"
MISSING_MODEL = "gpt-none"
LONGEST_ID = 40
SAYS_SOMETHING = ("content", "tool_calls", "refusal", "audio")
ROLES = {
    "system": ChatCompletionSystemMessageParam,
    "developer": ChatCompletionDeveloperMessageParam,
    "user": ChatCompletionUserMessageParam,
    "assistant": ChatCompletionAssistantMessageParam,
    "tool": ChatCompletionToolMessageParam,
}


class Refused(Exception):
    """An error response of the real service."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def check_request(environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> dict[str, Any]:
    """Return the body of a valid request. Refused for an invalid one."""
    body = parse(environ, headers, payload)
    check_body(body)
    return body


def parse(environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> Any:
    """Return the JSON of a request with a key to the right path."""
    key = headers.get("authorization", "").removeprefix("Bearer ")
    if not key or key == REFUSED_KEY:
        raise Refused("Incorrect API key provided: sk-rev***ked.", status=401, code="invalid_api_key")
    if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] != "POST":
        raise Refused(f"Invalid URL ({environ['REQUEST_METHOD']} {environ['PATH_INFO']})", status=404)
    if "application/json" not in environ.get("CONTENT_TYPE", ""):
        raise Refused("Unsupported content type.", status=415)
    try:
        return json.loads(payload)
    except ValueError:
        raise Refused("We could not parse the JSON body of your request.") from None


def check_body(body: Any) -> None:
    """Check a body."""
    _check_types(body)
    _check_user(body.get("user", ""))
    _check_rules(body)
    _check_tools(body)
    _check_calls(body["messages"])
    if body["model"] == MISSING_MODEL:
        raise Refused(f"The model `{MISSING_MODEL}` does not exist.", status=404, code="model_not_found")


def _check_types(body: Any) -> None:
    if not isinstance(body, dict):
        raise Refused("We could not parse the JSON body of your request.")
    messages = body.get("messages")
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise Refused(f"Invalid value: '{role}'.", param=f"messages[{place}].role", code="invalid_value")
        _check_shape(ROLES[role], message, "messages", place)
    _check_shape(Streaming if body.get("stream") is True else NonStreaming, body)


def _check_shape(shape: type, value: Any, *path: str | int) -> None:
    try:
        check(shape, value, openai.types.chat, openai.types.shared_params)
    except ValidationError as error:
        raise _refusal(error, path) from None


def _refusal(error: ValidationError, prefix: tuple[str | int, ...]) -> Refused:
    found = worst_of(error)
    steps = [*prefix, *(step for step in found["loc"] if not str(step).endswith("Param"))]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    if found["type"] == "extra_forbidden" and len(steps) == 1:
        return Refused(f"Unrecognized request argument supplied: {path}")
    if found["type"] == "extra_forbidden":
        return Refused(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")
    if found["type"] == "missing":
        return Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
    return Refused(f"Invalid value for '{path}': {found['msg']}.", param=path, code="invalid_value")


def _check_user(user: str) -> None:
    if len(user) > 64:
        message = f"Invalid 'user': string too long. Expected a string with maximum length 64, got {len(user)}."
        raise Refused(message, param="user", code="string_above_max_length")


def _check_rules(body: dict[str, Any]) -> None:
    """Check the rules that types do not express."""
    if not body["messages"]:
        raise Refused("Invalid 'messages': empty array.", param="messages", code="empty_array")
    if body.get("tools") == []:
        raise Refused("Invalid 'tools': empty array.", param="tools", code="empty_array")
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not body.get("tools"):
            raise Refused(f"'{name}' is only allowed when 'tools' are specified.", param=name)
    if "stream_options" in body and not body.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    if "max_tokens" in body and not body["model"].startswith(("gpt-3", "gpt-4")):
        raise Refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Refused("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1), ("presence_penalty", -2, 2)):
        if body.get(name) is not None and not low <= body[name] <= high:
            raise Refused(f"Invalid '{name}': out of range.", param=name, code="decimal_out_of_range")


def check_name(name: str, path: str) -> None:
    if not NAME_64.fullmatch(name):
        raise Refused(
            f"Invalid '{path}': string does not match pattern '^[a-zA-Z0-9_-]+$', or is longer than 64 characters.",
            param=path,
            code="invalid_value",
        )


def check_functions(functions: list[tuple[str, dict[str, Any]]]) -> None:
    """Check names and schemas of functions, each with its path in the request."""
    for path, function in functions:
        check_name(function["name"], f"{path}.name")
        for mistake in schema_mistakes(function.get("parameters")):
            raise Refused(
                f"Invalid schema for function '{function['name']}': {mistake}",
                param=f"{path}.parameters",
                code="invalid_function_parameters",
            )


def _check_tools(body: dict[str, Any]) -> None:
    """Check names and schemas of functions, and names and ids of calls."""
    tools = body.get("tools") or ()
    check_functions(
        [(f"tools[{place}].function", tool["function"]) for place, tool in enumerate(tools) if "function" in tool]
    )
    for place, tool in enumerate(tools):
        if "custom" in tool:
            check_name(tool["custom"]["name"], f"tools[{place}].custom.name")
    for place, message in enumerate(body["messages"]):
        for number, call in enumerate(message.get("tool_calls") or ()):
            path = f"messages[{place}].tool_calls[{number}]"
            check_name(call[call["type"]]["name"], f"{path}.{call['type']}.name")
            _check_id(call["id"], f"{path}.id")
        _check_id(message.get("tool_call_id", ""), f"messages[{place}].tool_call_id")


def _check_id(ident: str, path: str) -> None:
    if len(ident) > LONGEST_ID:
        raise Refused(
            f"Invalid '{path}': string too long. Expected a string with maximum length {LONGEST_ID}, but got a string "
            f"with length {len(ident)} instead.",
            param=path,
            code="string_above_max_length",
        )


def check_reasoned_calls(body: dict[str, Any]) -> None:
    """Check what services with thinking models check besides: a turn with calls has its reasoning, if only an empty one
    (DeepSeek, Moonshot and Xiaomi, error messages)."""
    if (body.get("thinking") or {}).get("type") == "disabled":
        return
    for place, message in enumerate(body["messages"]):
        if message.get("tool_calls") and message.get("reasoning_content") is None:
            raise Refused(
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
            )


def check_answers(messages: list[dict[str, Any]]) -> None:
    """Check what strict servers of OpenAI's format check of past answers: the arguments of a call are a JSON object
    (Alibaba, MiniMax, Moonshot, vLLM, error messages), and refusals, which only OpenAI knows, are text."""
    for place, message in enumerate(messages):
        parts = message.get("content") if isinstance(message.get("content"), list) else []
        if message.get("refusal") or any(part["type"] == "refusal" for part in parts):
            raise Refused(f"messages.{place}: property 'refusal' is unsupported")
        for call in message.get("tool_calls") or ():
            try:
                right = isinstance(json.loads(call["function"]["arguments"]), dict)
            except ValueError:
                right = False
            if not right:
                raise Refused('The "function.arguments" parameter of the code model must be in JSON format.')


def check_alternation(messages: list[dict[str, Any]]) -> None:
    """Check what Perplexity checks: instructions in front, then turns of the user (or results) and of the assistant,
    one after the other, and the last one is not the assistant's."""
    roles = [message["role"] for message in messages]
    while roles and roles[0] == "system":
        roles.pop(0)
    turns = ["results" if role == "tool" else role for role in roles]
    turns = [role for place, role in enumerate(turns) if role != "results" or turns[place - 1] != role or not place]
    expected = itertools.cycle((("user", "results"), ("assistant",)))
    if any(role not in right for role, right in zip(turns, expected, strict=False)):
        raise Refused(
            "After the (optional) system message(s), user or tool message(s) should alternate with assistant "
            "message(s)."
        )
    if turns and turns[-1] == "assistant":
        raise Refused("Last message must have role `user` or `tool`.")


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Check that every tool message answers a directly preceding call, and that every call is answered."""
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                    "'tool_calls'.",
                    param=f"messages.[{place}].role",
                )
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            break
        calls = message.get("tool_calls")
        if calls == []:
            raise Refused("Invalid 'tool_calls': empty array.", param=f"messages[{place}].tool_calls")
        if message["role"] == "assistant" and not any(message.get(name) is not None for name in SAYS_SOMETHING):
            raise Refused("Invalid value for 'content': expected a string, got null.", param="messages.content")
        idents = [call["id"] for call in calls or ()]
        if repeated(idents):
            raise Refused(f"Duplicate tool call id '{repeated(idents)}'.", param=f"messages[{place}].tool_calls")
        waiting = set(idents)
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(sorted(waiting))}",
            param="messages",
        )
