"""Validates `messages` like the chat completions API: roles, contents, and misplaced tool messages."""

from typing import Any

from gateway.providers.sandbox.checks import member, of, wrong_type, wrong_value
from gateway.providers.sandbox.response import refuse

TEXT_ONLY = ("text",)
# role -> the types of the parts that its messages may have
PARTS = {
    "system": TEXT_ONLY,
    "assistant": ("text", "refusal"),
    "user": ("text", "image_url", "input_audio", "file", "video_url"),
    "function": TEXT_ONLY,
    "tool": (*TEXT_ONLY, "image_url"),
    "developer": TEXT_ONLY,
}
# part type -> (its member, the member's type, inner members of which one is required)
BODIES: dict[str, tuple[str, type, tuple[str, ...]]] = {
    "text": ("text", str, ()),
    "refusal": ("refusal", str, ()),
    "image_url": ("image_url", dict, ("url",)),
    "video_url": ("video_url", dict, ("url",)),
    "input_audio": ("input_audio", dict, ("data",)),
    "file": ("file", dict, ("file_data", "file_id", "file_url")),
}


def check_messages(messages: list[Any]) -> None:
    """Raise InvalidRequest for the first invalid message, otherwise for the first message out of sequence."""
    if not messages:
        text = (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
        raise refuse(text, "messages", "empty_array")
    for place, message in enumerate(messages):
        _check_message(message, f"messages[{place}]")
    _check_sequence(messages)


def _check_message(message: Any, param: str) -> None:
    of(dict)(message, param)
    role = member(message, "role", param, str)
    if role not in PARTS:
        raise wrong_value(role, f"{param}.role", tuple(PARTS))
    if role == "tool":
        member(message, "tool_call_id", param, str)
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(role, calls, f"{param}.tool_calls")
    _check_content(message, role, param)


def _check_content(message: dict[str, Any], role: str, param: str) -> None:
    content = message.get("content")
    if content is None:
        stand_ins = ("tool_calls", "function_call", "refusal", "audio")
        if role == "assistant" and any(message.get(name) for name in stand_ins):
            return
        raise refuse("Invalid value for 'content': expected a string, got null.", f"{param}.content")
    if not isinstance(content, str | list):
        raise wrong_type(content, f"{param}.content", "a string or an array")
    if isinstance(content, list):
        for place, part in enumerate(content):
            check_part(part, PARTS[role], f"{param}.content[{place}]")


def check_part(part: Any, allowed: tuple[str, ...], param: str) -> None:
    """Check a content part: one of the `allowed` types, with the member that its type requires."""
    of(dict)(part, param)
    kind = member(part, "type", param, str)
    if kind not in allowed:
        raise wrong_value(kind, f"{param}.type", allowed)
    name, expected, inner = BODIES[kind]
    value = member(part, name, param, expected)
    if inner and not any(isinstance(value.get(key), str) for key in inner):
        member(value, inner[0], f"{param}.{name}", str)


def _check_calls(role: str, calls: Any, param: str) -> None:
    if role != "assistant":
        raise refuse(f"Unknown parameter: '{param}': only assistant messages have it.", param, "unknown_parameter")
    of(list)(calls, param)
    if not calls:
        text = f"Invalid '{param}': empty array. Expected an array with minimum length 1."
        raise refuse(text, param, "empty_array")
    for place, call in enumerate(calls):
        where = f"{param}[{place}]"
        of(dict)(call, where)
        member(call, "id", where, str)
        kind = member(call, "type", where, str)
        if kind not in ("function", "custom"):
            raise wrong_value(kind, f"{where}.type", ("function", "custom"))
        inner = member(call, kind, where, dict)
        member(inner, "name", f"{where}.{kind}", str)
        member(inner, "arguments" if kind == "function" else "input", f"{where}.{kind}", str)


def _check_sequence(messages: list[dict[str, Any]]) -> None:
    """Check that tool messages answer the calls of the preceding assistant message, and that every call is answered."""
    waiting: dict[str, None] = {}
    answerable: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in answerable:
                raise _out_of_place(place)
            waiting.pop(message["tool_call_id"], None)
            continue
        _refuse_unanswered(waiting, place)
        waiting = {call["id"]: None for call in message.get("tool_calls") or ()}
        answerable = set(waiting)
    _refuse_unanswered(waiting, len(messages))


def _out_of_place(place: int) -> Exception:
    text = (
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
    )  # fmt: skip
    return refuse(text, f"messages.[{place}].role")


def _refuse_unanswered(waiting: dict[str, None], place: int) -> None:
    if waiting:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)[:500]}"
        )
        raise refuse(text, f"messages.[{place}].role")
