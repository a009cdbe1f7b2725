"""Checks requests like api.anthropic.com: by the published request types, and by rules that types do not express."""

import hashlib
import json
import re
from typing import Any

from fakes import anthropic_types as published
from fakes.published_types import check, worst_of
from fakes.tool_rules import NAME_128
from pydantic import ValidationError

PATH = "/v1/messages"
REFUSED_KEY = "sk-ant-revoked"
MISSING_MODEL = "claude-none"
BROKE_KEY = "sk-ant-broke"
MARKS, MIN_BUDGET = 4, 1024
THOUGHTS = ("thinking", "redacted_thinking")
# Settings that the published types no longer contain; models before the adaptive models still accept them.
SAMPLING = ("temperature", "top_p", "top_k")
TAKES_SYSTEM = re.compile(r"claude-(opus-4-[89]|[a-z]+-[5-9])")  # older models know the roles user and assistant
ADAPTIVE_ONLY = ("claude-opus-5", "claude-sonnet-5")  # models that refuse a budget


class Refused(Exception):
    """An error response of the real service."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}


def sign(thinking: str) -> str:
    """Return the signature for a thinking text, which later requests must contain."""
    return "EqQB" + hashlib.sha256(thinking.encode()).hexdigest()


def check_request(environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> dict[str, Any]:
    """Return the body of a valid request. Refused for an invalid one."""
    key = headers.get("x-api-key", "")
    if not key or key == REFUSED_KEY:
        raise Refused("invalid x-api-key", status=401, kind="authentication_error")
    if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] != "POST":
        raise Refused("Not Found", status=404, kind="not_found_error")
    if headers.get("anthropic-version") != "2023-06-01":
        raise Refused("anthropic-version: header is required")
    betas = [beta for beta in headers.get("anthropic-beta", "").split(",") if beta]
    unknown = [beta for beta in betas if beta not in published.KNOWN_BETAS]
    if unknown:
        raise Refused(f"Unexpected value(s) `{unknown[0]}` for the `anthropic-beta` header.")
    try:
        body = json.loads(payload)
    except ValueError:
        raise Refused("The request body is not valid JSON.") from None
    if key == BROKE_KEY:
        raise Refused("Your credit balance is too low to access the Anthropic API.")
    if not isinstance(body, dict):
        return check_body(body)
    check_body({name: value for name, value in body.items() if not _is_opted_in(name, value, betas)})
    return body


def _is_opted_in(name: str, value: Any, betas: list[str]) -> bool:
    """Whether an opt-in allows the field; Refused for a field of a wrong shape."""
    beta, shape = published.OPT_INS.get(name, ("", None))
    if beta not in betas:
        return False
    _check_shape(shape, value, name)
    return True


def check_body(body: Any) -> dict[str, Any]:
    """Check a body."""
    if not isinstance(body, dict):
        raise Refused("Input should be a valid dictionary")
    _check_types(body)
    _check_sampling(body)
    _check_messages(body["messages"], body["model"])
    _check_calls(body["messages"])
    _check_thinking(body)
    _check_marks(body)
    _check_tools(body)
    if body["model"] == MISSING_MODEL:
        raise Refused(f"model: {MISSING_MODEL}", status=404, kind="not_found_error")
    return body


def _check_types(body: dict[str, Any]) -> None:
    for place, message in enumerate(body.get("messages") or ()):
        if message.get("role") not in published.ROLES:
            raise Refused(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        for number, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
            if block.get("type") not in published.BLOCKS:
                raise Refused(f"messages.{place}.content.{number}: Input tag '{block.get('type')}' found")
            _check_shape(published.BLOCKS[block["type"]], block, f"messages.{place}.content.{number}.{block['type']}")
    for place, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") not in published.TOOLS:
            raise Refused(f"tools.{place}: Input tag '{tool.get('type')}' found")
        _check_shape(published.TOOLS[tool.get("type")], tool, f"tools.{place}")
    named = {name: value for name, value in body.items() if name not in (*SAMPLING, "tools")}
    if _block_types(body) & published.OPT_IN_BLOCKS.keys():
        named["messages"] = []  # their blocks were checked individually
    _check_shape(published.Streaming if body.get("stream") is True else published.NonStreaming, named, "")


def _block_types(body: dict[str, Any]) -> set[str]:
    """Return the types of all blocks."""
    contents = [message["content"] for message in body.get("messages") or ()]
    return {block["type"] for content in contents if isinstance(content, list) for block in content}


def _check_shape(shape: Any, value: Any, path: str) -> None:
    try:
        check(shape, value, published.package)
    except ValidationError as error:
        found = worst_of(error)
        steps = [path, *(str(step) for step in found["loc"] if not str(step).endswith("Param"))]
        where = ".".join(step for step in steps if step)
        messages = {"extra_forbidden": "Extra inputs are not permitted", "missing": "Field required"}
        raise Refused(f"{where}: {messages.get(found['type'], found['msg'])}") from None


def _check_sampling(body: dict[str, Any]) -> None:
    if body["max_tokens"] < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    for name in SAMPLING:
        if (name, body.get(name, 1)) != ("temperature", 1) and name in body and body["model"].startswith(ADAPTIVE_ONLY):
            raise Refused(f"`{name}` is deprecated for this model.")
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and not 0 <= body[name] <= 1:
            raise Refused(f"{name}: Input should be less than or equal to 1")
    if body.get("temperature") is not None and body.get("top_p") is not None:
        raise Refused("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    for text in body.get("stop_sequences") or ():
        if not text.strip():
            raise Refused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_instructions(messages: list[dict[str, Any]], place: int, model: str) -> None:
    """Check the place of instructions: behind a turn of the user, and followed by one of the assistant."""
    if not TAKES_SYSTEM.search(model):
        raise Refused("role 'system' is not supported on this model")
    after = messages[place + 1]["role"] if place + 1 < len(messages) else "assistant"
    if not place or messages[place - 1]["role"] != "user" or after != "assistant":
        raise Refused(f"messages.{place}: system messages must follow a user message")


def _check_messages(messages: list[dict[str, Any]], model: str) -> None:
    """Check that turns alternate, that none is empty, and that no text is blank."""
    if not messages:
        raise Refused("messages: at least one message is required")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    for place, message in enumerate(messages):
        if place and message["role"] == messages[place - 1]["role"]:
            raise Refused(f"messages: roles must alternate; {place} repeats {message['role']}")
        if message["role"] == "system":
            _check_instructions(messages, place, model)
        content = message["content"]
        if not content:
            raise Refused(f"messages.{place}: all messages must have non-empty content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "text" and not block["text"].strip():
                raise Refused("messages: text content blocks must contain non-whitespace text")
    last = messages[-1]
    end = last["content"] if isinstance(last["content"], str) else last["content"][-1].get("text", "")
    if last["role"] == "assistant" and end != end.rstrip():
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _check_end(body: dict[str, Any]) -> None:
    """Check that the conversation does not end with a turn of the assistant, which thinking could not continue."""
    last = body["messages"][-1]
    if last["role"] == "assistant":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_name(name: str, path: str) -> None:
    if not NAME_128.fullmatch(name):
        raise Refused(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def _kinds(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message["content"]
    return [block for block in content if block["type"] == kind] if isinstance(content, list) else []


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Check that every call is answered at the start of the next turn, and that every result has a call."""
    waiting: set[str] = set()
    known: set[str] = set()
    messages = [message for message in messages if message["role"] != "system"]
    for place, message in enumerate(messages):
        results = {block["tool_use_id"] for block in _kinds(message, "tool_result")}
        if results - waiting:
            raise Refused(
                f"messages.{place}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{sorted(results - waiting)[0]}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            )
        if waiting - results:
            raise Refused(
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(sorted(waiting - results))}."
            )
        if results:
            order = [block["type"] == "tool_result" for block in message["content"]]
            if order != sorted(order, reverse=True):
                raise Refused(f"messages.{place}: tool_result blocks must come first")
        idents = [block["id"] for block in _kinds(message, "tool_use")]
        waiting = set(idents)
        if len(waiting) < len(idents) or waiting & known:
            raise Refused(f"messages.{place}.content.0: `tool_use` ids must be unique")
        known |= waiting
        for block in _kinds(message, "tool_use"):
            _check_name(block["name"], f"messages.{place}.content.0.tool_use")
        if any(not ident.replace("_", "").replace("-", "").isalnum() for ident in waiting):
            raise Refused(f"messages.{place}.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking") or {"type": "disabled"}
    messages = body["messages"]
    _check_signatures(messages)
    answers = [message for message in messages if message["role"] == "assistant"]
    last = answers[-1]["content"] if answers and isinstance(answers[-1]["content"], list) else []
    if thinking["type"] == "disabled":
        if any(block["type"] in THOUGHTS for block in last) and "thinking" in body:
            raise Refused("When thinking is disabled, an `assistant` message in the final position cannot contain it.")
        return
    if thinking["type"] == "enabled":
        if body["model"].startswith(ADAPTIVE_ONLY):
            raise Refused('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".')
        _check_budget(body, thinking["budget_tokens"])
        spoken = [message for message in messages if message["role"] != "system"]
        if spoken[-1]["role"] == "user" and _kinds(spoken[-1], "tool_result") and last[0]["type"] not in THOUGHTS:
            raise Refused(f"Expected `thinking` or `redacted_thinking`, but found `{last[0]['type']}`.")
    _check_end(body)
    if body.get("temperature") not in (None, 1) or body.get("top_k") is not None:
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_signatures(messages: list[dict[str, Any]]) -> None:
    for place, message in enumerate(messages):
        for block in _kinds(message, "thinking"):
            if block["signature"] != sign(block["thinking"]):
                raise Refused(f"messages.{place}.content.0: Invalid `signature` in `thinking` block")


def _check_budget(body: dict[str, Any], budget: int) -> None:
    if budget < MIN_BUDGET:
        raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= body["max_tokens"]:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_marks(body: dict[str, Any]) -> None:
    marks: list[str] = []
    blocks = list(body.get("tools") or ())
    blocks += body["system"] if isinstance(body.get("system"), list) else []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            blocks += block["content"] if isinstance(block.get("content"), list) else []
            blocks.append(block)
    marks = [block["cache_control"].get("ttl", "5m") for block in blocks if block.get("cache_control")]
    if len(marks) > MARKS:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    if "1h" in marks and "5m" in marks[: len(marks) - marks[::-1].index("1h")]:
        raise Refused("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _check_tools(body: dict[str, Any]) -> None:
    if body.get("tool_choice") and not body.get("tools"):
        raise Refused("tool_choice: may only be specified while providing tools")
    names = [tool.get("name", tool.get("type")) for tool in body.get("tools") or ()]
    if len(set(names)) < len(names):
        raise Refused("tools: Tool names must be unique.")
    for place, tool in enumerate(body.get("tools") or ()):
        if "input_schema" in tool:
            _check_name(tool["name"], f"tools.{place}.custom")
        schema = tool.get("input_schema", {"type": "object"})
        if schema.get("type") != "object" or {"oneOf", "anyOf", "allOf"} & schema.keys():
            raise Refused(
                f"tools.{place}.custom.input_schema: does not support oneOf, allOf, or anyOf at the top level"
            )
